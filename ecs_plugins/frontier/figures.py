"""Figures of a frontier: the paper's Figures 1 and 2, a decision map, and cost over reuse.

Every line and region comes from the closed forms, not from a grid: paths over w are envelopes,
regions of the map are the exact intervals of N per target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ecs_plugins.errors import MissingExtraError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.hull import non_dominated, weight_spans
from ecs_plugins.frontier.points import StrategyPoint

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito: told apart with every kind of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7A5195", "#8C8C00")
GREY = "#9a9a9a"
_MOST_REUSE = 1000.0  # the end of the axis of N
_STYLE = {
    "font.size": 9.5,
    "axes.edgecolor": "#777777",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
}


def colours(frontier: EfficiencyFrontier) -> dict[str, str]:
    """Strategy -> colour, the same in every figure; strategies that are not routed are grey."""
    names = dict.fromkeys(point.strategy for point in frontier.routable)
    out = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)}
    return {point.strategy: out.get(point.strategy, GREY) for point in frontier.points}


def strategy_figure(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> Figure:
    """Figure 1: per strategy all points, the non-dominated ones (dashed) and the path over w."""
    palette = colours(frontier)
    columns = min(3, len(palette))
    rows = math.ceil(len(palette) / columns)
    figure, axes = new_figure(rows, columns, (3.5 * columns, 2.7 * rows + 0.4))
    for axis, (name, colour) in zip(axes, palette.items(), strict=False):
        own = [point for point in frontier.points if point.strategy == name]
        shown = reuses if any(point.stage1 > 0 for point in own) else reuses[:1]
        for index, reuse in enumerate(shown):
            strength = 0.35 + 0.65 * (index + 1) / len(shown)
            path = [span.point for span in weight_spans(own, reuse)]
            style = {"color": colour, "alpha": strength}
            _plot(axis, own, reuse, color=colour, alpha=0.4 * strength, marker=".", ls="")
            _plot(axis, non_dominated(own, reuse), reuse, **style, ls=(0, (3, 2)), lw=1.0)
            _plot(axis, path, reuse, **style, marker="o", ms=5, lw=2.0)
        title = name if own[0].routable else f"{name} (upper bound)"
        if len(shown) > 1:
            title += " (light to dark: N = " + ", ".join(f"{reuse:g}" for reuse in reuses) + ")"
        axis.set_title(title, loc="left", color=colour, fontsize=9, fontweight="bold")
        _axes_of_points(axis, frontier, reuses)
    for axis in axes[len(palette) :]:
        axis.set_visible(False)
    return figure


def global_figure(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> Figure:
    """Figure 2: the path of optimal choices over w, one curve per N; F1 with its interval."""
    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.8))
    for point in frontier.points:
        _plot(axis, [point], reuses[0], marker="o", ms=4, color=palette[point.strategy], alpha=0.3)
    named: set[str] = set()
    lines: dict[str, Artist] = {}
    dots: dict[str, Artist] = {}
    for index, reuse in enumerate(reuses):
        rank = index / max(1, len(reuses) - 1)
        path = [span.point for span in frontier.envelope(reuse)]
        line = {"color": str(0.75 - 0.6 * rank), "lw": 1.2 + 1.2 * rank}
        lines[f"N = {reuse:g}"] = _plot(axis, path, reuse, **line, zorder=2)
        for point in path:
            dot = {"marker": "o", "ms": 7, "mec": "w", "ls": "", "color": palette[point.strategy]}
            dots[point.strategy] = _plot(axis, [point], reuse, **dot)
            f1, colour = frontier.f1_interval(point), palette[point.strategy]
            axis.vlines(point.effective(reuse), f1.low, f1.high, colour, alpha=0.4, lw=1.0)
            if point.label not in named:
                place, apart = (point.effective(reuse), point.f1), (5, -9)
                axis.annotate(point.label, place, apart, fontsize=7, textcoords="offset points")
            named.add(point.label)
    _axes_of_points(axis, frontier, reuses)
    _legend(axis, lines | dots)
    return figure


def _plot(axis: Axes, points: Sequence[StrategyPoint], reuse: float, **style: Any) -> Artist:
    return axis.plot([p.effective(reuse) for p in points], [p.f1 for p in points], **style)[0]


def _axes_of_points(axis: Axes, frontier: EfficiencyFrontier, reuses: Sequence[float]) -> None:
    """Cost on a logarithmic axis, F1 on the other; room for every point at every N."""
    intervals = [frontier.f1_interval(point) for point in frontier.points]
    values = [f1 for interval in intervals for f1 in (interval.low, interval.high)]
    margin = max(0.01, 0.08 * (max(values) - min(values)))
    axis.set_ylim(max(0.0, min(values) - margin), min(1.0, max(values) + margin))
    costs = [point.effective(reuse) for point in frontier.points for reuse in reuses]
    low, high = min(costs), max(costs)
    room = (high / low) ** 0.06 if high > low else 1.2
    axis.set_xscale("log")
    axis.set_xlim(low / room, high * room)
    plain_log(axis.xaxis, low, high)
    axis.set_xlabel(f"effective {frontier.unit} per query")
    axis.set_ylabel("F1")


def _legend(axis: Axes, shown: Mapping[str, Artist]) -> None:
    handles, labels = list(shown.values()), list(shown)
    axis.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _reuse_axis(axis: Axes) -> None:
    axis.set_xscale("log")
    axis.set_xlim(1, _MOST_REUSE)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel("queries that share a context, N")


def map_figure(frontier: EfficiencyFrontier) -> Figure:
    """The decision map: the cheapest strategy for every reuse N and target F1."""
    from matplotlib.patches import Rectangle

    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.8))
    levels = sorted({point.f1 for point in frontier.routable})
    bottom = max(0.0, levels[0] - 0.15 * max(levels[-1] - levels[0], 0.02))
    # Where every F1 is 0, any target that can be asked for is 0: a strip shows the choice.
    top = max(levels[-1], bottom + 0.01)
    shown: dict[str, Artist] = {}
    for low, level in pairwise([bottom, *levels]):
        high = level if levels[-1] else top
        for span in frontier.reuse_path(target_f1=level):
            if span.low < _MOST_REUSE:
                width = min(span.high, _MOST_REUSE) - span.low
                # Edges of its own colour: neighbours of one colour are one area.
                colour = palette[span.point.strategy]
                area = Rectangle((span.low, low), width, high - low, fc=colour, ec=colour, lw=0.3)
                shown[span.point.strategy] = axis.add_patch(area)
    _reuse_axis(axis)
    axis.set_ylim(bottom, top)
    axis.set_ylabel("target F1")
    axis.grid(visible=False)
    _legend(axis, shown)
    return figure


def reuse_figure(frontier: EfficiencyFrontier, target_f1: float) -> Figure:
    """Cost over N at one target: each strategy at its best, and the router below them all."""
    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.6))
    grid = [_MOST_REUSE ** (k / 200) for k in range(201)]
    able = [point for point in frontier.routable if point.f1 >= target_f1]
    lines: dict[str, Artist] = {}
    costs = {
        f"always {name}": [
            min(point.effective(reuse) for point in able if point.strategy == name)
            for reuse in grid
        ]
        for name in dict.fromkeys(point.strategy for point in able)
    }
    for label, line in costs.items():
        colour = palette[label.removeprefix("always ")]
        (lines[label],) = axis.plot(grid, line, lw=1.4, color=colour)
    routed = [min(each) for each in zip(*costs.values(), strict=True)]
    (lines["router"],) = axis.plot(grid, routed, lw=5, color="#222222", alpha=0.18, zorder=1)
    for span in frontier.reuse_path(target_f1=target_f1)[1:]:
        if span.low < _MOST_REUSE:
            axis.axvline(span.low, color=GREY, lw=0.8, ls=":")
            place = (span.low, span.point.effective(span.low))
            axis.annotate(f"N* = {span.low:.3g}", place, xytext=(5, 12), textcoords="offset points")
    _reuse_axis(axis)
    axis.set_yscale("log")
    plain_log(axis.yaxis, min(routed), max(map(max, costs.values())))
    axis.set_ylabel(f"effective {frontier.unit} per query")
    axis.set_title(f"target F1 >= {target_f1:.3f}", loc="left", fontsize=10.5)
    _legend(axis, lines)
    return figure


def new_figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Empty axes, row by row, in the style of all figures.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("A frontier report", "matplotlib", "plots") from error
    with matplotlib.rc_context(_STYLE):  # type: ignore[arg-type]
        # No pyplot: its global state is neither thread-safe nor needed.
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def plain_log(axis: Axis, low: float, high: float) -> None:
    """Few round labels on a logarithmic axis, as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 300 else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
