import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking import Ranking
from ecs_plugins.shaping import ContextShaper, ShapingConfig, UnitUtility
from ecs_plugins.shaping.signals import JointShift, QueryLikelihood, RankFused
from ecs_plugins.shaping.signals.base import ScoringTask
from ecs_plugins.shaping.signals.fused import complementary_order, z_scores


def plainly(relevance, by_token, weight, depth):
    """The definition, one passage and one token at a time."""
    means = [math.fsum(row) / len(row) for row in by_token]
    mean = math.fsum(means) / len(means)
    spread = math.sqrt(math.fsum((m - mean) ** 2 for m in means) / len(means))
    left = sorted(range(len(relevance)), key=lambda i: (-relevance[i], i))
    if not spread:
        return left
    chosen = [left.pop(0)]
    while left and len(chosen) < depth:

        def score(i, chosen=tuple(chosen)):
            gains = [
                max(0.0, here - max(by_token[c][t] for c in chosen))
                for t, here in enumerate(by_token[i])
            ]
            return relevance[i] + weight * math.fsum(gains) / len(gains) / spread

        best = max(left, key=lambda i: (round(score(i), 9), -left.index(i)))
        chosen.append(best)
        left.remove(best)
    return chosen + left  # fmt: skip


rows = st.integers(2, 7).flatmap(
    lambda n: st.integers(1, 5).flatmap(
        lambda t: st.tuples(
            st.lists(st.integers(-30, 30), min_size=n, max_size=n),
            st.lists(st.lists(st.integers(-40, 0), min_size=t, max_size=t), min_size=n, max_size=n),
        )
    )
)


@given(rows, st.sampled_from([0.5, 1.0, 2.0]), st.integers(1, 5))
def test_the_order_is_that_of_the_definition(drawn, weight, depth):
    # Eighths of an odd step: sums of them never tie by rounding alone.
    relevance = [value * 0.37 for value in drawn[0]]
    by_token = [[value / 8 for value in row] for row in drawn[1]]
    found = complementary_order(relevance, by_token, weight, depth=depth)
    assert sorted(found) == list(range(len(relevance)))
    wanted = plainly(relevance, by_token, weight, depth)
    if found != wanted:  # only where two are equal up to rounding
        place = next(k for k, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
        assert _score(found, place, relevance, by_token, weight) == pytest.approx(
            _score([*found[:place], wanted[place]], place, relevance, by_token, weight)
        )


def _score(order, place, relevance, by_token, weight):
    means = np.array(by_token).mean(axis=1)
    best = np.array([by_token[i] for i in order[:place]]).max(axis=0)
    gain = np.maximum(np.array(by_token[order[place]]) - best, 0).mean() / means.std()
    return relevance[order[place]] + weight * gain


def test_the_second_hop_comes_before_a_repetition_of_the_first():
    by_token = [[-1.0, -1.0, -9.0, -9.0], [-1.0, -1.2, -9.0, -9.0], [-9.0, -9.0, -1.0, -4.0]]
    relevance = [1.0, 0.9, -0.5]
    assert complementary_order(relevance, by_token, 0.0) == [0, 1, 2]
    assert complementary_order(relevance, by_token, 1.0) == [0, 2, 1]


class Known:
    """A signal that says what it is told of each passage."""

    name, unit, needs_answer, cost, threshold = "known", "nats", False, "nothing", None

    def __init__(self, by_token):
        self.by_token = by_token

    def prepare(self, task, model, ledger):
        return task

    def requests(self, task, layout):
        return []

    def utilities(self, task, results):
        means = [np.mean(row) if row else -3.0 for row in self.by_token]
        return [
            UnitUtility(float(mean), by_token=tuple(row))
            for mean, row in zip(means, self.by_token, strict=True)
        ]


class Flat:
    name = "flat"

    def rank(self, query, passages):
        return Ranking.from_scores([0.0] * len(passages))


CASTLE, AGAIN, RIVER = (-0.1, -6.0), (-0.2, -6.0), (-6.0, -1.5)


def fused_order(by_token, **settings):
    task = ScoringTask("Castle, river?", tuple("abc"))
    found = RankFused(Known(by_token), Flat(), **settings).utilities(task, [])
    return found, sorted(range(3), key=lambda i: -found[i].order_by)


def test_fusion_orders_passages_that_complement_each_other_first():
    relevant, by_relevance = fused_order([AGAIN, RIVER, CASTLE], coverage=0.0)
    assert by_relevance == [2, 0, 1] or by_relevance == [1, 2, 0]
    covering, order = fused_order([AGAIN, RIVER, CASTLE])
    assert {order[0], order[1]} == {1, 2}
    assert sorted(u.order_by for u in covering) == sorted(u.order_by for u in relevant)
    assert [u.utility for u in covering] == [u.utility for u in relevant]


def test_a_signal_that_does_not_score_the_question_is_ordered_by_relevance():
    one, order = fused_order([AGAIN, (), CASTLE])
    other, same = fused_order([AGAIN, (), CASTLE], coverage=0.0)
    assert (order, one) == (same, other)


@pytest.mark.parametrize("signal", [QueryLikelihood(), JointShift()])
def test_signals_that_score_the_question_say_how_likely_each_of_its_tokens_is(signal):
    model = FakeLanguageModel()
    task = ScoringTask("Where is the castle?", ("In Altena.", "By a river."), answers=("Altena",))
    found = signal.utilities(task, model.score(signal.requests(task, model.layout)))
    for unit in found:
        assert len(unit.by_token) == 5
        if "query_logprob" in unit.parts:
            assert np.mean(unit.by_token) == pytest.approx(unit.parts["query_logprob"])


TASK = ScoringTask("Where is it?", ("It is in Rome.", "It rained."), answers=("Rome", "Roma"))


def measure(signal, model, task=TASK):
    return signal.utilities(task, model.score(signal.requests(task, model.layout)))


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
    fused = measure(RankFused(QueryLikelihood(), ByLength(), weight=0.5), model)
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
