"""The search behind a decision: which point is best for a target, a budget or a weight at one N.

Linear in the points and made for every query, so it works on plain tuples. With nothing prepared,
only points that no other beats for every N are looked at; the answer is always among them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ecs_plugins.frontier.hull import dominated_for_every_reuse
from ecs_plugins.frontier.points import PointKey, StrategyPoint

_Row = tuple[float, float, float, StrategyPoint]
Ready = frozenset[PointKey]
"""Keys of the points whose stage 1 is sunk."""


class Chooser:
    """The points by rising F1.

    Args:
        points: What may be chosen; at least one.
    """

    def __init__(self, points: Sequence[StrategyPoint]) -> None:
        triples = [(point.f1, point.stage1, point.stage2) for point in points]

        def beaten(own: tuple[float, float, float]) -> bool:
            return any(other != own and dominated_for_every_reuse(own, other) for other in triples)

        pairs = zip(points, triples, strict=True)
        self._useful = _rows_of(point for point, triple in pairs if not beaten(triple))
        self._all = _rows_of(points)

    def cheapest(
        self, target_f1: float, reuse: float, ready: Ready
    ) -> tuple[StrategyPoint | None, float]:
        """The cheapest point with that F1 and its cost per query; of equals the better."""
        rows = self._at(ready)
        lowest, chosen = math.inf, None
        for f1, one, two, point in rows[bisect_left(rows, target_f1, key=_f1_of) :]:
            cost = two + one / reuse
            # Rows rise in F1, so of equal costs the later is at least as good.
            if cost < lowest or (cost == lowest and chosen is not None and f1 > chosen.f1):
                lowest, chosen = cost, point
        return chosen, lowest

    def within(
        self, budget: float, reuse: float, ready: Ready
    ) -> tuple[StrategyPoint | None, float]:
        """The best point within a cost per query and its cost; else the lowest cost there is."""
        best, price, lowest, chosen = -1.0, 0.0, math.inf, None
        for f1, one, two, point in self._at(ready):
            cost = two + one / reuse
            lowest = min(lowest, cost)
            if cost <= budget and (f1 > best or (f1 == best and cost < price)):
                best, price, chosen = f1, cost, point
        return chosen, lowest if chosen is None else price

    def best(self, weight: float, reuse: float, ready: Ready) -> tuple[StrategyPoint, float]:
        """The point of the highest efficiency score (Eq. 2) and its cost; of equals the cheaper."""
        best, price, chosen = -math.inf, 0.0, None
        rest, log = 1 - weight, math.log
        for f1, one, two, point in self._at(ready):
            cost = two + one / reuse
            score = weight * f1 - rest * log(cost)
            if score > best or (score == best and cost < price):
                best, price, chosen = score, cost, point
        assert chosen is not None
        return chosen, price

    def dominator(self, point: StrategyPoint, reuse: float, ready: Ready) -> StrategyPoint | None:
        """The cheapest point that dominates another one at N, if one does."""
        cost = point.effective(reuse, sunk=point.key in ready)
        found = None
        lowest = math.inf
        for f1, _, _, other in self._all:
            if other.key == point.key or f1 < point.f1:
                continue
            own = other.effective(reuse, sunk=other.key in ready)
            if own <= cost and (own < cost or f1 > point.f1) and own < lowest:
                found, lowest = other, own
        return found

    def _at(self, ready: Ready) -> list[_Row]:
        if not ready:
            return self._useful
        # A prepared point may win although it would not pay to prepare it.
        return [(f1, 0.0 if p.key in ready else one, two, p) for f1, one, two, p in self._all]


def _rows_of(points: Iterable[StrategyPoint]) -> list[_Row]:
    rows = [(point.f1, point.stage1, point.stage2, point) for point in points]
    return sorted(rows, key=_f1_of)


def _f1_of(row: _Row) -> float:
    return row[0]
