"""Tables of the comparison on chat."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.bounded_chat.comparison import ChatResults, Count
from benchmarks.tables import markdown_table


def markdown(
    results: ChatResults, k: int, *, bounded: Sequence[str], count: Count = "words"
) -> str:
    """Return mean recall@k per store and capacity; the best bounded one of each column is bold.

    Args:
        results: The runs.
        k: Which k.
        bounded: The stores that compete for bold.
        count: How items count.
    """
    capacities = results.protocol.capacities
    best = {c: results.best(c, bounded, k) for c in capacities} if bounded else {}
    rows = []
    for name in results.runs[capacities[0]]:
        cells = [name]
        for capacity in capacities:
            cell = f"{results.mean(capacity, name, k, count):.3f}"
            cells.append(f"**{cell}**" if best.get(capacity) == name and count == "words" else cell)
        rows.append(cells)
    return markdown_table(["store", *(f"{c:.0%}" for c in capacities)], rows)


def differences(
    results: ChatResults, k: int, *, ours: Sequence[str], baselines: Sequence[str]
) -> str:
    """Return each of ours minus the best baseline of each capacity, with its 95 % interval."""
    capacities = results.protocol.capacities
    rows = []
    for name in ours:
        cells = [name]
        for capacity in capacities:
            rival = results.best(capacity, baselines, k)
            mean, low, high = results.difference(capacity, name, rival, k)
            cells.append(f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] ({rival})")
        rows.append(cells)
    return markdown_table(["minus the best baseline", *(f"{c:.0%}" for c in capacities)], rows)


def costs(results: ChatResults, k: int) -> str:
    """Return milliseconds per turn told, and tokens recalled, per store and capacity."""
    capacities = results.protocol.capacities
    rows = []
    for name in results.runs[capacities[0]]:
        found = (results.cost(capacity, name, k) for capacity in capacities)
        rows.append([name, *(f"{taken:.2f} ms, {tokens:.0f}" for taken, tokens in found)])
    return markdown_table(["cost", *(f"{c:.0%}" for c in capacities)], rows)
