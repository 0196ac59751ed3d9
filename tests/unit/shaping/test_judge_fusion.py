import math

import pytest
from ecs_plugins.shaping.judge import Judge

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import ChatLayout
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.base import Ranking
from ecs_plugins.shaping import (
    ContextShaper,
    JointShift,
    QueryLikelihood,
    ScoringTask,
    ShapingConfig,
)
from ecs_plugins.shaping.signals.fused import RankFused, z_scores

PLAIN = ChatLayout("", "\n", chat=False)
TASK = ScoringTask("Where is it?", ("It is in Rome.", "It rained."), answers=("Rome", "Roma"))


def measure(signal, model, task=TASK):
    return signal.utilities(task, model.score(signal.requests(task, model.layout)))


def prompt(signal):
    (request,) = signal.requests(TASK, PLAIN)
    parts = (*request.prefix, *request.candidates[0], *request.continuations[0])
    return "".join(segment.text for segment in parts)


def test_the_judge_gives_the_log_odds_of_yes():
    def logprob(context, scored):
        yes = 0.8 if "Rome" in context.splitlines()[0] else 0.3
        return math.log(yes if scored.strip() == "Yes" else 1 - yes)

    useful, useless = measure(Judge(), FakeLanguageModel(logprob))
    assert useful.utility == pytest.approx(math.log(0.8 / 0.2), abs=1e-5)
    assert useless.utility == pytest.approx(math.log(0.3 / 0.7), abs=1e-5)


@pytest.mark.parametrize(
    ("wording", "asked"),
    [
        ("factuality", "Based on your knowledge, does this passage contain accurate information"),
        ("helpfulness", "Does this passage help answer the question?"),
        ("correctness", "Does this passage help answer the question correctly?"),
    ],
)
def test_the_judge_asks_in_the_words_of_the_paper(wording, asked):
    text = prompt(Judge(wording))
    assert asked in text
    assert text.startswith("Passage: It is in Rome.\nQuestion: Where is it?")
    assert text.endswith("Answer: Yes")


def test_only_the_judge_of_correctness_sees_the_answer():
    assert "Rome or Roma" in prompt(Judge("correctness"))
    assert Judge("correctness").needs_answer
    assert "Roma" not in prompt(Judge("helpfulness"))
    assert not Judge("helpfulness").needs_answer


def test_a_passage_that_the_judge_cannot_read_is_not_a_number():
    task = ScoringTask("Q?", ("Short.", "long " * 300))
    short, long = measure(Judge(), FakeLanguageModel(max_tokens=100), task)
    assert math.isfinite(short.utility)
    assert math.isnan(long.utility)
    assert "window" in long.reason


def test_an_unknown_wording_is_refused():
    with pytest.raises(ConfigurationError, match="helpfulness"):
        Judge("truth")


def test_z_scores_have_mean_zero_and_deviation_one_and_leave_out_what_is_no_number():
    low, missing, high = z_scores([1.0, math.nan, 3.0])
    assert (low, high) == pytest.approx((-1.0, 1.0))
    assert math.isnan(missing)
    assert z_scores([2.0, 2.0]) == [0.0, 0.0]
    assert z_scores([]) == []


class ByLength:
    name = "length"

    def rank(self, query, passages):
        return Ranking.from_scores(len(passage) for passage in passages)


def test_fusion_orders_by_both_and_leaves_the_utility_alone():
    model = FakeLanguageModel(lambda context, scored: -1.0)
    alone = measure(QueryLikelihood(), model)
    fused = measure(RankFused(ranker=ByLength(), weight=0.5), model)
    assert [unit.utility for unit in fused] == [unit.utility for unit in alone]
    assert [unit.order_by for unit in fused] == pytest.approx([0.5, -0.5])
    assert fused[0].parts["ranker_z"] == pytest.approx(1.0)


class WordsShared:
    name = "shared"

    def rank(self, query, passages):
        words = set(query.lower().split())
        return Ranking.from_scores(len(words & set(p.lower().split())) for p in passages)


@pytest.mark.parametrize("signal", [JointShift(), QueryLikelihood()])
def test_a_ranker_is_asked_with_the_answer_only_where_it_was_given(signal):
    task = ScoringTask("What rose?", ("It was bread", "What was it"), answers=("bread",))
    model = FakeLanguageModel(lambda context, scored: -1.0)
    fused = measure(RankFused(signal, WordsShared(), weight=0.5, coverage=0.0), model, task)
    parts = [{k: v for k, v in unit.parts.items() if "ranker" in k} for unit in fused]
    if signal.needs_answer:
        assert parts[0] == {"ranker_z": -1.0, "answer_ranker_z": 1.0}
        assert [unit.order_by for unit in fused] == [0.0, 0.0]
    else:
        assert parts[0] == {"ranker_z": -1.0}
        assert [unit.order_by for unit in fused] == [-0.5, 0.5]


def test_the_default_orders_passages_of_equal_likelihood_by_their_words():
    def alike(context, scored):
        return -1.0 * len(scored)

    shaped = ContextShaper(FakeLanguageModel(alike), ShapingConfig(top_k=1)).shape(
        "Where is the Colosseum?", ["It rained all day.", "The Colosseum is in Rome."]
    )
    assert shaped.signal == "query_likelihood+bm25"
    assert [verdict.index for verdict in shaped.kept] == [1]
