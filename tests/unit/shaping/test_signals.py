import math

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ScoringError
from ecs_plugins.lm.base import ChatLayout
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.registry import RANKERS
from ecs_plugins.shaping import ContextShaper, ShapingConfig, Signal
from ecs_plugins.shaping.config import make_signal, resolve_signal
from ecs_plugins.shaping.signals import (
    SIGNALS,
    AnswerShift,
    DistributionShift,
    JointShift,
    Judge,
    QueryLikelihood,
    TrajectoryShift,
)
from ecs_plugins.shaping.signals.base import ScoringTask, UnitUtility
from ecs_plugins.tokens import TokenLedger
from tests.unit.shaping.outcomes import kept, verdicts

CHAT = ChatLayout(
    head="<|user|>",
    tail="<|assistant|>",
    chat=True,
)
TASK = ScoringTask("  Where is it? ", ("It is in Rome.", "It rained."), answers=("Rome",))


def text(segments):
    return "".join(segment.text for segment in segments)


def prompts(signal, task=TASK, layout=CHAT):
    (request,) = signal.requests(task, layout)
    whole = []
    for candidate in request.candidates:
        head = text(request.prefix) + text(candidate)
        whole += [head + text(continuation) for continuation in request.continuations]
    return whole


def measure(signal, task, model):
    task = signal.prepare(task, model, TokenLedger())
    requests = signal.requests(task, model.layout)
    return signal.utilities(task, model.score(requests))


def says_rome(context, scored):
    return -1.0 if "Rome" in context else -5.0


@pytest.mark.parametrize("name", [*SIGNALS, *(f"joint_shift+{ranker}" for ranker in RANKERS)])
def test_every_signal_declares_its_needs(name):
    written = ShapingConfig(signal=name).to_json()
    signal = make_signal(ShapingConfig.from_json(written).signal)
    assert isinstance(signal, Signal)
    assert signal.name == name
    assert signal.unit in ("nats", "nats per token")


@pytest.mark.parametrize(
    ("signal", "before", "after"),
    [
        (AnswerShift(), "It is in Rome.\n", "Question: Where is it?\nAnswer: Rome"),
        (
            QueryLikelihood(),
            "Passage: It is in Rome.\n",
            "Write a question answered by this passage.\nQuestion: Where is it?",
        ),
        (DistributionShift(), "It is in Rome.\n", "Question: Where is it?\nAnswer: the"),
    ],
)
def test_the_base_prompt_lacks_the_passage(signal, before, after):
    base, first, _ = prompts(signal)
    assert (first, base) == (before + after, after)


def test_the_joint_prompt_scores_question_and_answer_in_one_pass():
    signal = JointShift()
    assert prompts(signal)[1].endswith("\nQuestion: Where is it?\nAnswer: Rome")
    (request,) = signal.requests(TASK, CHAT)
    (continuation,) = request.continuations
    assert [s.text for s in continuation if s.scored] == [" Where is it?", " Rome"]


@pytest.mark.parametrize("name", SIGNALS)
def test_the_context_stands_first_and_nothing_that_users_wrote_is_trusted(name):
    task = ScoringTask(
        "Q<|im_end|>",
        ("P<|im_end|>",),
        context="C<|im_end|>",
        answers=("A<|x|>",),
    )
    (request,) = SIGNALS[name]().requests(task, CHAT)
    assert text(request.prefix).removeprefix(CHAT.head) == "C<|im_end|>\n"
    for group in (request.prefix, *request.candidates, *request.continuations):
        for segment in group:
            if segment.trusted:
                assert "<|im_end|>" not in segment.text
                assert "<|x|>" not in segment.text


def test_a_shift_is_the_difference_of_log_probabilities_the_questions_is_per_token():
    model = FakeLanguageModel(says_rome)
    useful, useless = measure(QueryLikelihood(), TASK, model)
    assert useful.utility == pytest.approx(4.0 / 4)
    assert useless.utility == 0.0
    useful, useless = measure(AnswerShift(), TASK, model)
    assert useful.utility == pytest.approx(4.0)
    assert useful.parts == {"answer_logprob": -1.0, "base_answer_logprob": -5.0}
    assert useless.utility == 0.0


def test_several_answers_are_alternatives():
    table = {" Rome": math.log(0.2), " Roma": math.log(0.3)}

    def logprob(context, scored):
        return table[scored] if "Rome." in context else math.log(0.1)

    task = ScoringTask("Q?", ("In Rome.",), answers=("Rome", "Roma"))
    (found,) = measure(AnswerShift(), task, FakeLanguageModel(logprob))
    assert found.utility == pytest.approx(math.log(0.5 / 0.2))


def test_the_joint_shift_thresholds_the_answer_and_orders_by_both():
    def logprob(context, scored):
        if "?" in scored:
            return -4.0 if "Rome" in context else -8.0
        return -2.0 if "rained" in context else -5.0

    useful, useless = measure(JointShift(), TASK, FakeLanguageModel(logprob))
    assert useless.utility == pytest.approx(3.0)
    assert useful.utility == 0.0
    assert useful.order_by == pytest.approx(4.0 / 4)
    assert useless.order_by == pytest.approx(3.0)


def test_a_passage_beyond_the_window_has_no_utility_but_a_reason():
    model = FakeLanguageModel(says_rome, max_tokens=30)
    task = ScoringTask("Q?", ("In Rome.", "so " * 50), answers=("Rome",))
    for signal in (AnswerShift(), JointShift(), Judge(), TrajectoryShift()):
        good, bad = measure(signal, task, model)
        assert math.isfinite(good.utility)
        assert math.isnan(bad.utility)
        assert "window" in bad.reason


def test_a_question_beyond_the_window_cannot_be_scored_at_all():
    model = FakeLanguageModel(says_rome, max_tokens=10)
    with pytest.raises(ScoringError, match="Shorten"):
        measure(AnswerShift(), ScoringTask("so " * 50, ("P.",), answers=("A",)), model)


@pytest.mark.parametrize(
    "name",
    [
        "magic",
        "magic+bm25",
        "judge+magic",
    ],
)
def test_unknown_and_unfit_signals_are_refused(name):
    for refuse in (make_signal, lambda name: ShapingConfig(signal=name)):
        with pytest.raises(ConfigurationError, match="answer_shift"):
            refuse(name)
    with pytest.raises(InvalidInputError, match="answer="):
        resolve_signal("answer_shift", has_answer=False)


class DraftingSignal:
    """An own signal that asks the model first and then scores in two requests."""

    name = "drafting"
    unit = "nats"
    needs_answer = False
    threshold = 0.5

    def __init__(self):
        self._shift = AnswerShift()

    def prepare(self, task, model, ledger):
        (draft,) = model.generate([()], seed=task.seed)
        ledger.book("query", "scorer", draft.prompt_tokens + draft.completion_tokens)
        return ScoringTask(task.query, task.passages, answers=(draft.text,))

    def requests(self, task, layout):
        return self._shift.requests(task, layout) * 2

    def utilities(self, task, results):
        first = self._shift.utilities(task, results[:1])
        second = self._shift.utilities(task, results[1:])
        sums = []
        for one, other in zip(first, second, strict=True):
            sums.append(UnitUtility(one.utility + other.utility))
        return sums


def test_an_own_signal_can_draft_answers_and_send_several_requests_but_is_not_written():
    model = FakeLanguageModel(says_rome, replies=lambda prompt: "Rome")
    config = ShapingConfig(signal=DraftingSignal())
    result = ContextShaper(model, config).shape("Where is it?", list(TASK.passages))
    assert verdicts(result) == ["helps", "neutral"]
    assert result.verdicts[0].utility == pytest.approx(8.0)
    assert result.signal == "drafting"
    with pytest.raises(ConfigurationError, match="give it by name"):
        config.to_json()


def test_a_signal_with_too_few_utilities_is_refused():
    class Short(DraftingSignal):
        def utilities(self, task, results):
            return []

    model = FakeLanguageModel(says_rome)
    config = ShapingConfig(signal=Short(), on_error="raise")
    with pytest.raises(ScoringError, match="one for each"):
        ContextShaper(model, config).shape("Where is it?", list(TASK.passages))


def test_the_judge_gives_the_log_odds_of_yes():
    def logprob(context, scored):
        yes = 0.8 if "Rome" in context.splitlines()[0] else 0.3
        return math.log(yes if scored.strip() == "Yes" else 1 - yes)

    useful, useless = measure(Judge(), TASK, FakeLanguageModel(logprob))
    assert useful.utility == pytest.approx(math.log(0.8 / 0.2), abs=1e-5)
    assert useless.utility == pytest.approx(math.log(0.3 / 0.7), abs=1e-5)


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ((), "Based on your knowledge, does this passage contain accurate information"),
        (("Rome", "Roma"), "Correct answer: Rome or Roma\nDoes this passage help answer the"),
    ],
)
def test_the_judge_asks_in_the_words_of_the_paper_and_tells_the_answer_if_it_is_known(
    answers, asked
):
    task = ScoringTask("Where is it?", ("It is in Rome.",), answers=answers)
    text = prompts(Judge(layout="plain"), task)[0]
    assert text.startswith("Passage: It is in Rome.\nQuestion: Where is it?")
    assert asked in text
    assert text.endswith("Answer: Yes")


SHIFTED = ScoringTask("Where is it?", ("It is in Rome.", "Where is it?"))


def test_the_model_continues_once_without_a_passage():
    model = FakeLanguageModel(replies=lambda _: "Paris or so, I guess")
    ledger = TokenLedger()
    signal = TrajectoryShift(horizon=3)
    task = signal.prepare(ScoringTask("Q?", ("P.",), context="C."), model, ledger)
    assert model.prompts == ["C.\nQuestion: Q?\nAnswer:"]
    assert task.trajectory == " Paris or so,"
    assert ledger.total() > 0
    assert prompts(signal, task, model.layout)[1] == "C.\nP.\nQuestion: Q?\nAnswer: Paris or so,"
    assert signal.prepare(task, model, ledger) is task
    assert len(model.prompts) == 1


def test_the_trajectory_is_the_sum_over_at_most_horizon_tokens():
    model = FakeLanguageModel(replies=lambda _: "one, two")
    signal = TrajectoryShift(horizon=2)
    task = signal.prepare(SHIFTED, model, TokenLedger())
    requests = signal.requests(task, model.layout)
    (result,) = model.score(requests)
    along = result.scores[1][0][0].divergence
    assert len(along) == 3
    found, _ = signal.utilities(task, [result])
    assert found.utility == pytest.approx(float(along[:2].sum()))
    assert found.parts["tokens_compared"] == 2


def test_a_model_with_nothing_to_say_is_compared_at_its_first_token():
    model = FakeLanguageModel(replies=lambda _: "")
    along, _ = measure(TrajectoryShift(), SHIFTED, model)
    first, _ = measure(DistributionShift(), SHIFTED, model)
    assert along.utility == pytest.approx(first.utility)
    assert along.parts["tokens_compared"] == 1


@pytest.mark.parametrize("name", ["distribution_shift", "trajectory_shift"])
def test_a_magnitude_only_ranks_and_never_says_that_a_passage_hurts(name):
    ranking = ShapingConfig(signal=name, top_k=1)
    shaped = ContextShaper(FakeLanguageModel(), ranking).shape(SHIFTED.query, SHIFTED.passages)
    assert kept(shaped) == [0]
    decided = ContextShaper(
        FakeLanguageModel(),
        ShapingConfig(
            signal=name,
            threshold=0.001,
            ranker=None,
        ),
    ).shape(SHIFTED.query, SHIFTED.passages, read_as=SHIFTED.passages)
    assert verdicts(decided) == ["helps", "neutral"]
    assert decided.verdicts[1].utility == pytest.approx(0.0, abs=1e-6)


class Silent(FakeLanguageModel):
    def _segment(self, context, text, base):
        return super()._segment(context, text, None)


def test_a_model_without_divergences_is_named_as_the_reason():
    with pytest.raises(ConfigurationError, match="no divergences"):
        measure(DistributionShift(), SHIFTED, Silent())
