"""Discrete guidance: the cheapest strategy per target F1, and the regimes of Table I.

The balanced regime is the range of targets in which the choice varies with reuse. The paper's
thresholds, 0.78 and 0.82, belong to one data set, so here they are found by that property.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.hull import Span, non_dominated
from ecs_plugins.frontier.points import StrategyPoint

_Table = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Regime:
    """A range of target F1, (``f1_low``, ``f1_high``], and what dominates it.

    Attributes:
        name: As in the paper; "any" where there is only one.
        choices: Per N, of the strategy that is cheapest for the largest part of the regime's
            targets, the best point in it.
    """

    name: str
    f1_low: float
    f1_high: float
    choices: Mapping[float, StrategyPoint]


def lookup_table(frontier: EfficiencyFrontier, reuse: float) -> _Table:
    """The cheapest point at N = ``reuse`` per target F1, without gaps from 0 to the best F1.

    A point is the choice for the targets in (``low``, ``high``].
    """
    points = non_dominated(frontier.routable, reuse)
    edges = pairwise([0.0, *(point.f1 for point in points)])
    return tuple(Span(point, *edge) for point, edge in zip(points, edges, strict=True))


def regimes(
    frontier: EfficiencyFrontier, reuses: Sequence[float] = (1, 10, 100)
) -> tuple[Regime, ...]:
    """The regimes of Table I: efficiency-oriented, balanced, high-performance.

    Where the choice depends on N nowhere, there is one regime, called "any".

    Args:
        frontier: What was measured.
        reuses: The N to compare.
    """
    tables = {reuse: lookup_table(frontier, reuse) for reuse in reuses}
    ends = sorted({0.0, *(span.high for table in tables.values() for span in table)})
    varying = [edge for edge in pairwise(ends) if _varies(tables.values(), sum(edge) / 2)]
    named = [("any", (0.0, ends[-1]))]
    if varying:
        names = ("efficiency-oriented", "balanced", "high-performance")
        edges = pairwise((0.0, varying[0][0], varying[-1][1], ends[-1]))
        named = list(zip(names, edges, strict=True))
    return tuple(
        Regime(name, low, high, {n: _dominant(table, low, high) for n, table in tables.items()})
        for name, (low, high) in named
        if high > low or not ends[-1]
    )


def _varies(tables: Iterable[_Table], target: float) -> bool:
    """Whether the cheapest strategy for a target depends on N."""
    chosen = (next(span for span in table if target <= span.high) for table in tables)
    return len({span.point.strategy for span in chosen}) > 1


def _dominant(table: _Table, low: float, high: float) -> StrategyPoint:
    if high == low:  # every F1 is 0
        return table[0].point
    width: dict[str, float] = {}
    best: dict[str, StrategyPoint] = {}
    for span in table:
        part = min(span.high, high) - max(span.low, low)
        if part > 0:
            name = span.point.strategy
            width[name] = width.get(name, 0.0) + part
            best[name] = span.point
    return best[max(width, key=lambda name: width[name])]
