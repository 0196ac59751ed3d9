"""The envelope against brute force on 10,000 random point sets, degenerate ones included."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from ecs_plugins.frontier import prune
from ecs_plugins.frontier.hull import non_dominated, upper_envelope
from ecs_plugins.frontier.prune import optimal_somewhere


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


def test_non_dominated_equals_brute_force_on_10000_random_sets():
    for points in random_sets(10_000, seed=7):
        kept = non_dominated([f for f, _ in points], [c for _, c in points])
        brute = {
            (f1, cost)
            for f1, cost in points
            if not any((g >= f1 and d <= cost) and (g > f1 or d < cost) for g, d in points)
        }
        assert {points[i] for i in kept} == brute
        assert len(kept) == len(brute)


def test_every_point_of_the_envelope_is_non_dominated():
    for points in random_sets(500, seed=3):
        chain, _ = upper_envelope([f for f, _ in points], [-math.log(c) for _, c in points])
        kept = non_dominated([f for f, _ in points], [c for _, c in points])
        values = {points[i] for i in kept}
        assert {points[i] for i in chain} <= values


def test_collinear_middle_is_left_out_and_identical_points_are_kept_once():
    chain, starts = upper_envelope([0.0, 0.5, 1.0, 1.0], [0.0, -1.0, -2.0, -2.0])
    assert chain == [0, 2]
    assert starts == [0.0, 2.0]


def random_triples(rng, size):
    return [
        (rng.random(), rng.choice([0.0, rng.uniform(0, 3000)]), rng.uniform(50, 1500))
        for _ in range(size)
    ]


def test_stage_one_keeps_every_winner_of_a_dense_sweep_over_weight_and_reuse():
    rng = random.Random(42)
    odds = np.concatenate([[0.0], np.logspace(-2, 3, 150)])
    inverse = np.concatenate([[0.0], np.logspace(-4, 0, 120)])
    for _ in range(150):
        points = random_triples(rng, rng.randint(1, 9))
        kept = optimal_somewhere(points)
        f1 = np.array([p[0] for p in points])
        cost = np.array([p[2] for p in points]) + inverse[:, None] * np.array(
            [p[1] for p in points]
        )
        score = odds[None, :, None] * f1 - np.log(cost)[:, None, :]
        winners = set(np.unique(score.argmax(axis=2)).tolist())
        assert winners <= set(kept)


def test_stage_one_drops_what_no_weight_and_reuse_prefers():
    rng = random.Random(1)
    odds = np.logspace(-3, 5, 1500)
    inverse = np.concatenate([[0.0], np.logspace(-6, 0, 80)])
    dropped = 0
    for _ in range(30):
        points = random_triples(rng, 6)
        kept = set(optimal_somewhere(points))
        f1 = np.array([p[0] for p in points])
        one, two = (np.array([p[k] for p in points]) for k in (1, 2))
        margin = np.full(6, -np.inf)
        for x in inverse:
            score = odds[:, None] * f1 - np.log(two + x * one)
            gap = score - np.stack(
                [np.delete(score, k, axis=1).max(axis=1) for k in range(6)], axis=1
            )
            margin = np.maximum(margin, gap.max(axis=0))
        # A point that is kept must come close to winning somewhere on a fine sweep.
        assert all(margin[k] > -2e-2 for k in kept)
        dropped += 6 - len(kept)
    assert dropped > 25


def test_stage_one_finds_a_window_of_reuse_that_no_round_number_hits():
    # b beats both neighbours only where its amortised cost dips between theirs.
    points = [(0.5, 0.0, 100.0), (0.6, 37.0, 108.9), (0.7, 0.0, 127.0)]
    for x, inside in ((0.0, True), (1.0, False)):
        costs = [math.log(two + x * one) for _, one, two in points]
        chord = (costs[0] + costs[2]) / 2
        assert (costs[1] < chord) is inside
    assert optimal_somewhere(points) == [0, 1, 2]


def narrow_windows(count):
    """Five points, one of which wins for a narrow range of 1 / N between the probes only."""
    rng = np.random.default_rng(42)
    x = np.linspace(0, 1, 801)[:, None]
    probed = [round(800 * probe) for probe in prune._PROBES]
    while count:
        f1, one = np.sort(rng.random(5)), rng.uniform(0, 3000, 5)
        two = rng.uniform(50, 1500, 5)
        logs = np.log(two + x * one)
        for p in range(1, 4):
            slopes = (logs - logs[:, [p]]) / np.where(np.arange(5) == p, 1, f1 - f1[p])
            low = slopes[:, :p].max(axis=1).clip(0)
            wins = slopes[:, p + 1 :].min(axis=1) >= low
            if wins.any() and wins.mean() < 0.04 and not wins[probed].any():
                count -= 1
                yield p, list(zip(f1.tolist(), one.tolist(), two.tolist(), strict=True))


def test_stage_one_finds_narrow_windows_of_reuse_between_the_probes():
    for index, points in narrow_windows(12):
        assert index in optimal_somewhere(points)


def test_every_change_of_sign_of_a_pair_is_found():
    rng = np.random.default_rng(3)
    x = np.linspace(0, 1, 801)
    domes = 0
    for _ in range(1500):
        f1, one = np.sort(rng.random(3)), rng.uniform(0, 3000, 3)
        two = rng.uniform(50, 1500, 3)
        a, p, b = np.log(two[:, None] + one[:, None] * x)
        h = (b - p) / (f1[2] - f1[1]) - (p - a) / (f1[1] - f1[0])
        changes = np.flatnonzero(np.sign(h[1:]) != np.sign(h[:-1]))
        domes += len(changes) == 2
        roots = np.array(list(prune._roots(*zip(f1, one, two, strict=True))))
        for change in changes:
            assert ((roots >= x[change] - 1e-9) & (roots <= x[change + 1] + 1e-9)).any()
    assert domes >= 2


def test_stage_one_needs_no_probes(monkeypatch):
    rng = random.Random(9)
    sets = [random_triples(rng, rng.randint(1, 8)) for _ in range(120)]
    expected = [optimal_somewhere(points) for points in sets]
    monkeypatch.setattr(prune, "_PROBES", ())
    assert [optimal_somewhere(points) for points in sets] == expected


@pytest.mark.parametrize("copies", [2, 5])
def test_stage_one_keeps_one_of_identical_points(copies):
    assert optimal_somewhere([(0.5, 10.0, 100.0)] * copies) == [0]
