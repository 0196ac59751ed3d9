"""Figures of a frontier: the paper's Figures 1 and 2, a decision map, and cost over reuse.

Every line and region comes from the closed forms, not from a grid: paths over w are envelopes,
regions of the map are the exact intervals of N per target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecs_plugins.errors import MissingExtraError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.hull import non_dominated
from ecs_plugins.frontier.points import StrategyPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito: told apart with every kind of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7A5195", "#8C8C00")
GREY = "#9a9a9a"
_INK = "#222222"
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
    low, high = _f1_range(frontier)
    shown: set[float] = set()
    for axis, (name, colour) in zip(axes, palette.items(), strict=False):
        own = [point for point in frontier.points if point.strategy == name]
        moving = any(point.stage1 > 0 for point in own)
        for index, reuse in enumerate(reuses if moving else reuses[:1]):
            strength = 0.35 + 0.65 * (index + 1) / len(reuses) if moving else 1.0
            _strategy_panel(axis, frontier, own, reuse, colour, strength)
            shown.update(point.effective(reuse) for point in own)
        title = name if own[0].routable else f"{name} (upper bound)"
        axis.set_title(title, loc="left", color=colour, fontsize=10.5, fontweight="bold")
        if moving and len(reuses) > 1:
            axis.text(
                0.98,
                0.04,
                "light to dark: N = " + ", ".join(f"{reuse:g}" for reuse in reuses),
                transform=axis.transAxes,
                ha="right",
                fontsize=7.5,
                color="#555555",
            )
    for axis in axes:
        axis.set_ylim(low, high)
        _cost_axis(axis, sorted(shown))
    for axis in axes[len(palette) :]:
        axis.set_visible(False)
    for index, axis in enumerate(axes):
        if index % columns == 0:
            axis.set_ylabel("F1")
        below = index + columns
        if below >= len(palette):
            axis.set_xlabel(f"effective {frontier.unit} per query")
    return figure


def _strategy_panel(
    axis: Axes,
    frontier: EfficiencyFrontier,
    own: Sequence[StrategyPoint],
    reuse: float,
    colour: str,
    strength: float,
) -> None:
    costs = [point.effective(reuse) for point in own]
    axis.scatter(
        costs, [point.f1 for point in own], s=26, color=colour, alpha=0.4 * strength, linewidths=0
    )
    kept = [own[index] for index in non_dominated([p.f1 for p in own], costs)]
    axis.plot(
        [p.effective(reuse) for p in kept],
        [p.f1 for p in kept],
        linestyle=(0, (3, 2)),
        lw=1.0,
        color=colour,
        alpha=0.8 * strength,
    )
    path = [step.point for step in frontier.envelope(reuse, own)]
    axis.plot(
        [p.effective(reuse) for p in path],
        [p.f1 for p in path],
        lw=2.0,
        marker="o",
        ms=5,
        color=colour,
        alpha=strength,
    )


def global_figure(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> Figure:
    """Figure 2: the path of optimal choices over w, one curve per N."""
    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.8))
    shades = [str(0.75 - 0.6 * index / max(1, len(reuses) - 1)) for index in range(len(reuses))]
    widths = [1.2 + 1.2 * index / max(1, len(reuses) - 1) for index in range(len(reuses))]
    shown: list[float] = []
    for point in frontier.points:
        cost = point.effective(reuses[0])
        shown.append(cost)
        axis.scatter([cost], [point.f1], s=16, color=palette[point.strategy], alpha=0.25, lw=0)
    used: set[str] = set()
    for reuse, shade, width in zip(reuses, shades, widths, strict=True):
        path = [step.point for step in frontier.envelope(reuse)]
        costs = [point.effective(reuse) for point in path]
        shown += costs
        axis.plot(
            costs, [p.f1 for p in path], color=shade, lw=width, zorder=2, label=f"N = {reuse:g}"
        )
        for cost, point in zip(costs, path, strict=True):
            used.add(point.strategy)
            axis.scatter(
                [cost], [point.f1], s=54, color=palette[point.strategy], zorder=3, ec="white"
            )
    for name in palette:
        if name in used:
            axis.scatter([], [], s=54, color=palette[name], label=name)
    _cost_axis(axis, sorted(shown))
    axis.set_xlabel(f"effective {frontier.unit} per query")
    axis.set_ylabel("F1")
    axis.set_ylim(*_f1_range(frontier))
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def map_figure(frontier: EfficiencyFrontier, max_reuse: float = 1000.0) -> Figure:
    """The decision map: the cheapest strategy for every reuse N and target F1."""
    from matplotlib.patches import Patch, Rectangle

    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.8))
    levels = sorted({point.f1 for point in frontier.routable})
    span = max(levels[-1] - levels[0], 0.02)
    regions = _regions(frontier, levels, max(0.0, levels[0] - 0.15 * span), max_reuse)
    for region in regions:
        axis.add_patch(
            Rectangle(
                (region.left, region.low),
                region.right - region.left,
                region.high - region.low,
                fc=palette[region.point.strategy],
                ec="white",
                lw=0.8,
            )
        )
        _name_region(axis, region, 1.15 * span, max_reuse)
    shown = {region.point.strategy for region in regions}
    axis.set_xscale("log")
    axis.set_xlim(1, max_reuse)
    axis.set_ylim(regions[0].low, levels[-1])
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel("queries that share a context, N")
    axis.set_ylabel("target F1")
    axis.grid(visible=False)
    axis.legend(
        handles=[Patch(color=palette[name], label=name) for name in palette if name in shown],
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
    )
    return figure


@dataclass(frozen=True, slots=True)
class _Region:
    """A rectangle of the decision map in which one point is the cheapest."""

    point: StrategyPoint
    left: float
    right: float
    low: float
    high: float


def _regions(
    frontier: EfficiencyFrontier, levels: Sequence[float], bottom: float, max_reuse: float
) -> list[_Region]:
    """All of them, exact; neighbouring targets with the same choices for every N are one."""
    regions: list[_Region] = []
    begins = bottom
    for level, following in zip(levels, [*levels[1:], None], strict=True):
        path = frontier.reuse_path(target_f1=level)
        if following is not None and path == frontier.reuse_path(target_f1=following):
            continue
        regions += [
            _Region(step.point, step.reuse_low, min(step.reuse_high, max_reuse), begins, level)
            for step in path
            if step.reuse_low < max_reuse
        ]
        begins = level
    return regions


def _name_region(axis: Axes, region: _Region, tall: float, max_reuse: float) -> None:
    """Write the configuration into a region that has room for it."""
    text = ", ".join(f"{name}={value}" for name, value in sorted(region.point.config.items()))
    wide = math.log(region.right / region.left) / math.log(max_reuse)
    if text and (region.high - region.low) / tall > 0.035 and wide * 62 > len(text):
        axis.text(
            math.sqrt(region.left * region.right),
            (region.low + region.high) / 2,
            text,
            ha="center",
            va="center",
            fontsize=8,
            color="white",
        )


def reuse_figure(
    frontier: EfficiencyFrontier, target_f1: float, max_reuse: float = 1000.0
) -> Figure:
    """Cost over N at one target: each strategy at its best, and the router below them all."""
    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.6))
    grid = [max_reuse ** (k / 200) for k in range(201)]
    names = dict.fromkeys(p.strategy for p in frontier.routable if p.f1 >= target_f1)
    shown: list[float] = []
    for name in names:
        own = [p for p in frontier.routable if p.strategy == name and p.f1 >= target_f1]
        costs = [min(point.effective(reuse) for point in own) for reuse in grid]
        shown += costs
        axis.plot(grid, costs, lw=1.4, color=palette[name], label=f"always {name}")
    routed = [frontier.cheapest(target_f1, reuse).effective for reuse in grid]
    axis.plot(grid, routed, lw=5, color=_INK, alpha=0.18, label="router", zorder=1)
    for step in frontier.reuse_path(target_f1=target_f1)[1:]:
        if step.reuse_low < max_reuse:
            axis.axvline(step.reuse_low, color=GREY, lw=0.8, ls=":")
            axis.annotate(
                f"N* = {step.reuse_low:.3g}",
                (step.reuse_low, step.point.effective(step.reuse_low)),
                xytext=(5, 12),
                textcoords="offset points",
                fontsize=8.5,
            )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(1, max_reuse)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    plain_log(axis.yaxis, min(shown), max(shown))
    axis.set_xlabel("queries that share a context, N")
    axis.set_ylabel(f"effective {frontier.unit} per query")
    axis.set_title(f"target F1 >= {target_f1:.3f}", loc="left", fontsize=10.5)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
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


def _f1_range(frontier: EfficiencyFrontier) -> tuple[float, float]:
    values = [point.f1 for point in frontier.points]
    margin = max(0.01, 0.08 * (max(values) - min(values)))
    return max(0.0, min(values) - margin), min(1.0, max(values) + margin)


def _cost_axis(axis: Axes, costs: Sequence[float]) -> None:
    axis.set_xscale("log")
    low, high = costs[0], costs[-1]
    room = (high / low) ** 0.06 if high > low else 1.2
    axis.set_xlim(low / room, high * room)
    plain_log(axis.xaxis, low, high)


def plain_log(axis: object, low: float, high: float) -> None:
    """Few round labels on a logarithmic axis, as plain numbers."""
    from matplotlib.axis import Axis
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    assert isinstance(axis, Axis)
    ticks = [
        mantissa * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for mantissa in ((1, 2, 5) if high / low < 300 else (1,))
    ]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
