import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.shaping import Verdict
from ecs_plugins.shaping.acceptance import verdict_of
from ecs_plugins.shaping.signals.base import marginal_logprob, pragmatic_utility
from ecs_plugins.shaping.statistics import (
    auc,
    best_threshold,
    folds,
    held_out_threshold,
    question_auc,
)


def labels(*values):
    return np.array(values, dtype=bool)


def test_the_auc_counts_ties_half_and_is_undefined_without_both_kinds():
    assert auc(np.array([2.0, 1.0, 1.0]), labels(True, True, False)) == pytest.approx(0.75)
    assert math.isnan(auc(np.array([1.0, 2.0]), labels(True, True)))


def test_passages_compete_within_their_question_only():
    scores = np.array([1.0, 0.0, 11.0, 10.0, 5.0])
    questions = np.array([0, 0, 1, 1, 2])
    kinds = labels(True, False, True, False, True)
    estimate, number = question_auc(scores, kinds, questions)
    assert number == 2
    assert (estimate.value, estimate.low, estimate.high) == (1.0, 1.0, 1.0)
    assert auc(scores, kinds) < 1.0
    assert question_auc(scores[:2], kinds[:2], np.array([0, 1])) == (None, 0)


def f1(scores, kinds, threshold):
    kept = scores >= threshold
    return 2 * (kept & kinds).sum() / max(1, kept.sum() + kinds.sum())


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=2, max_size=30).filter(
        lambda rows: any(kind for _, kind in rows)
    )
)
def test_no_other_threshold_from_zero_on_has_a_better_f1(rows):
    scores, kinds = map(np.array, zip(*rows, strict=True))
    found = best_threshold(scores, kinds)
    assert found >= 0.0
    others = [0.0, *(score for score in scores if score >= 0.0)]
    best = max(f1(scores, kinds, threshold) for threshold in others)
    assert f1(scores, kinds, found) == pytest.approx(best)


def test_every_question_is_held_out_once_and_whole():
    questions = np.repeat(np.arange(12), 3)
    seen = np.zeros(36, dtype=int)
    for inside, outside in folds(questions):
        assert not set(questions[inside]) & set(questions[outside])
        assert (inside ^ outside).all()
        seen += outside
    assert (seen == 1).all()


def test_a_held_out_threshold_of_separable_questions_is_perfect_and_of_noise_by_chance():
    questions = np.repeat(np.arange(10), 4)
    kinds = np.tile([True, False, False, False], 10)
    rng = np.random.default_rng(0)
    found = held_out_threshold(kinds * 5.0 + rng.random(40), kinds, questions)
    assert (found.precision, found.recall, found.f1) == (1.0, 1.0, 1.0)
    assert found.low <= found.value <= found.high
    noise = held_out_threshold(rng.random(40), kinds, questions)
    assert noise.precision < 0.5


def test_a_single_question_holds_nothing_out():
    kinds, scores = labels(True, False), np.array([1.0, 0.0])
    assert held_out_threshold(scores, kinds, np.array([0, 0])) is None
    assert held_out_threshold(scores, labels(True, True), np.array([0, 1])) is None


def test_the_worked_example_accepts_the_useful_passage_and_rejects_the_red_herring():
    # Section 3.6: P(1889) is .35 without a passage, .92 with the useful one, .38 with the herring.
    useful = pragmatic_utility(math.log(0.92), math.log(0.35))
    herring = pragmatic_utility(math.log(0.38), math.log(0.35))
    assert useful == pytest.approx(0.966, abs=5e-4)
    assert herring == pytest.approx(0.082, abs=5e-4)
    assert verdict_of(useful, 0.3) is Verdict.HELPS
    assert verdict_of(herring, 0.3) is Verdict.NEUTRAL


@pytest.mark.parametrize(
    ("utility", "verdict"),
    [
        (0.05, Verdict.HELPS),
        (-0.05, Verdict.NEUTRAL),
        (-0.06, Verdict.HURTS),
        (pragmatic_utility(-math.inf, -math.inf), Verdict.NEUTRAL),
    ],
)
def test_a_verdict_follows_from_the_threshold(utility, verdict):
    assert verdict_of(utility, 0.05) is verdict


def test_probabilities_of_alternative_answers_add_up_and_do_not_underflow():
    total = marginal_logprob([math.log(0.2), math.log(0.3)])
    assert math.exp(total) == pytest.approx(0.5)
    weighted = marginal_logprob([math.log(0.2), math.log(0.4)], [math.log(0.5), math.log(0.5)])
    assert math.exp(weighted) == pytest.approx(0.3)
    assert marginal_logprob([-2000.0, -2000.0]) == pytest.approx(-2000 + math.log(2))
    assert marginal_logprob([-math.inf, -math.inf]) == -math.inf
    assert math.isnan(marginal_logprob([math.nan, -1.0]))
