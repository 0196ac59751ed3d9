"""The benchmark's figure: how cost and gain grow with what users turn up.

One panel for each part that was measured: tokens of shared context, candidates, questions over
one pool, callers at once. Points are medians of the repeats, bars the range of the repeats or the
95 % interval of a ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.drawing import new_figure
from ecs_plugins.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = dict[str, Any]
_MS = 1000.0
_LINES = (("naive", "naive loop"), ("cold", "cold"), ("cached", "context cached"))


def growth(results: Results, out: Path) -> list[Path]:
    """Draw ``engine-growth.png``, if a part was measured and matplotlib is installed.

    Returns:
        The files written.
    """
    panels = [(draw, results[part]) for part, draw in _PANELS.items() if results.get(part)]
    if not panels:
        return []
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    try:
        figure, grid = new_figure((5.0 * columns, 3.4 * rows), rows, columns)
    except MissingExtraError:
        return []
    places = np.ravel(grid)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    for axes, (draw, found) in zip(places, panels, strict=False):
        for model, measured in found.items():
            draw(axes, model, measured)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    path = out / "engine-growth.png"
    figure.savefig(path)
    return [path]


def _context(axes: Axes, model: str, rows: Sequence[Results]) -> None:
    _costs(axes, model, rows, "context")
    axes.set_xscale("symlog", linthresh=250)
    axes.set(xlabel="tokens of shared context (C)", yscale="log")


def _number(axes: Axes, model: str, rows: Sequence[Results]) -> None:
    _costs(axes, model, rows, "candidates")
    axes.set(xlabel="candidates (K)", xscale="log")
    axes.set_ylim(bottom=0)


def _costs(axes: Axes, model: str, rows: Sequence[Results], key: str) -> None:
    x = [row["setting"][key] for row in rows]
    for name, label in _LINES:
        if all(row[name] for row in rows):
            ranges = [_range([value * _MS for value in row[name]]) for row in rows]
            _points(axes, x, ranges, f"{model}, {label}")
    axes.set_ylabel("ms per candidate")


def _questions(axes: Axes, model: str, rows: Sequence[Results]) -> None:
    ratios = [(r["ratio"]["ratio"], r["ratio"]["low"], r["ratio"]["high"]) for r in rows]
    _points(axes, [row["questions"] for row in rows], ratios, model)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="questions over one pool (M)", ylabel="together over one by one")


def _callers(axes: Axes, model: str, rows: Sequence[Results]) -> None:
    x = [row["callers"] for row in rows]
    _points(axes, x, [tuple(row["speedup"]) for row in rows], f"{model}, wall time")
    _points(axes, x, [tuple(row["cpu_speedup"]) for row in rows], f"{model}, CPU time")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="callers at once", ylabel="over the same calls in series")


_PANELS: dict[str, Callable[[Axes, str, Any], None]] = {
    "context": _context,
    "number": _number,
    "questions": _questions,
    "callers": _callers,
}


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)


def _points(
    axes: Axes, x: Sequence[float], values: Sequence[tuple[float, ...]], label: str
) -> None:
    """Points with the ends of their bars, as (value, low, high)."""
    middle = [value for value, _, _ in values]
    below = [max(0.0, value - low) for value, low, _ in values]
    above = [max(0.0, high - value) for value, _, high in values]
    axes.errorbar(x, middle, yerr=(below, above), marker="o", markersize=4, capsize=2, label=label)
