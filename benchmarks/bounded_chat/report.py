"""The comparison on chat as tables and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.bounded_chat.comparison import ChatResults, Count
from benchmarks.drawing import markdown_table, new_figure

ENTROPIC = "Entropic"

# Okabe and Ito's palette, which stays apart for colour-blind readers.
_OURS = ("#D55E00", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#0072B2", "#999999")
_THEIRS = "#888888"
_MARKERS = "osD^v<>Pph*X"


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


def draw(results: ChatResults, k: int, path: Path) -> Path:
    """Draw recall@k over capacity, the strict count; return the path.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, axes = new_figure((8, 4.8))
    capacities = results.protocol.capacities
    colours = iter(_OURS * len(results.runs[capacities[0]]))
    for at, name in enumerate(results.runs[capacities[0]]):
        strong = name.startswith(ENTROPIC)
        axes.plot(
            [100 * capacity for capacity in capacities],
            [results.mean(capacity, name, k) for capacity in capacities],
            label=name,
            color=next(colours) if strong else _THEIRS,
            marker=_MARKERS[at % len(_MARKERS)],
            markersize=5,
            linewidth=2.4 if strong else 1.0,
            linestyle="-" if strong else "--",
            zorder=3 if strong else 2,
        )
    axes.set_xscale("log")
    axes.set_xticks([100 * capacity for capacity in capacities])
    axes.set_xticklabels([f"{capacity:.0%}" for capacity in capacities])
    axes.minorticks_off()
    axes.set(xlabel="items in memory, as a share of the turns", ylabel=f"evidence recall@{k}")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path)
    return path
