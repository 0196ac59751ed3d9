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

from ecs_plugins.frontier.cost import StrategyPoint, check_reuse


def upper_envelope(
    slopes: Sequence[float], intercepts: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Return the line that is the highest for each t >= 0.

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


def cheapest_lines(lines: Sequence[tuple[float, float]]) -> list[tuple[int, float, float]]:
    """Return which of some lines are cheapest for which N >= 1, by rising N.

    Each (stage 1, stage 2) costs ``stage 2 + stage 1 / N``, a line in 1 / N (Eq. 1).

    Returns:
        (index of the line, least N, largest N).
    """
    chain, starts = upper_envelope([-once for once, _ in lines], [-rate for _, rate in lines])
    # Starts are in 1 / N, from N without end down to N = 1.
    edges = [math.inf if start == 0 else 1 / start for start in starts if start < 1]
    spans = zip(chain, pairwise([*edges, 1.0]), strict=False)
    return [(index, low, high) for index, (high, low) in spans][::-1]


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
    columns = list(zip(*chosen.values(), strict=True))
    regimes = []
    for name, start, end in _bands(columns):
        if start < end:
            cells = edges[start : end + 1]
            best = {reuse: _dominant(row[start:end], cells) for reuse, row in chosen.items()}
            regimes.append(Regime(name, cells[0], cells[-1], best))
    return tuple(regimes)


def _bands(columns: Sequence[Sequence[StrategyPoint]]) -> list[tuple[str, int, int]]:
    """Return the name of each regime, its first cell, and one past its last."""
    strategies = [{point.strategy for point in column} for column in columns]
    varying = [cell for cell, names in enumerate(strategies) if len(names) > 1]
    if not varying:
        return [("any", 0, len(columns))]
    first, last = varying[0], varying[-1] + 1
    lower = [("efficiency-oriented", 0, first), ("balanced", first, last)]
    return [*lower, ("high-performance", last, len(columns))]


def _reaching(table: Sequence[StrategyPoint], low: float) -> StrategyPoint:
    """Return the cheapest point that reaches an F1; the best one where none does."""
    return next((point for point in table if point.f1 >= low), table[-1])


def _dominant(points: Sequence[StrategyPoint], edges: Sequence[float]) -> StrategyPoint:
    """Return the best point of the strategy that is chosen most often."""
    width: dict[str, float] = defaultdict(float)
    for point, (low, high) in zip(points, pairwise(edges), strict=True):
        width[point.strategy] += high - low
    widest = max(width, key=lambda name: width[name])
    return next(point for point in reversed(points) if point.strategy == widest)
