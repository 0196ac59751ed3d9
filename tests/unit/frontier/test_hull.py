"""The envelope against brute force on 10,000 random point sets, degenerate ones included."""

import math
import random
from itertools import pairwise

import pytest

from ecs_plugins.frontier.hull import non_dominated, upper_envelope

from .conftest import point


def random_sets(count, seed=42, largest=9):
    rng = random.Random(seed)
    for index in range(count):
        size = rng.randint(1, largest)
        # Every third set sits on a coarse lattice, so that equal F1, equal costs, identical
        # points and collinear triples are common.
        if index % 3 == 0:
            yield [(rng.randint(0, 4) / 4, math.exp(rng.randint(0, 4) / 4)) for _ in range(size)]
        else:
            yield [(rng.random(), math.exp(rng.uniform(3, 8))) for _ in range(size)]


def best_by_sweep(points, t):
    return max(t * f1 - math.log(cost) for f1, cost in points)


@pytest.mark.slow
def test_envelope_equals_brute_force_on_10000_random_sets():
    for points in random_sets(10_000):
        slopes = [f1 for f1, _ in points]
        intercepts = [-math.log(cost) for _, cost in points]
        chain, starts = upper_envelope(slopes, intercepts)
        assert starts[0] == 0.0
        assert all(a < b for a, b in pairwise(starts))
        ends = [*starts[1:], starts[-1] + 2.0]
        for index, start, end in zip(chain, starts, ends, strict=True):
            middle = (start + end) / 2
            for t in (start, middle, end):
                score = t * slopes[index] + intercepts[index]
                assert score >= best_by_sweep(points, t) - 1e-9 * (1 + t)
        # At t = infinity quality alone counts: the best F1 at its lowest cost.
        top = max(slopes)
        assert slopes[chain[-1]] == top
        assert points[chain[-1]][1] == min(c for f1, c in points if f1 == top)


@pytest.mark.slow
def test_non_dominated_equals_brute_force_on_10000_random_sets():
    for points in random_sets(10_000, seed=7):
        kept = non_dominated([point("a", f1, 0, cost) for f1, cost in points], 1)
        brute = {
            (f1, cost)
            for f1, cost in points
            if not any((g >= f1 and d <= cost) and (g > f1 or d < cost) for g, d in points)
        }
        assert {(p.f1, p.stage2) for p in kept} == brute
        assert len(kept) == len(brute)
