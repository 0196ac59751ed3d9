"""The benchmark's tables. A second is one of CPU time, on a GPU one of wall time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.engine import scorers
from benchmarks.engine.measure import Ratio
from benchmarks.tables import markdown_table

Results = dict[str, Any]
_MS = 1000.0


def markdown(results: Results) -> str:
    """Every part that was measured, as Markdown tables."""
    parts = [
        _compare(results.get("compare", {})),
        _beside_encoder(results.get("cross-encoder", {})),
        _callers(results.get("callers", {})),
    ]
    return "\n".join(part for part in parts if part)


def _table(title: str, head: list[str], rows: list[list[str]], note: str = "") -> str:
    text = f"### {title}\n\n{markdown_table(head, rows)}"
    return f"{text}\n{note}\n" if note else text


_ASKED = {
    "first": "first question",
    "later": "later question",
    "half": "first question, half of the passages scored",
}


def _beside_encoder(part: Results) -> str:
    rows = []
    for dtype, found in part.items():
        for name, ratio in found["ratios"].items():
            seconds = [statistics.median(found["seconds"][each]) for each in (name, "encoder")]
            shown = [f"{value:.2f}" for value in seconds]
            rows.append([f"{_ASKED[name]}, {dtype}", *shown, str(Ratio(**ratio))])
    head = ["", "CPU s, median", "the cross-encoder", "ratio [95 %]"]
    return _table("Beside a cross-encoder", head, rows) if rows else ""


def _compare(part: Results) -> str:
    if not part:
        return ""
    rows = []
    notes = []
    for label, found in part.items():
        seconds = found["seconds_per_candidate"]
        for name, values in seconds.items():
            ratio = "1" if name == scorers.OURS else str(Ratio(**found["ratios"][name]))
            off = found["difference"].get(name)
            rows.append(
                [
                    label,
                    name,
                    f"{statistics.median(values) * _MS:.0f}",
                    ratio,
                    "" if off is None else f"{off:.1e}",
                ]
            )
        share = found["floor_share"]
        rate = statistics.median(found["matmul_gflops"])
        notes.append(
            f"{label}: {found['repeats']} repeats; ours reaches {share:.0%} of the floor at "
            f"{rate:.0f} GFLOP/s."
        )
        notes.extend(f"{label}: {name}: {why}." for name, why in found["left_out"].items())
    head = ["setting", "scorer", "ms per candidate", "times ours [95 %]", "off by (nats)"]
    return _table("Beside the usual ways", head, rows, "  \n".join(notes))


def _callers(part: Results) -> str:
    rows = [
        [
            model,
            str(row["callers"]),
            _range(row["speedup"]),
            _range(row["cpu_speedup"]),
            f"{row['p50_s'] * _MS:.0f}",
            f"{row['p99_s'] * _MS:.0f}",
            f"{row['serial_p50_s'] * _MS:.0f}",
        ]
        for model, found in part.items()
        for row in found
    ]
    head = ["model", "callers", "over series, wall [95 %]", "over series, CPU [95 %]"]
    head += ["p50, ms", "p99, ms", "p50 alone, ms"]
    return _table("Callers at once", head, rows) if rows else ""


def _range(ends: Sequence[float]) -> str:
    return str(Ratio(*ends))
