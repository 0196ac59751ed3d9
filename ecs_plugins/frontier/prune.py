"""Stage 1 of the optimisation: which configurations of a strategy are optimal somewhere.

Eq. 3 of The Efficiency Frontier keeps a configuration if some w makes it the best of its
strategy. Here reuse is free, too: kept is what is optimal for some (w, N) with N >= 1. What is
dropped can then never be chosen, whatever is asked later.

A point p is the best at ``t = w / (1 - w)`` and ``x = 1 / N`` if no worse point a asks for a
larger t than some better point b allows. For a pair (a, b) that is ``h(x) >= 0`` with

    h(x) = ln(T_b / T_p) / (F_b - F_p) - ln(T_p / T_a) / (F_p - F_a),   T(x) = T2 + x T1

a weighted sum of logarithms of lines, whose derivative has a quadratic numerator: between at
most two stationary points h is monotone, so its roots are found by bisection, none missed. The
best x of p, if p has one, lies at x = 0, at x = 1 or at such a root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from ecs_plugins.frontier.hull import dominated_for_every_reuse, upper_envelope

Triple = tuple[float, float, float]
"""(f1, stage1, stage2)."""

_TOLERANCE = 1e-12
_PROBES = (*(1 / 2**k for k in range(12)), 0.0)


def optimal_somewhere(points: Sequence[Triple]) -> list[int]:
    """Indices of the points that are optimal for some w in [0, 1] and some real N >= 1.

    Of points that are equal in quality and cost the first is kept. Where optimality is a mere
    tie in a single (w, N), to within rounding, the point may be kept.
    """
    alive = [i for i in range(len(points)) if not _beaten(points, i)]
    sure: set[int] = set()
    for x in _PROBES:
        slopes = [points[i][0] for i in alive]
        intercepts = [-math.log(points[i][2] + x * points[i][1]) for i in alive]
        sure.update(alive[k] for k in upper_envelope(slopes, intercepts)[0])
    return [i for i in alive if i in sure or _wins([points[j] for j in alive if j != i], points[i])]


def _beaten(points: Sequence[Triple], index: int) -> bool:
    point = points[index]
    for other_index, other in enumerate(points):
        if other_index == index or not dominated_for_every_reuse(point, other):
            continue
        if not dominated_for_every_reuse(other, point) or other_index < index:
            return True
    return False


def _wins(others: Sequence[Triple], point: Triple) -> bool:
    """Whether some (t, x) makes ``point`` at least as good as all ``others``."""
    ends = sorted(set(_candidates(others, point)))
    # The middles are there for rounding: a root may fall a hair outside what it bounds.
    middles = [(left + right) / 2 for left, right in pairwise(ends)]
    return any(_margin(others, point, x) >= -_TOLERANCE for x in (*middles, *ends))


def _margin(others: Sequence[Triple], point: Triple, x: float) -> float:
    """Largest t that the better points allow minus the smallest that the worse ones ask for."""
    f1, cost = point[0], math.log(point[2] + x * point[1])
    low, high = 0.0, math.inf
    for other in others:
        gap = math.log(other[2] + x * other[1]) - cost
        if other[0] == f1:
            if gap < -_TOLERANCE:
                return -math.inf
        elif other[0] > f1:
            high = min(high, gap / (other[0] - f1))
        else:
            low = max(low, gap / (other[0] - f1))
    return high - low


def _candidates(others: Sequence[Triple], point: Triple) -> Iterable[float]:
    """Every x at which the sign of the margin can change, and the ends of each monotone piece."""
    yield 1.0
    yield 0.0
    worse = [other for other in others if other[0] < point[0]]
    better = [other for other in others if other[0] > point[0]]
    for other in others:
        # ln(T_other / T_p) is zero here: t = 0 bounds the margin, or equal F1 ties in cost.
        slope = other[1] - point[1]
        if slope:
            x = (point[2] - other[2]) / slope
            if 0 < x < 1:
                yield x
    for a in worse:
        for b in better:
            yield from _roots(a, point, b)


def _roots(a: Triple, p: Triple, b: Triple) -> Iterable[float]:
    """Roots in [0, 1] of h for one pair."""
    wide, near = b[0] - p[0], p[0] - a[0]
    terms = ((near, b), (-(wide + near), p), (wide, a))

    def h(x: float) -> float:
        return sum(weight * math.log(c[2] + x * c[1]) for weight, c in terms)

    edges = [0.0, *_stationary(terms), 1.0]
    for left, right in pairwise(edges):
        at_left = h(left)
        if at_left * h(right) < 0:
            yield _bisect(h, left, right, at_left)
    yield from edges


def _stationary(terms: Sequence[tuple[float, Triple]]) -> list[float]:
    """Zeros in (0, 1) of the derivative: ``sum weight * T1 / (T2 + x T1)`` over one fraction."""
    quadratic = [0.0, 0.0, 0.0]
    for k, (weight, (_, one, _)) in enumerate(terms):
        (_, (_, one_i, two_i)), (_, (_, one_j, two_j)) = (terms[m] for m in range(3) if m != k)
        factor = weight * one
        quadratic[0] += factor * one_i * one_j
        quadratic[1] += factor * (one_i * two_j + one_j * two_i)
        quadratic[2] += factor * two_i * two_j
    a, b, c = quadratic
    roots: list[float] = []
    if a == 0:
        roots = [-c / b] if b else []
    else:
        under = b * b - 4 * a * c
        if under >= 0:
            # The sum that does not cancel, then Vieta for the other root.
            q = -(b + math.copysign(math.sqrt(under), b)) / 2
            roots = [q / a] + ([c / q] if q else [])
    return sorted(root for root in roots if 0 < root < 1)


def _bisect(function: Callable[[float], float], left: float, right: float, at_left: float) -> float:
    for _ in range(80):
        middle = (left + right) / 2
        if (function(middle) > 0) == (at_left > 0):
            left = middle
        else:
            right = middle
    return (left + right) / 2
