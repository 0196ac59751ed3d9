"""The figure of a simulated deployment: each policy over the offline optimum, by reuse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.deployment.simulation import PolicyCost
from ecs_plugins.frontier.report import GREY, new_figure, plain_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROUTER, _FIXED = "#0072B2", "#D55E00"
_COLUMNS = 3


def deployment_figure(results: Mapping[str, Sequence[PolicyCost]]) -> Figure:
    """A panel per kind of reuse: cost over that of the offline optimum, on a log axis.

    Routers are blue, fixed strategies orange; what misses the target is grey and hollow, for it
    is no alternative.

    Args:
        results: Kind -> policies, as `simulate_deployment` gives them.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    # One order for all panels; a strategy may be fixed in another configuration in each.
    names = list(dict.fromkeys(_short(cost.name) for costs in results.values() for cost in costs))
    rows = math.ceil(len(results) / _COLUMNS)
    size = (3.3 * _COLUMNS + 1.6, rows * (0.9 + 0.21 * len(names)))
    figure, axes = new_figure(rows, _COLUMNS, size)
    every = [cost.over_optimum for costs in results.values() for cost in costs]
    for index, (axis, (kind, costs)) in enumerate(zip(axes, results.items(), strict=False)):
        _panel(axis, kind, costs, names)
        room = (max(every) / min(every)) ** 0.06
        axis.set_xscale("log")
        axis.set_xlim(min(every) / room, max(every) * room)
        plain_log(axis.xaxis, min(every), max(every))
        if index % _COLUMNS:
            axis.set_yticklabels([])
        if index + _COLUMNS >= len(results):
            axis.set_xlabel("cost over the offline optimum")
    for axis in axes[len(results) :]:
        axis.set_visible(False)
    return figure


def _panel(axis: Axes, kind: str, costs: Sequence[PolicyCost], names: Sequence[str]) -> None:
    for cost in costs:
        place = len(names) - 1 - names.index(_short(cost.name))
        fixed = cost.name.startswith("always ")
        colour = (_FIXED if fixed else _ROUTER) if cost.reaches_target else GREY
        axis.plot([1.0, cost.over_optimum], [place, place], color=colour, lw=1.0, alpha=0.5)
        face = colour if cost.reaches_target else "white"
        axis.plot([cost.over_optimum], [place], marker="o", ms=6, mec=colour, mfc=face)
    axis.axvline(1.0, color="#222222", lw=0.8)
    axis.set_yticks(range(len(names)), names[::-1])
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.set_title(kind, loc="left", fontsize=10.5, fontweight="bold")


def _short(name: str) -> str:
    return name.partition("(")[0]
