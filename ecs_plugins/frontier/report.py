"""Report of a frontier: one self-contained page with tables and figures.

The figures are the paper's Figures 1 and 2, a decision map, and cost over reuse. Every line and
region comes from the closed forms, not from a grid: paths over w are envelopes, regions of the map
are the exact intervals of N per target.

The page loads no font, script, style or image: it can be mailed, archived and opened offline.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ecs_plugins.common.files import write_atomically
from ecs_plugins.common.rendering import rendered
from ecs_plugins.errors import InvalidInputError, MissingExtraError
from ecs_plugins.frontier.cost import StrategyPoint, amount, check_reuse
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.hull import non_dominated, weight_spans
from ecs_plugins.frontier.measurements import Array

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


POINT_COLUMNS = ("strategy", "F1", "95 % interval", "stage 1", "stage 2")

_CAPTIONS = {
    "strategies": "Each strategy: all configurations, non-dominated (dashed), optimal (solid)",
    "frontier": "The global frontier: optimal choices as w rises",
    "map": "The cheapest strategy by reuse and target F1",
    "reuse": "Cost over reuse: the router against always the same",
}
# Okabe and Ito: told apart with every kind of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7A5195", "#8C8C00")
GREY = "#9a9a9a"
_MOST_REUSE = 1000.0  # the end of the axis of N


def write_report(
    frontier: EfficiencyFrontier,
    directory: str | os.PathLike[str],
    *,
    reuses: Sequence[float] = (1, 10, 100),
    target_f1: float | None = None,
) -> Path:
    """Write ``frontier.html``, one page with four figures, and return its path.

    ``reuses`` are the N that figures and tables compare; ``target_f1`` is that of the figure of
    cost over reuse, by default the one at which reuse saves the most.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InvalidInputError: No N, or one that is below 1 or infinite.
        UnreachableTargetError: Nothing reaches ``target_f1``.
        StorageError: A file cannot be written.
    """
    distinct = {check_reuse(reuse) for reuse in reuses}
    reuses = sorted(distinct)
    if not reuses or math.isinf(reuses[-1]):
        raise InvalidInputError("a report compares one N or more, each finite; give 1,10,100")
    if target_f1 is None:
        target_f1 = _telling_target(frontier, reuses)
    frontier.reaching(target_f1)
    drawn = {
        "strategies": strategy_figure(frontier, reuses),
        "frontier": global_figure(frontier, reuses),
        "map": map_figure(frontier),
        "reuse": reuse_figure(frontier, target_f1),
    }
    figures = {_CAPTIONS[name]: _svg(figure, name) for name, figure in drawn.items()}
    html = _page(frontier, figures, reuses)
    return write_atomically(Path(directory) / "frontier.html", html)


def _telling_target(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> float:
    """Return the F1 at which reuse saves the most.

    Of equals the highest: there the alternatives are the dearest.
    """

    def saved(level: float) -> float:
        rarely = frontier.decide(reuse=reuses[0], target_f1=level)
        often = frontier.decide(reuse=reuses[-1], target_f1=level)
        return rarely.effective / often.effective

    levels = {point.f1 for point in frontier.routable}
    falling = sorted(levels, reverse=True)
    return max(falling, key=saved)


def _svg(figure: Figure, name: str) -> str:
    """Return a figure as SVG, its ids made unique, as all figures share one page.

    The same figure gives the same text.
    """
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a name may hold dollar signs
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "ecs_plugins"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    element = svg[svg.index("<svg") :]
    for mark in ('id="', "url(#", 'href="#'):
        element = element.replace(mark, f"{mark}{name}-")
    return element


def _page(frontier: EfficiencyFrontier, figures: Mapping[str, str], reuses: Sequence[float]) -> str:
    sure = frontier.measurements is not None
    title = f"Efficiency Frontier {frontier.provenance.data}"
    transitions = {}
    for reuse in reuses:
        transitions[reuse] = frontier.transitions(reuse, intervals=sure)
    return rendered(
        "frontier.html.j2",
        title.strip(),
        frontier=frontier,
        figures=figures,
        reuses=reuses,
        amount=amount,
        regimes=frontier.regimes(reuses),
        transitions=transitions,
        columns=POINT_COLUMNS,
        points=point_rows(frontier, reuses),
    )


def point_rows(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> Iterator[list[str]]:
    """Yield per point the cells of `POINT_COLUMNS` and the cost at each N, best F1 first."""
    for point in sorted(frontier.points, key=lambda p: -p.f1):
        name = point.label
        if not point.routable:
            name += " (upper bound)"
        cells = [name, f"{point.f1:.3f}", str(frontier.f1_interval(point))]
        effective = [point.effective(reuse) for reuse in reuses]
        costs = [point.stage1, point.stage2, *effective]
        yield cells + [_cost_cell(cost) for cost in costs]


def _cost_cell(cost: float) -> str:
    if cost >= 100 or cost == 0:
        return f"{cost:,.0f}"
    return f"{cost:.4g}"


# Figures.


def colours(frontier: EfficiencyFrontier) -> dict[str, str]:
    """Return the colour of each strategy; strategies that are not routed are grey."""
    palette = {point.strategy: GREY for point in frontier.points}
    names = dict.fromkeys(point.strategy for point in frontier.routable)
    return palette | dict(zip(names, cycle(_COLOURS), strict=False))


def strategy_figure(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> Figure:
    """Draw Figure 1: per strategy all points, the non-dominated ones and the path over w."""
    palette = colours(frontier)
    columns = min(3, len(palette))
    rows = math.ceil(len(palette) / columns)
    figure, axes = new_figure(rows, columns, (3.5 * columns, 2.7 * rows + 0.4))
    for axis, (name, colour) in zip(axes, palette.items(), strict=False):
        own = [point for point in frontier.points if point.strategy == name]
        shown = reuses if any(point.stage1 > 0 for point in own) else reuses[:1]
        for index, reuse in enumerate(shown):
            strength = 0.35 + 0.65 * (index + 1) / len(shown)
            style = {"color": colour, "alpha": strength}
            path = [span.point for span in weight_spans(own, reuse)]
            _plot(axis, own, reuse, color=colour, alpha=0.4 * strength, marker=".", ls="")
            _plot(axis, non_dominated(own, reuse), reuse, **style, ls=(0, (3, 2)), lw=1.0)
            _plot(axis, path, reuse, **style, marker="o", ms=5, lw=2.0)
        title = name if own[0].routable else f"{name} (upper bound)"
        if len(shown) > 1:
            values = ", ".join(f"{reuse:g}" for reuse in reuses)
            title += f" (light to dark: N = {values})"
        axis.set_title(title, loc="left", color=colour, fontsize=9, fontweight="bold")
        _axes_of_points(axis, frontier, reuses)
    for axis in axes[len(palette) :]:
        axis.set_visible(False)
    return figure


def global_figure(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> Figure:
    """Draw Figure 2: the path of optimal choices over w, one curve per N; F1 with its interval."""
    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.8))
    for point in frontier.points:
        colour = palette[point.strategy]
        _plot(axis, [point], reuses[0], marker="o", ms=4, color=colour, alpha=0.3)
    named: set[str] = set()
    lines: dict[str, Artist] = {}
    dots: dict[str, Artist] = {}
    for index, reuse in enumerate(reuses):
        rank = index / max(1, len(reuses) - 1)
        path = [span.point for span in frontier.envelope(reuse)]
        style = {"color": str(0.75 - 0.6 * rank), "lw": 1.2 + 1.2 * rank}
        lines[f"N = {reuse:g}"] = _plot(axis, path, reuse, **style, zorder=2)
        for point in path:
            colour = palette[point.strategy]
            cost = point.effective(reuse)
            interval = frontier.f1_interval(point)
            style = {"marker": "o", "ms": 7, "mec": "w", "ls": "", "color": colour}
            dots[point.strategy] = _plot(axis, [point], reuse, **style)
            axis.vlines(cost, interval.low, interval.high, colour, alpha=0.4, lw=1.0)
            if point.label not in named:
                named.add(point.label)
                _note(axis, point.label, (cost, point.f1), (5, -9), fontsize=7)
    _axes_of_points(axis, frontier, reuses)
    _legend(axis, lines | dots)
    return figure


def _note(
    axis: Axes, text: str, place: tuple[float, float], off: tuple[int, int], **style: Any
) -> None:
    axis.annotate(text, place, xytext=off, textcoords="offset points", **style)


def _plot(axis: Axes, points: Sequence[StrategyPoint], reuse: float, **style: Any) -> Artist:
    costs = [point.effective(reuse) for point in points]
    levels = [point.f1 for point in points]
    (line,) = axis.plot(costs, levels, **style)
    return line


def _axes_of_points(axis: Axes, frontier: EfficiencyFrontier, reuses: Sequence[float]) -> None:
    """Set cost on a logarithmic axis and F1 on the other, with room for every point at every N."""
    intervals = [frontier.f1_interval(point) for point in frontier.points]
    bottom = min(interval.low for interval in intervals)
    top = max(interval.high for interval in intervals)
    margin = max(0.01, 0.08 * (top - bottom))
    axis.set_ylim(max(0.0, bottom - margin), min(1.0, top + margin))
    costs = [point.effective(reuse) for reuse in reuses for point in frontier.points]
    low, high = min(costs), max(costs)
    room = (high / low) ** 0.06 if high > low else 1.2
    axis.set_xscale("log")
    axis.set_xlim(low / room, high * room)
    plain_log(axis.xaxis, low, high)
    axis.set_xlabel(f"effective {frontier.unit} per query")
    axis.set_ylabel("F1")


def _legend(axis: Axes, shown: Mapping[str, Artist]) -> None:
    axis.legend(
        [*shown.values()],
        [*shown],
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
    )


def _reuse_axis(axis: Axes) -> None:
    axis.set_xscale("log")
    axis.set_xlim(1, _MOST_REUSE)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("queries that share a context, N")


def map_figure(frontier: EfficiencyFrontier) -> Figure:
    """Return the decision map: the cheapest strategy for every reuse N and target F1."""
    from matplotlib.patches import Rectangle

    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.8))
    levels = sorted({point.f1 for point in frontier.routable})
    rise = max(levels[-1] - levels[0], 0.02)
    bottom = max(0.0, levels[0] - 0.15 * rise)
    # Where every F1 is 0, any target that can be asked for is 0: a strip shows the choice.
    top = max(levels[-1], bottom + 0.01)
    shown: dict[str, Artist] = {}
    for low, level in pairwise([bottom, *levels]):
        height = (level if levels[-1] else top) - low
        for span in frontier.reuse_path(target_f1=level):
            if span.low < _MOST_REUSE:
                width = min(span.high, _MOST_REUSE) - span.low
                # Edges of its own colour: neighbours of one colour are one area.
                colour = palette[span.point.strategy]
                area = Rectangle((span.low, low), width, height, fc=colour, ec=colour, lw=0.3)
                shown[span.point.strategy] = axis.add_patch(area)
    _reuse_axis(axis)
    axis.set_ylim(bottom, top)
    axis.set_ylabel("target F1")
    axis.grid(visible=False)
    _legend(axis, shown)
    return figure


def reuse_figure(frontier: EfficiencyFrontier, target_f1: float) -> Figure:
    """Draw cost over N at one target: each strategy at its best, and the router below them all."""
    palette = colours(frontier)
    figure, (axis,) = new_figure(1, 1, (8.0, 4.6))
    grid = np.geomspace(1, _MOST_REUSE, 201)
    costs: dict[str, Array] = {}
    for point in frontier.reaching(target_f1):
        effective = point.stage2 + point.stage1 / grid
        least = costs.get(point.strategy, effective)
        costs[point.strategy] = np.minimum(least, effective)
    lines: dict[str, Artist] = {}
    for name, cost in costs.items():
        (line,) = axis.plot(grid, cost, lw=1.4, color=palette[name])
        lines[f"always {name}"] = line
    routed = np.min([*costs.values()], axis=0)
    (line,) = axis.plot(grid, routed, lw=5, color="#222222", alpha=0.18, zorder=1)
    lines["router"] = line
    _, *later = frontier.reuse_path(target_f1=target_f1)
    for span in later:
        if span.low < _MOST_REUSE:
            axis.axvline(span.low, color=GREY, lw=0.8, ls=":")
            place = (span.low, span.point.effective(span.low))
            _note(axis, f"N* = {span.low:.3g}", place, (5, 12))
    _reuse_axis(axis)
    axis.set_yscale("log")
    plain_log(axis.yaxis, routed.min(), np.max([*costs.values()]))
    axis.set_ylabel(f"effective {frontier.unit} per query")
    axis.set_title(f"target F1 >= {target_f1:.3f}", loc="left", fontsize=10.5)
    _legend(axis, lines)
    return figure


def new_figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Return empty axes, row by row, in the style of all figures.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("A frontier report", "matplotlib") from error
    with matplotlib.rc_context(fname=Path(__file__).with_suffix(".mplstyle")):
        # No pyplot: its global state is neither thread-safe nor needed.
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def plain_log(axis: Axis, low: float, high: float) -> None:
    """Put few round labels on a logarithmic axis, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    steps = (1, 2, 5) if high / low < 300 else (1,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,.6g}")
