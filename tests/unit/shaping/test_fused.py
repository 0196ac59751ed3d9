import numpy as np
import pytest

from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking import Ranking
from ecs_plugins.shaping import ContextShaper, ShapingConfig, UnitUtility
from ecs_plugins.shaping.signals import JointShift, QueryLikelihood, RankFused
from ecs_plugins.shaping.signals.base import ScoringTask
from ecs_plugins.shaping.signals.fused import complementary_order, links


def test_the_second_hop_comes_before_a_repetition_of_the_first():
    by_token = [[-1.0, -1.0, -9.0, -9.0], [-1.0, -1.2, -9.0, -9.0], [-9.0, -9.0, -1.0, -4.0]]
    relevance, linked = [1.0, 0.9, -0.5], np.zeros((3, 3))
    assert complementary_order(relevance, by_token, 0.0, linked) == [0, 1, 2]
    assert complementary_order(relevance, by_token, 1.0, linked) == [0, 2, 1]
    linked[1, 0] = 9.0
    assert complementary_order(relevance, by_token, 1.0, linked) == [0, 1, 2]


def test_a_passage_leads_to_those_whose_titles_it_names_beyond_the_question():
    about = ["Night Ferry: It was painted by Ada Moran.", "Ada Moran: She was born in Bergen."]
    about += [
        "Ada Moran\nHer teacher was Jon Lie.",
        "Lie: A speaker's name. Jon Lie: Not in front.",
    ]
    found = links("Where was the painter of Night Ferry born?", about)
    assert found.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert not links("Who rowed?", ["Ada Moran: I did.", "Jon Lie: Ada Moran did."] * 4).any()


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


class Scoring:
    """A ranker that scores passages by a function of the query and the passage."""

    name = "scoring"

    def __init__(self, score):
        self.score = score

    def rank(self, query, passages):
        return Ranking.from_scores(self.score(query, passage) for passage in passages)


CASTLE, AGAIN, RIVER = (-0.1, -6.0), (-0.2, -6.0), (-6.0, -1.5)


def fused_order(by_token, **settings):
    task = ScoringTask("Castle, river?", tuple("abc"))
    found = RankFused(Known(by_token), Scoring(lambda *_: 0.0), **settings).utilities(task, [])
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


TASK = ScoringTask("Where is it?", ("It is in Rome.", "It rained."), answers=("Rome", "Roma"))


def measure(signal, model, task=TASK):
    return signal.utilities(task, model.score(signal.requests(task, model.layout)))


def test_fusion_orders_by_both_and_leaves_the_utility_alone():
    model = FakeLanguageModel(lambda context, scored: -1.0)
    alone = measure(QueryLikelihood(), model)
    fused = measure(RankFused(QueryLikelihood(), Scoring(lambda query, text: len(text))), model)
    assert [unit.utility for unit in fused] == [unit.utility for unit in alone]
    assert [unit.order_by for unit in fused] == pytest.approx([0.5, -0.5])
    assert fused[0].parts["ranker_z"] == pytest.approx(1.0)


def test_what_found_the_passages_takes_the_place_of_the_ranker():
    passages = ["It is in Rome. Rome is old.", "It rained.", "x " * 3000]
    config = ShapingConfig(top_k=1, ranker=None, unit="sentence", on_error="raise")
    shaper = ContextShaper(FakeLanguageModel(lambda *_: -1.0), config)
    for best, scores in enumerate(np.eye(3).tolist()):
        assert shaper.shape("Where is it?", passages, scores=scores).kept[0].index == best
    for bad in ([1.0], [0.0, 1.0, float("nan")], [0.0, "1", 2.0]):
        with pytest.raises(ValueError, match="3 finite numbers"):
            shaper.shape("Where is it?", passages, scores=bad)


@pytest.mark.parametrize("signal", [JointShift(), QueryLikelihood()])
def test_a_ranker_is_asked_with_the_answer_only_where_it_was_given(signal):
    task = ScoringTask("What rose?", ("It was bread", "What was it"), answers=("bread",))
    model = FakeLanguageModel(lambda context, scored: -1.0)
    shared = Scoring(lambda query, text: len({*query.lower().split()} & {*text.lower().split()}))
    fused = measure(RankFused(signal, shared, coverage=0.0), model, task)
    parts = [{k: v for k, v in unit.parts.items() if "ranker" in k} for unit in fused]
    if signal.needs_answer:
        assert parts[0] == {"ranker_z": -1.0, "answer_ranker_z": 1.0}
        assert [unit.order_by for unit in fused] == [0.0, 0.0]
    else:
        assert parts[0] == {"ranker_z": -1.0}
        assert [unit.order_by for unit in fused] == [-0.5, 0.5]
