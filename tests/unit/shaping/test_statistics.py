import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.shaping import Verdict
from ecs_plugins.shaping.acceptance import verdict_of
from ecs_plugins.shaping.signals.base import marginal_logprob
from ecs_plugins.shaping.signals.likelihood import pragmatic_utility
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
    scores = np.array([2.0, 1.0, 1.0])
    assert auc(scores, labels(True, True, False)) == pytest.approx(0.75)
    assert math.isnan(auc(scores, labels(True, True, True)))


def test_passages_compete_within_their_question_only():
    scores = np.array([1.0, 0.0, 11.0, 10.0, 5.0])
    questions = np.array([0, 0, 1, 1, 2])
    kinds = labels(True, False, True, False, True)
    estimate, number = question_auc(scores, kinds, questions)
    assert number == 2
    assert estimate.value == 1.0
    assert estimate.low == 1.0
    assert estimate.high == 1.0
    assert auc(scores, kinds) < 1.0


def test_questions_without_both_kinds_have_no_auc():
    scores = np.array([1.0, 0.0])
    questions = np.array([0, 1])
    assert question_auc(scores, labels(True, False), questions) == (None, 0)


def f1(scores, kinds, threshold):
    kept = scores >= threshold
    right = (kept & kinds).sum()
    return 2 * right / max(1, kept.sum() + kinds.sum())


def has_evidence(rows):
    return any(kind for _, kind in rows)


ROW = st.tuples(st.floats(-5, 5), st.booleans())
ROWS = st.lists(ROW, min_size=2, max_size=30)


@given(ROWS.filter(has_evidence))
def test_no_other_threshold_from_zero_on_has_a_better_f1(rows):
    scores = np.array([score for score, _ in rows])
    kinds = np.array([kind for _, kind in rows])
    chosen = best_threshold(scores, kinds)
    others = [0.0, *scores[scores >= 0.0]]
    best = max(f1(scores, kinds, threshold) for threshold in others)
    assert chosen >= 0.0
    assert f1(scores, kinds, chosen) == pytest.approx(best)


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
    separable = kinds * 5.0 + rng.random(40)
    perfect = held_out_threshold(separable, kinds, questions)
    by_chance = held_out_threshold(rng.random(40), kinds, questions)
    assert perfect.precision == 1.0
    assert perfect.recall == 1.0
    assert perfect.f1 == 1.0
    assert perfect.low <= perfect.value <= perfect.high
    assert by_chance.precision < 0.5


def test_a_single_question_holds_nothing_out_and_evidence_alone_has_no_threshold():
    scores = np.array([1.0, 0.0])
    one_question = np.array([0, 0])
    two_questions = np.array([0, 1])
    assert held_out_threshold(scores, labels(True, False), one_question) is None
    assert held_out_threshold(scores, labels(True, True), two_questions) is None


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
    half = math.log(0.5)
    weighted = marginal_logprob([math.log(0.2), math.log(0.4)], [half, half])
    assert math.exp(weighted) == pytest.approx(0.3)
    tiny = marginal_logprob([-2000.0, -2000.0])
    assert tiny == pytest.approx(-2000 + math.log(2))


def test_impossible_and_unknown_answers_stay_so():
    impossible = [-math.inf, -math.inf]
    assert marginal_logprob(impossible) == -math.inf
    assert math.isnan(marginal_logprob([math.nan, -1.0]))
