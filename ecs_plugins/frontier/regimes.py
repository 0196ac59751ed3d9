"""Regimes of Table I, and the table of the best choice by F1 and N."""

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
    """Range of F1, [``f1_low``, ``f1_high``), with its dominant strategy.

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
    """Return the regimes of Table I: efficiency-oriented, balanced, high-performance.

    The balanced regime is the range of F1 in which the choice varies with reuse: the thresholds
    of the paper, 0.78 and 0.82, belong to one data set. Where the choice depends on N nowhere,
    there is one regime, called "any".
    """
    tables = {reuse: non_dominated(points, reuse) for reuse in reuses}
    levels = {0.0, 1.0}
    for table in tables.values():
        levels.update(point.f1 for point in table)
    edges = sorted(levels)
    chosen = {}
    for reuse, table in tables.items():
        chosen[reuse] = [_reaching(table, low) for low in edges[:-1]]
    regimes = []
    for part in _parts(chosen):
        cells = edges[part.start : part.end + 1]
        best = {}
        for reuse, row in chosen.items():
            own = row[part.start : part.end]
            best[reuse] = _dominant(own, cells)
        regime = Regime(part.name, cells[0], cells[-1], best)
        regimes.append(regime)
    return tuple(regimes)


def _reaching(table: Sequence[StrategyPoint], low: float) -> StrategyPoint:
    """Return the cheapest point that reaches an F1; the best one where none does."""
    return next((point for point in table if point.f1 >= low), table[-1])


def _parts(chosen: Mapping[float, Sequence[StrategyPoint]]) -> list[_Part]:
    """Return the regimes as ranges of cells; empty ones are left out."""
    varying = []
    cells = 0
    for column in zip(*chosen.values(), strict=True):
        strategies = {point.strategy for point in column}
        if len(strategies) > 1:
            varying.append(cells)
        cells += 1
    if not varying:
        return [_Part("any", 0, cells)]
    first = varying[0]
    last = varying[-1] + 1
    parts = [
        _Part("efficiency-oriented", 0, first),
        _Part("balanced", first, last),
        _Part("high-performance", last, cells),
    ]
    return [part for part in parts if part.start < part.end]


def _dominant(points: Sequence[StrategyPoint], edges: Sequence[float]) -> StrategyPoint:
    """Return the best point of the strategy that is chosen most often."""
    width: dict[str, float] = defaultdict(float)
    for point, (low, high) in zip(points, pairwise(edges), strict=True):
        width[point.strategy] += high - low
    widest = max(width, key=lambda name: width[name])
    return next(point for point in reversed(points) if point.strategy == widest)


def look_up(points: Sequence[StrategyPoint], reuses: Sequence[float]) -> tuple[LookUp, ...]:
    """Return the cheapest point for each N, for every F1 that is reached, by rising F1."""
    rows = []
    levels = {point.f1 for point in points}
    for level in sorted(levels):
        able = [point for point in points if point.f1 >= level]
        choices = {}
        for reuse in reuses:
            first, *_ = non_dominated(able, reuse)
            choices[reuse] = first
        row = LookUp(level, choices)
        rows.append(row)
    return tuple(rows)
