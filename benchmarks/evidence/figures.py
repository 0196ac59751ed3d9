"""Figures of evidence benchmarks, made from their JSON: quality, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.drawing import new_figure
from benchmarks.evidence.report import (
    Result,
    by_quality,
    decisive,
    metric_name,
    title_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"ours": "#c1272d", "peer": "#3b6fb6", "bound": "#bbbbbb"}


def draw(result: Result, stem: Path) -> list[Path]:
    """Write ``<stem>_quality`` and ``<stem>_cost`` as PNG and SVG; return their paths.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    written: list[Path] = []
    for name, figure in (("quality", _quality(result)), ("cost", _cost(result))):
        for kind in ("png", "svg"):
            path = stem.with_name(f"{stem.name}_{name}.{kind}")
            figure.savefig(path)
            written.append(path)
    return written


def _quality(result: Result) -> Figure:
    names = by_quality(result)[::-1]
    entries = [result["methods"][name] for name in names]
    metric = decisive(result)
    found = [entry["metrics"][metric] for entry in entries]
    figure, axes = new_figure((7.5, 0.3 * len(names) + 1.2))
    axes.barh(
        range(len(names)),
        [value["mean"] for value in found],
        xerr=[
            [max(0.0, value["mean"] - value["low"]) for value in found],
            [max(0.0, value["high"] - value["mean"]) for value in found],
        ],
        color=[_COLOURS[entry["kind"]] for entry in entries],
        ecolor="#333333",
        capsize=2,
    )
    axes.set_yticks(range(len(names)), [_label(n, e) for n, e in zip(names, entries, strict=True)])
    axes.set(xlim=(0, 1), xlabel=f"{metric_name(metric)}, 95 % bootstrap interval")
    axes.set_title(
        f"{title_of(result)}, {result['questions']} questions (*: knows the answer)", fontsize=10
    )
    return figure


def _cost(result: Result) -> Figure:
    figure, axes = new_figure((7.5, 4.5))
    metric = decisive(result)
    points = [
        (name, entry, entry["metrics"]["scored_per_candidate_token"]["mean"])
        for name, entry in result["methods"].items()
        if "scored_per_candidate_token" in entry["metrics"] and entry["kind"] != "bound"
    ]
    middle = max((x for *_, x in points), default=0.0) / 2
    for name, entry, x in points:
        y = entry["metrics"][metric]["mean"]
        axes.scatter(x, y, color=_COLOURS[entry["kind"]], s=18)
        side = -1 if x > middle else 1  # labels stay within the axes
        axes.annotate(
            _label(name, entry),
            (x, y),
            xytext=(4 * side, 2),
            textcoords="offset points",
            ha="right" if side < 0 else "left",
            fontsize=6,
        )
    axes.set(xlabel="tokens through the model per candidate token", ylabel=metric_name(metric))
    axes.set_title(f"{title_of(result)}: quality and cost (*: knows the answer)", fontsize=10)
    axes.margins(x=0.05)
    return figure


def _label(name: str, entry: Mapping[str, Any]) -> str:
    return f"{name} *" if entry["uses_answer"] else name
