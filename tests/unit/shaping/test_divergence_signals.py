import numpy as np
import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import ChatLayout
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.signals import DistributionShift, TrajectoryShift
from ecs_plugins.shaping.signals.base import ScoringTask
from ecs_plugins.tokens import TokenLedger

CHAT = ChatLayout("<user>", "<assistant>", chat=True)
TASK = ScoringTask("Where is it?", ("It is in Rome.", "Where is it?"))


def written(request, candidate=0):
    parts = (*request.prefix, *request.candidates[candidate], *request.continuations[0])
    return "".join(segment.text for segment in parts)


def measure(signal, model, task=TASK):
    task = signal.prepare(task, model, TokenLedger())
    return signal.utilities(task, model.score(signal.requests(task, model.layout)))


def test_a_passage_that_brings_something_shifts_more_than_one_that_does_not():
    new, known = measure(DistributionShift(), FakeLanguageModel())
    assert new.utility > 0.01
    assert known.utility == pytest.approx(0.0, abs=1e-6)


def test_the_shift_does_not_depend_on_whether_an_answer_is_known():
    answered = ScoringTask("Where is it?", TASK.passages, answers=("Rome", "Milan"))
    for signal in (DistributionShift(), TrajectoryShift()):
        found = [unit.utility for unit in measure(signal, FakeLanguageModel(), answered)]
        assert found == [unit.utility for unit in measure(signal, FakeLanguageModel())]


def test_the_distribution_is_that_behind_the_cue():
    (request,) = DistributionShift().requests(TASK, CHAT)
    assert request.divergence
    assert written(request, 1) == "It is in Rome.\nQuestion: Where is it?\nAnswer: the"
    (chat,) = DistributionShift(layout="chat").requests(TASK, CHAT)
    assert written(chat) == "<user>Question: Where is it?<assistant>Answer: the"


def test_the_model_goes_on_once_without_a_passage_and_is_led_along_what_it_said():
    model, ledger = FakeLanguageModel(replies=lambda _: "Paris or so, I guess"), TokenLedger()
    signal = TrajectoryShift(horizon=3)
    task = signal.prepare(ScoringTask("Q?", ("P.",), context="C."), model, ledger)
    assert model.prompts == ["C.\nQuestion: Q?\nAnswer:"]
    assert task.trajectory == " Paris or so,"
    assert ledger.total() > 0
    (request,) = signal.requests(task, model.layout)
    assert written(request, 1) == "C.\nP.\nQuestion: Q?\nAnswer: Paris or so,"
    assert signal.prepare(task, model, ledger) is task
    assert len(model.prompts) == 1


def test_the_trajectory_is_the_sum_over_at_most_horizon_tokens():
    model = FakeLanguageModel(replies=lambda _: "one, two")
    signal = TrajectoryShift(horizon=2)
    task = signal.prepare(TASK, model, TokenLedger())
    requests = signal.requests(task, model.layout)
    (result,) = model.score(requests)
    along = result.scores[1][0][0].divergence
    assert len(along) == 3
    found, _ = signal.utilities(task, [result])
    assert found.utility == pytest.approx(float(along[:2].sum()))
    assert found.parts["tokens_compared"] == 2


def test_a_model_with_nothing_to_say_is_compared_at_its_first_token():
    model = FakeLanguageModel(replies=lambda _: "")
    (along, _), (first, _) = (
        measure(signal, model) for signal in (TrajectoryShift(), DistributionShift())
    )
    assert along.utility == pytest.approx(first.utility)
    assert along.parts["tokens_compared"] == 1


@pytest.mark.parametrize("name", ["distribution_shift", "trajectory_shift"])
def test_a_magnitude_only_ranks_and_never_says_that_a_passage_hurts(name):
    shaped = ContextShaper(FakeLanguageModel(), ShapingConfig(signal=name, top_k=1)).shape(
        TASK.query, list(TASK.passages)
    )
    assert [v.index for v in shaped.kept] == [0]
    decided = ContextShaper(
        FakeLanguageModel(),
        ShapingConfig(signal=name, threshold=0.001, ranker=None, beyond_question=False),
    ).shape(TASK.query, list(TASK.passages))
    assert [str(v.verdict) for v in decided.verdicts] == ["helps", "neutral"]


class Silent(FakeLanguageModel):
    def _compare(self, scores, *others):
        return scores


def test_a_model_without_divergences_is_named_as_the_reason():
    with pytest.raises(ConfigurationError, match="no divergences"):
        measure(DistributionShift(), Silent())


def test_a_horizon_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="horizon"):
        TrajectoryShift(horizon=0)


@pytest.mark.model
def test_evidence_moves_the_real_model_further_than_an_unrelated_passage(bundled_lm):
    task = ScoringTask(
        "Which instrument does Oskar Brenn build?",
        (
            "Oskar Brenn: In my workshop I only build hurdy-gurdies.",
            "Lena Ahl: The ferry was late again, so we missed the market.",
        ),
    )
    for signal in (DistributionShift(), TrajectoryShift()):
        evidence, unrelated = measure(signal, bundled_lm, task)
        assert np.isfinite([evidence.utility, unrelated.utility]).all()
        assert evidence.utility > unrelated.utility > 0.0
