"""Discrete guidance: the cheapest strategy per target F1, and the regimes of Table I.

The paper calls the balanced regime the range of targets in which the choice varies with reuse;
below it lightweight retrieval always wins, above it full context. Its thresholds, 0.78 and
0.82, belong to one data set and model, so here they are found by that property.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.points import StrategyPoint


@dataclass(frozen=True, slots=True)
class TargetBand:
    """Targets in (``f1_low``, ``f1_high``] and the cheapest point that reaches them."""

    f1_low: float
    f1_high: float
    point: StrategyPoint
    effective: float


@dataclass(frozen=True, slots=True)
class RegimeChoice:
    """What dominates a regime at one N.

    Attributes:
        point: Of the strategy that is cheapest for the largest part of the regime's targets, the
            best point in it.
        share: That part, in [0, 1].
        effective: The cost of the point at N.
    """

    point: StrategyPoint
    share: float
    effective: float


@dataclass(frozen=True, slots=True)
class Regime:
    """A range of target F1, (``f1_low``, ``f1_high``], and its dominant strategy per N."""

    name: str
    f1_low: float
    f1_high: float
    choices: Mapping[float, RegimeChoice]


def lookup_table(frontier: EfficiencyFrontier, reuse: float) -> tuple[TargetBand, ...]:
    """Target F1 -> minimum cost at N = ``reuse``, without gaps from 0 to the best F1."""
    bands = []
    low = 0.0
    for point in frontier.non_dominated(reuse):
        bands.append(TargetBand(low, point.f1, point, point.effective(reuse)))
        low = point.f1
    return tuple(bands)


def _varying_range(
    frontier: EfficiencyFrontier, reuses: Sequence[float]
) -> tuple[float, float] | None:
    """The targets from the first to the last at which the cheapest strategy depends on N."""
    tables = [lookup_table(frontier, reuse) for reuse in reuses]
    edges = sorted({band.f1_high for table in tables for band in table})
    low: float | None = None
    high = previous = 0.0
    for edge in edges:
        middle = (previous + edge) / 2
        if len({_at(table, middle).point.strategy for table in tables}) > 1:
            low = previous if low is None else low
            high = edge
        previous = edge
    return None if low is None else (low, high)


def regimes(
    frontier: EfficiencyFrontier, reuses: Sequence[float] = (1, 10, 100)
) -> tuple[Regime, ...]:
    """The regimes of Table I: efficiency-oriented, balanced, high-performance.

    Where the choice depends on N nowhere, there is one regime, called "any".

    Args:
        frontier: What was measured.
        reuses: The N to compare.
    """
    top = max(point.f1 for point in frontier.routable)
    balanced = _varying_range(frontier, reuses)
    if balanced is None:
        return (_regime(frontier, "any", 0.0, top, reuses),)
    edges = pairwise((0.0, *balanced, top))
    named = zip(("efficiency-oriented", "balanced", "high-performance"), edges, strict=True)
    return tuple(
        _regime(frontier, name, low, high, reuses) for name, (low, high) in named if high > low
    )


def _at(table: Sequence[TargetBand], target: float) -> TargetBand:
    return next(band for band in table if target <= band.f1_high)


def _regime(
    frontier: EfficiencyFrontier, name: str, low: float, high: float, reuses: Sequence[float]
) -> Regime:
    choices = {}
    for reuse in reuses:
        width: dict[str, float] = {}
        last: dict[str, TargetBand] = {}
        for band in lookup_table(frontier, reuse):
            part = min(band.f1_high, high) - max(band.f1_low, low)
            if part > 0:
                strategy = band.point.strategy
                width[strategy] = width.get(strategy, 0.0) + part
                last[strategy] = band
        strategy = max(width, key=lambda key: width[key])
        share, band = width[strategy] / sum(width.values()), last[strategy]
        choices[reuse] = RegimeChoice(band.point, share, band.effective)
    return Regime(name, low, high, choices)
