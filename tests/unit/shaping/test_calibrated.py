import json
import math

import numpy as np
import pytest
from ecs_plugins.shaping.combination import LogisticModel, PassageModel, probability_of
from test_diagnostics import EXAMPLES, Bad, by_overlap, example, good

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ScoringError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import (
    CalibratedSignal,
    ContextShaper,
    QueryLikelihood,
    ScoringTask,
    ShapingConfig,
    Signal,
)
from ecs_plugins.tokens import TokenLedger

FREE = ("query_likelihood", "distribution_shift")
TASK = ScoringTask(EXAMPLES[0].question, EXAMPLES[0].passages)


@pytest.fixture(scope="module")
def fitted():
    return CalibratedSignal.fit(good(), EXAMPLES, FREE)


def measure(signal, model, task=TASK):
    task = signal.prepare(task, model, TokenLedger())
    return signal.utilities(task, model.score(signal.requests(task, model.layout)))


def test_it_is_a_signal_whose_utility_is_a_probability(fitted):
    assert isinstance(fitted, Signal)
    tram, evidence, soup = measure(fitted, good())
    assert 0.0 < tram.utility < 0.5 < evidence.utility < 1.0
    assert soup.utility < 0.5
    assert evidence.order_by == pytest.approx(evidence.parts["log_odds"])
    assert set(FREE) <= set(evidence.parts)


def test_its_threshold_keeps_the_evidence(fitted):
    config = ShapingConfig(signal=fitted, ranker=None)
    shaped = ContextShaper(good(), config).shape(TASK.query, TASK.passages)
    assert [verdict.index for verdict in shaped.kept] == [1]
    assert "probability" in shaped.verdicts[1].reason
    strict = ShapingConfig(signal=fitted, ranker=None, threshold=1.0)
    assert not ContextShaper(good(), strict).shape(TASK.query, TASK.passages).kept


def test_all_signals_are_scored_in_one_call(fitted):
    model = good()
    calls = []
    score = model.score
    model.score = lambda requests: calls.append(len(requests)) or score(requests)
    ContextShaper(model, ShapingConfig(signal=fitted, ranker=None)).shape(TASK.query, TASK.passages)
    assert calls == [2]


def test_what_was_measured_on_held_out_questions_is_recorded(fitted):
    record = fitted.combination.record
    assert (record.model, record.questions) == ("good", len(EXAMPLES))
    assert record.auc.value > 0.9
    assert record.log_loss < record.base_log_loss
    assert record.threshold.recall > 0.9
    assert fitted.threshold == record.threshold.value
    for word in ("query_likelihood", "held out", "precision"):
        assert word in fitted.report()


def test_it_comes_back_from_json_without_pickle(fitted, tmp_path):
    again = CalibratedSignal.load(fitted.save(tmp_path / "combined.json"))
    assert again == fitted
    found = [unit.utility for unit in measure(again, good())]
    assert found == [unit.utility for unit in measure(fitted, good())]
    assert json.loads(fitted.to_json())["signals"] == list(FREE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["model"]["among"].update(weights=[1.0]), "as many"),
        (lambda d: d["model"]["alone"].update(scales=[0.0, 1.0]), "positive"),
        (lambda d: d.update(signals=["query_likelihood"]), "one coefficient per signal"),
        (lambda d: d.update(signals=["truth", "x"]), "unknown signal"),
        (lambda d: d["model"]["among"].update(intercept="x"), "intercept"),
        (lambda d: d["record"].pop("auc"), "auc is missing"),
    ],
)
def test_a_damaged_file_is_refused(fitted, change, message):
    data = json.loads(fitted.to_json())
    change(data)
    with pytest.raises((InvalidInputError, ConfigurationError), match=message):
        CalibratedSignal.from_json(json.dumps(data))


def test_too_few_questions_are_refused_before_anything_is_computed():
    model = good()
    with pytest.raises(InvalidInputError, match=r"19 questions.*at least 20"):
        CalibratedSignal.fit(model, EXAMPLES[:19], FREE)
    assert not model.requests


def test_questions_without_both_kinds_do_not_count():
    bare = [example(n) for n in range(19)]
    bare += [type(e)(e.question, e.passages, (), e.answers) for e in EXAMPLES[19:]]
    with pytest.raises(InvalidInputError, match="19 questions"):
        CalibratedSignal.fit(good(), bare, FREE)


def test_signals_that_say_nothing_only_rank():
    with pytest.warns(RuntimeWarning, match="only ranks"):
        found = CalibratedSignal.fit(Bad(), EXAMPLES, ["query_likelihood"])
    assert found.threshold is None
    assert "only ranks" in found.report()


def test_an_answer_is_needed_if_one_of_the_signals_needs_it():
    found = CalibratedSignal.fit(good(), EXAMPLES, ["query_likelihood", "answer_shift"])
    assert found.needs_answer
    with pytest.raises(InvalidInputError, match="needs an answer"):
        ContextShaper(good(), ShapingConfig(signal=found)).shape(TASK.query, TASK.passages)


def test_another_model_is_warned_about(fitted):
    with pytest.warns(RuntimeWarning, match="fitted with 'good'"):
        measure(fitted, FakeLanguageModel(by_overlap, name="other"))


def test_an_own_signal_can_be_used_and_not_stored():
    class Own(QueryLikelihood):
        name = "own"

    found = CalibratedSignal.fit(good(), EXAMPLES, [Own(), "distribution_shift"])
    assert found.name == "calibrated(own+distribution_shift)"
    with pytest.raises(ConfigurationError, match="cannot be stored"):
        found.to_json()


def test_a_passage_that_one_signal_cannot_score_is_no_number(fitted):
    task = ScoringTask("Q?", ("Short.", "long " * 300))
    model = FakeLanguageModel(by_overlap, max_tokens=100, name="good")
    short, long = measure(fitted, model, task)
    assert math.isfinite(short.utility)
    assert math.isnan(long.utility)
    assert "window" in long.reason


def test_results_of_other_requests_are_refused(fitted):
    model = good()
    results = model.score(fitted.requests(TASK, model.layout))
    with pytest.raises(ScoringError, match="3 results for the 2 requests"):
        fitted.utilities(TASK, [*results, results[0]])


def test_the_coefficients_are_those_of_the_likelihood():
    rng = np.random.default_rng(0)
    utilities = rng.normal(3.0, 2.0, size=(4000, 2))
    log_odds = 1.5 * (utilities[:, 0] - 3) / 2 - 0.5
    labels = rng.random(4000) < probability_of(log_odds)
    found = LogisticModel.fit(utilities, labels, prior=1.0)
    assert found.weights == pytest.approx((1.5, 0.0), abs=0.15)
    assert found.intercept == pytest.approx(-0.5, abs=0.15)
    assert found.log_odds(utilities[:5]) == pytest.approx(log_odds[:5], abs=0.4)


def test_fewer_questions_hold_the_weights_closer_to_zero():
    rng = np.random.default_rng(0)
    utilities = rng.normal(size=(60, 1))
    labels = utilities[:, 0] > 0
    wide, narrow = (LogisticModel.fit(utilities, labels, prior=p) for p in (1.0, 0.1))
    assert 0.0 < narrow.weights[0] < wide.weights[0]


def test_a_utility_that_never_differs_has_no_weight():
    utilities = np.column_stack([np.ones(40), np.arange(40.0)])
    found = LogisticModel.fit(utilities, utilities[:, 1] > 19, prior=1.0)
    assert found.weights[0] == pytest.approx(0.0, abs=1e-9)


def test_extreme_log_odds_do_not_overflow():
    with np.errstate(all="raise"):
        assert probability_of(np.array([-1e4, 0.0, 1e4])) == pytest.approx([0.0, 0.5, 1.0])


def test_a_question_that_raises_or_spreads_every_utility_changes_no_probability():
    rng = np.random.default_rng(0)
    questions = np.repeat(np.arange(40), 5)
    labels = np.tile([True, False, False, False, False], 40)
    level = np.repeat(rng.normal(0.0, 5.0, size=40), 5)
    utilities = (level + 2.0 * labels + rng.normal(size=200))[:, None]
    found = PassageModel.fit(utilities, labels, questions, prior=1.0)
    assert found.log_odds(utilities[:5] * 3 + 7) == pytest.approx(found.log_odds(utilities[:5]))
    assert found.among.weights[0] > 3 * found.alone.weights[0]


def test_a_passage_without_company_is_judged_by_itself():
    utilities = np.arange(12.0)[:, None]
    questions = np.repeat(np.arange(3), 4)
    found = PassageModel.fit(utilities, utilities[:, 0] > 5, questions, prior=1.0)
    assert found.log_odds(utilities[11:]) == found.alone.log_odds(utilities[11:])


def test_a_passage_that_was_not_scored_is_no_company():
    utilities = np.arange(12.0)[:, None]
    questions = np.repeat(np.arange(3), 4)
    found = PassageModel.fit(utilities, utilities[:, 0] % 4 > 2, questions, prior=1.0)
    with_gap = np.array([[1.0], [np.nan], [2.0], [3.0]])
    assert np.isnan(found.log_odds(with_gap)).tolist() == [False, True, False, False]
    without = found.log_odds(with_gap[[0, 2, 3]])
    assert found.log_odds(with_gap)[[0, 2, 3]] == pytest.approx(without)


def test_passages_that_do_not_differ_have_the_same_probability():
    utilities = np.arange(12.0)[:, None]
    questions = np.repeat(np.arange(3), 4)
    found = PassageModel.fit(utilities, utilities[:, 0] % 4 > 2, questions, prior=1.0)
    assert np.ptp(found.log_odds(np.full((4, 1), 5.0))) == 0.0
