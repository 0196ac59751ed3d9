import math

import pytest
from ecs_plugins.shaping.answers import DraftAnswer, Drafted

from ecs_plugins.errors import ConfigurationError, ScoringError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import (
    AnswerShift,
    ContextShaper,
    JointShift,
    RankFused,
    ScoringTask,
    ShapingConfig,
)
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


def drafted(drafting, passages=(ROME, OSLO, RAIN), **settings):
    model = FakeLanguageModel(logprob, replies=replies)
    ledger = TokenLedger()
    task = ScoringTask(QUESTION, passages, **settings)
    return drafting.complete(task, model, ledger), model, ledger


def test_one_draft_comes_from_each_of_the_first_passages():
    task, model, _ = drafted(DraftAnswer(drafts=2))
    assert task.answers == ("Rome", "Oslo")
    assert [prompt.splitlines()[0] for prompt in model.prompts] == [ROME, OSLO]


def test_drafts_are_weighted_by_their_probability_over_the_drafting_passages():
    task, _, _ = drafted(DraftAnswer(drafts=2))
    rome, oslo = (0.6 + 0.1) / 2, (0.1 + 0.2) / 2
    weights = [math.exp(weight) for weight in task.answer_log_weights]
    assert weights == pytest.approx([rome / (rome + oslo), oslo / (rome + oslo)], rel=1e-5)


def test_weights_come_from_one_request_with_a_continuation_for_every_draft():
    _, model, _ = drafted(DraftAnswer(drafts=2))
    (request,) = model.requests
    assert len(request.candidates) == 2
    assert len(request.continuations) == 2


def test_blank_and_repeated_drafts_are_left_out():
    task, _, _ = drafted(DraftAnswer(drafts=4), (ROME, RAIN, ROME + " Yes."))
    assert task.answers == ("Rome",)
    assert task.answer_log_weights == (0.0,)


def test_together_reads_several_passages_at_once_and_samples_the_other_drafts():
    _, model, _ = drafted(DraftAnswer(drafts=3, sources="together", passages=2))
    assert len(model.prompts) == 3
    assert all(prompt.startswith(f"{ROME}\n{OSLO}\n") for prompt in model.prompts)


def test_together_reads_no_more_than_the_window_holds():
    model = FakeLanguageModel(logprob, replies=replies, max_tokens=190)
    task = ScoringTask(QUESTION, (ROME, OSLO, RAIN))
    DraftAnswer(drafts=1, sources="together").complete(task, model, TokenLedger())
    assert model.prompts[0].startswith(f"{ROME}\nQuestion")


def test_a_given_answer_is_not_drafted():
    task, model, ledger = drafted(DraftAnswer(), answers=("Paris",))
    assert task.answers == ("Paris",)
    assert not model.prompts
    assert not ledger.total()


def test_drafting_is_booked():
    _, _, ledger = drafted(DraftAnswer(drafts=2))
    assert ledger.total() > 40


def test_nothing_drafted_says_what_to_do():
    with pytest.raises(ScoringError, match="query_likelihood"):
        drafted(DraftAnswer(), (RAIN,))


@pytest.mark.parametrize(
    "settings", [{"drafts": 0}, {"max_new_tokens": 0}, {"sources": "all"}, {"temperature": 0.0}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ConfigurationError):
        DraftAnswer(**settings)


@pytest.mark.parametrize("signal", [AnswerShift(), JointShift()], ids=lambda s: s.name)
def test_a_drafted_signal_orders_by_the_drafted_answers(signal):
    model = FakeLanguageModel(logprob, replies=replies)
    config = ShapingConfig(signal=Drafted(signal, DraftAnswer(drafts=3)), on_error="raise")
    shaped = ContextShaper(model, config).shape(QUESTION, [RAIN, ROME, OSLO])
    assert [verdict.text for verdict in shaped.ranked] == [ROME, OSLO, RAIN]
    assert shaped.signal == f"drafted_{signal.name}"


def test_drafts_come_from_what_the_ranker_puts_first():
    model = FakeLanguageModel(logprob, replies=replies)
    config = ShapingConfig(
        signal=Drafted(AnswerShift(), DraftAnswer(drafts=1)), ranker="bm25", pool_size=2
    )
    ContextShaper(model, config).shape(QUESTION, [RAIN, OSLO, "Anna: I live in Rome, said Anna."])
    assert model.prompts[0].startswith("Anna: I live in Rome")


@pytest.mark.parametrize("wrap", [lambda s: s, RankFused], ids=["alone", "fused"])
def test_drafts_come_from_the_best_also_where_every_passage_is_scored(wrap):
    model = FakeLanguageModel(logprob, replies=replies)
    drafting = Drafted(AnswerShift(), DraftAnswer(drafts=1))
    config = ShapingConfig(signal=wrap(drafting), ranker="bm25", on_error="raise")
    shaped = ContextShaper(model, config).shape(QUESTION, [RAIN, "Anna: I live in Rome."])
    assert model.prompts[0].startswith("Anna: I live in Rome")
    assert [verdict.rank for verdict in shaped.verdicts] == [2, 1]


def test_a_model_that_drafts_nothing_returns_the_passages():
    model = FakeLanguageModel(logprob, replies=lambda prompt: "")
    shaped = ContextShaper(model, ShapingConfig(signal="drafted_answer_shift")).shape(
        QUESTION, [ROME]
    )
    assert shaped.error is not None
    assert [verdict.text for verdict in shaped.kept] == [ROME]
