"""The geometry and its tables, exact: upper envelopes of lines, non-dominated sets, regimes.

With ``t = w / (1 - w)`` the score of Eq. 2 orders points as ``t * F1 - ln T`` does: a line in
t per point, so the best point for every w is the upper envelope of n lines. For a fixed
quality the cost ``T2 + x * T1`` is a line in ``x = 1 / N``: an envelope, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ecs_plugins.frontier.cost import PointKey, StrategyPoint, check_reuse, check_weight

_LARGEST_EXPONENT = 600.0


def upper_envelope(
    slopes: Sequence[float], intercepts: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Which line is the highest for each t >= 0.

    Of equal lines the first is kept; a line that only touches the envelope in one point is
    left out, and where several are highest at t = 0, so are all but the steepest.

    Returns:
        Indices of the lines from t = 0 on, and where each begins: ``starts[0]`` is 0.0 and
        the rest rise strictly.
    """

    def rising(line: int) -> tuple[float, float]:
        return slopes[line], -intercepts[line]

    chain: list[int] = []
    starts: list[float] = []
    for line in sorted(range(len(slopes)), key=rising):
        if chain and slopes[chain[-1]] == slopes[line]:
            continue
        start = 0.0
        while chain:
            top = chain[-1]
            gap = intercepts[top] - intercepts[line]
            start = gap / (slopes[line] - slopes[top])
            if start > starts[-1]:
                break
            chain.pop()
            starts.pop()
        if not chain:
            start = 0.0
        if math.isfinite(start):
            chain.append(line)
            starts.append(start)
    return chain, starts


def non_dominated(points: Sequence[StrategyPoint], reuse: float) -> tuple[StrategyPoint, ...]:
    """Return the points that no other beats at N = ``reuse``, by rising cost and rising F1.

    Of identical points the first is kept.
    """
    kept: list[StrategyPoint] = []
    for point in sorted(points, key=lambda p: (p.effective(reuse), -p.f1)):
        if not kept or point.f1 > kept[-1].f1:
            kept.append(point)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Span:
    """A point, and the range of w, of N or of target F1 in which it is the choice."""

    point: StrategyPoint
    low: float
    high: float


def weight_spans(points: Sequence[StrategyPoint], reuse: float) -> tuple[Span, ...]:
    """Return the best point for every w in [0, 1] at N = ``reuse``, by rising w."""
    check_reuse(reuse)
    levels = [point.f1 for point in points]
    savings = [-math.log(point.effective(reuse)) for point in points]
    chain, starts = upper_envelope(levels, savings)
    weights = [t / (1 + t) for t in starts]
    spans = []
    for index, (low, high) in zip(chain, pairwise([*weights, 1.0]), strict=True):
        span = Span(points[index], low, high)
        spans.append(span)
    return tuple(spans)


def reuse_spans(points: Sequence[StrategyPoint], weight: float | None = None) -> tuple[Span, ...]:
    """Return ranges of N >= 1 with the best point of each range.

    The best point has the highest score at ``weight``, or the lowest cost without a weight.
    """
    factors = _factors(points, weight)
    scaled = []
    once = []
    per_query = []
    for point in points:
        factor = factors.get(point.key)
        if factor is not None:
            scaled.append(point)
            once.append(-factor * point.stage1)
            per_query.append(-factor * point.stage2)
    chain, starts = upper_envelope(once, per_query)
    # Starts are in 1 / N, from N without end down to N = 1.
    edges = [math.inf if start == 0 else 1 / start for start in starts if start < 1]
    spans = []
    for index, (high, low) in zip(chain, pairwise([*edges, 1.0]), strict=False):
        span = Span(scaled[index], low, high)
        spans.append(span)
    spans.reverse()
    return tuple(spans)


def _factors(points: Sequence[StrategyPoint], weight: float | None) -> dict[PointKey, float]:
    """Return the factors of the costs for which the lowest product has the best score.

    At a fixed w that is ``exp(t * (top - F1))``. Points that are too far below the best have none.
    """
    odds = 0.0
    if weight is not None:
        w = check_weight(weight)
        odds = math.inf
        if w < 1:
            odds = w / (1 - w)
    top = max(point.f1 for point in points)
    factors = {}
    for point in points:
        gap = 0.0
        if point.f1 < top:
            gap = odds * (top - point.f1)
        if gap < _LARGEST_EXPONENT:
            factors[point.key] = math.exp(gap)
    return factors


# Tables.


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
