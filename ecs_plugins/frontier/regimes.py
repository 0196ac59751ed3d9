"""The regimes of Table I and the look-up table: what to choose by F1 and N, at a glance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.hull import non_dominated


@dataclass(frozen=True, slots=True)
class Regime:
    """A range of F1, [``f1_low``, ``f1_high``), and what dominates it.

    Its choices are, per N, of the strategy that is cheapest for the largest part of it, the best
    point in it.
    """

    name: str
    f1_low: float
    f1_high: float
    choices: Mapping[float, StrategyPoint]


@dataclass(frozen=True, slots=True)
class LookUp:
    """A row of the look-up table: up to an F1, the cheapest point for each N."""

    target_f1: float
    choices: Mapping[float, StrategyPoint]


class _Part(NamedTuple):
    """The cells from ``start`` up to ``end``."""

    name: str
    start: int
    end: int


def regimes(points: Sequence[StrategyPoint], reuses: Sequence[float]) -> tuple[Regime, ...]:
    """The regimes of Table I: efficiency-oriented, balanced, high-performance.

    The balanced regime is the range of F1 in which the choice varies with reuse: the thresholds
    of the paper, 0.78 and 0.82, belong to one data set. Where the choice depends on N nowhere,
    there is one regime, called "any".
    """
    tables = {reuse: non_dominated(points, reuse) for reuse in reuses}
    levels = {point.f1 for table in tables.values() for point in table}
    edges = sorted({0.0, 1.0, *levels})
    chosen = {
        reuse: [_standing_for(table, low) for low in edges[:-1]] for reuse, table in tables.items()
    }
    regimes = []
    for part in _parts(chosen):
        cells = edges[part.start : part.end + 1]
        best = {
            reuse: _dominant(row[part.start : part.end], cells) for reuse, row in chosen.items()
        }
        regimes.append(Regime(part.name, cells[0], cells[-1], best))
    return tuple(regimes)


def _standing_for(table: Sequence[StrategyPoint], low: float) -> StrategyPoint:
    """A point stands for the F1 from its own up to that of the next dearer, the first for all."""
    reached = [point for point in table if point.f1 <= low]
    return reached[-1] if reached else table[0]


def _parts(chosen: Mapping[float, Sequence[StrategyPoint]]) -> list[_Part]:
    """The regimes as ranges of cells; empty ones are left out."""
    columns = list(zip(*chosen.values(), strict=True))
    varies = [len({point.strategy for point in column}) > 1 for column in columns]
    if True not in varies:
        return [_Part("any", 0, len(varies))]
    first = varies.index(True)
    last = len(varies) - varies[::-1].index(True)
    parts = [
        _Part("efficiency-oriented", 0, first),
        _Part("balanced", first, last),
        _Part("high-performance", last, len(varies)),
    ]
    return [part for part in parts if part.start < part.end]


def _dominant(points: Sequence[StrategyPoint], edges: Sequence[float]) -> StrategyPoint:
    """Of the strategy that is chosen for the largest part, the best point."""
    width: dict[str, float] = defaultdict(float)
    for point, (low, high) in zip(points, pairwise(edges), strict=True):
        width[point.strategy] += high - low
    widest = max(width, key=lambda name: width[name])
    return next(point for point in reversed(points) if point.strategy == widest)


def look_up(points: Sequence[StrategyPoint], reuses: Sequence[float]) -> tuple[LookUp, ...]:
    """The cheapest point for each N, for every F1 that is reached, by rising F1."""
    rows = []
    for level in sorted({point.f1 for point in points}):
        able = [point for point in points if point.f1 >= level]
        choices = {}
        for reuse in reuses:
            choices[reuse] = min(able, key=lambda point: (point.effective(reuse), -point.f1))
        rows.append(LookUp(level, choices))
    return tuple(rows)
