"""The benchmark's tables. A second is one of CPU time, on a GPU one of wall time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.engine import scorers
from benchmarks.engine.measure import Ratio, ratio_of
from benchmarks.engine.serving import LATENCIES
from benchmarks.tables import markdown_table

Results = dict[str, Any]
_MS = 1000.0


def markdown(results: Results) -> str:
    """Every part that was measured, as Markdown tables."""
    parts = [
        _absolute(results.get("absolute", {})),
        _compare(results.get("compare", {})),
        _growth(results.get("context", {}), "Growth with the context"),
        _growth(results.get("number", {}), "Growth with the number of candidates"),
        _questions(results.get("questions", {})),
        _memory(results.get("memory", {})),
        _beside_encoder(results.get("cross-encoder", {})),
        _resident(results.get("resident", {})),
        _callers(results.get("callers", {})),
        _latency(results.get("latency", {})),
    ]
    return "\n".join(part for part in parts if part)


def _table(title: str, head: list[str], rows: list[list[str]], note: str = "") -> str:
    text = f"### {title}\n\n{markdown_table(head, rows)}"
    return f"{text}\n{note}\n" if note else text


def _absolute(part: Results) -> str:
    rows, notes = [], []
    for found in part.values():
        for row in found:
            peak = row["peak_mib"]
            rows.append(
                [
                    f"{row['label']}",
                    _median(row["cold"], 2),
                    _median(row["cached"], 2),
                    f"{1 / statistics.median(row['cold']):.0f}",
                    f"{1 / statistics.median(row['cached']):.0f}",
                    f"{statistics.median(row['cold_share']):.0%}",
                    f"{statistics.median(row['cached_share']):.0%}",
                    "-" if peak is None else f"{peak:.0f}",
                ]
            )
            notes.append(
                f"{row['label']}: path {row['path']}; one large "
                f"matrix product {statistics.median(row['matmul_tflops']):.3g} TFLOP/s; "
                f"weights {row['weights_mib']:.0f} MiB; {row['token_budget']} tokens at once."
            )
            notes.extend(f"Not {slower}: {why}." for slower, why in row["against"].items())
    head = ["setting", "cold, ms per candidate", "context cached", "candidates/s cold", "cached"]
    head += ["share of the matrix product's rate, cold", "cached", "peak over the weights, MiB"]
    return _table("Absolute figures", head, rows, "  \n".join(notes)) if rows else ""


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


def _resident(part: Results) -> str:
    if not part:
        return ""
    memory = part["memory_mib"]
    without = max(memory["0"])
    rows = []
    for budget, values in memory.items():
        more = max(values) - without
        share = f"{more / int(budget):.2f}" if int(budget) else ""
        rows.append([budget, f"{max(values):.0f}", f"{values[-1]:.0f}", share])
    head = ["budget, MiB", "process at most", "at the end", "at most over none / budget"]
    note = f"{part['questions']:,} questions over {part['pools']} pools."
    return _table("Resident memory", head, rows, note)


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


def _growth(part: Results, title: str) -> str:
    rows = [
        [
            row["label"],
            _median(row["cold"]),
            _median(row["cached"]),
            str(ratio_of(grown[0]["cached"], row["cached"])) if row is not grown[0] else "1",
            _median(row["naive"]),
        ]
        for grown in part.values()
        for row in grown
    ]
    head = ["setting", "cold, ms per candidate", "context cached"]
    head += ["cached, times the first [95 %]", "naive loop"]
    return _table(title, head, rows) if rows else ""


def _questions(part: Results) -> str:
    rows = [
        [label, str(row["questions"]), str(Ratio(**row["ratio"]))]
        for label, found in part.items()
        for row in found
    ]
    head = ["setting", "questions", "together over one by one [95 %]"]
    return _table("Several questions over one pool", head, rows) if rows else ""


def _memory(part: Results) -> str:
    names = list(dict.fromkeys(name for row in part.values() for name in row))
    rows = [[label, *(_mib(row.get(name, "-")) for name in names)] for label, row in part.items()]
    return _table("Peak memory over the model (MiB)", ["setting", *names], rows) if rows else ""


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


def _latency(part: Results) -> str:
    rows = [
        [
            f"{model}, C={row['context_tokens']:.0f}, {row['passages']} passages of "
            f"{row['passage_tokens']:.0f} tokens",
            *(f"{statistics.median(values):.2f}" for values in row["milliseconds"].values()),
        ]
        for model, found in part.items()
        for row in found
    ]
    head = ["setting", *LATENCIES]
    return _table("Latency per candidate (wall ms, median)", head, rows) if rows else ""


def _median(values: list[float], digits: int = 1) -> str:
    return f"{statistics.median(values) * _MS:.{digits}f}" if values else "-"


def _mib(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.0f}"
