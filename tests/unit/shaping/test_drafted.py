import math

import pytest

from ecs_plugins.errors import ConfigurationError, ScoringError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.signals import AnswerShift, Drafted, JointShift, RankFused, TrajectoryShift
from ecs_plugins.shaping.signals.base import ScoringTask
from ecs_plugins.tokens import TokenLedger

QUESTION = "Where does Anna live?"
ROME = "Anna lives in Rome."
OSLO = "Anna once saw Oslo."
RAIN = "It rained all day."


def replies(prompt):
    found = [city for city in ("Rome", "Oslo") if city in prompt]
    return f" {found[0]}\nmore" if found else " "


def logprob(context, scored):
    """Rome is likely where it is mentioned, Oslo less so even there, the rest is not."""
    word = scored.strip()
    if word == "Rome":
        return math.log(0.6 if "Rome" in context else 0.1)
    if word == "Oslo":
        return math.log(0.2 if "Oslo" in context else 0.1)
    return -2.0


def drafted(drafts=4, passages=(ROME, OSLO, RAIN), **settings):
    model = FakeLanguageModel(logprob, replies=replies)
    ledger = TokenLedger()
    task = ScoringTask(QUESTION, passages, **settings)
    return Drafted(JointShift(), drafts).prepare(task, model, ledger), model, ledger


def test_drafts_of_the_first_passages_are_weighted_by_their_probability_over_these():
    task, model, ledger = drafted(2)
    assert task.answers == ("Rome", "Oslo")
    assert [prompt.splitlines()[0] for prompt in model.prompts] == [ROME, OSLO]
    (request,) = model.requests
    assert len(request.candidates) == len(request.continuations) == 2
    assert ledger.total() > 40
    rome, oslo = (0.6 + 0.1) / 2, (0.1 + 0.2) / 2
    weights = [math.exp(weight) for weight in task.answer_log_weights]
    assert weights == pytest.approx([rome / (rome + oslo), oslo / (rome + oslo)], rel=1e-5)


def test_blank_and_repeated_drafts_are_left_out():
    task, _, _ = drafted(4, (ROME, RAIN, ROME + " Yes."))
    assert task.answers == ("Rome",)
    assert task.answer_log_weights == (0.0,)


def test_a_given_answer_is_not_drafted():
    task, model, ledger = drafted(answers=("Paris",))
    assert task.answers == ("Paris",)
    assert not model.prompts
    assert not ledger.total()


def test_an_empty_draft_gives_advice():
    with pytest.raises(ScoringError, match="query_likelihood"):
        drafted(4, (RAIN,))


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigurationError, match="horizon"):
        TrajectoryShift(horizon=0)
    with pytest.raises(ConfigurationError, match="drafts"):
        Drafted(JointShift(), drafts=0)


@pytest.mark.parametrize("signal", [AnswerShift(), JointShift()], ids=lambda s: s.name)
def test_a_drafted_signal_orders_by_the_drafted_answers(signal):
    model = FakeLanguageModel(logprob, replies=replies)
    config = ShapingConfig(
        signal=Drafted(signal, drafts=3),
        ranker="bm25",
        on_error="raise",
    )
    shaped = ContextShaper(model, config).shape(QUESTION, [RAIN, ROME, OSLO])
    assert [verdict.text for verdict in shaped.ranked] == [ROME, OSLO, RAIN]
    assert shaped.signal == f"drafted_{signal.name}"


@pytest.mark.parametrize("fused", [False, True])
def test_drafts_come_from_the_best_also_where_every_passage_is_scored(fused):
    model = FakeLanguageModel(logprob, replies=replies)
    drafting = Drafted(AnswerShift(), drafts=1)
    signal = RankFused(drafting, (BM25Ranker(),)) if fused else drafting
    config = ShapingConfig(
        signal=signal,
        ranker="bm25",
        on_error="raise",
    )
    shaped = ContextShaper(model, config).shape(QUESTION, [RAIN, "Anna: I live in Rome."])
    assert model.prompts[0].startswith("Anna: I live in Rome")
    assert [verdict.rank for verdict in shaped.verdicts] == [2, 1]
