import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking import Ranking
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.signals import JointShift, QueryLikelihood, RankFused
from ecs_plugins.shaping.signals.base import ScoringTask, UnitUtility
from ecs_plugins.shaping.signals.combined import complementary_order, links


def test_the_second_hop_comes_before_a_repetition_of_the_first():
    by_token = [
        [-1.0, -1.0, -9.0, -9.0],
        [-1.0, -1.2, -9.0, -9.0],
        [-9.0, -9.0, -1.0, -4.0],
    ]
    relevance = [1.0, 0.9, -0.5]
    linked = np.zeros((3, 3))
    assert complementary_order(relevance, by_token, linked) == [0, 2, 1]
    linked[1, 0] = 9.0
    assert complementary_order(relevance, by_token, linked) == [0, 1, 2]


def test_a_passage_leads_to_those_whose_titles_it_names_beyond_the_question():
    passages = [
        "Night Ferry: It was painted by Ada Moran.",
        "Ada Moran: She was born in Bergen.",
        "Ada Moran\nHer teacher was Jon Lie.",
        "Lie: A speaker's name. Jon Lie: Not in front.",
    ]
    named = links("Where was the painter of Night Ferry born?", passages)
    assert named.tolist() == [
        [0, 0, 0, 0],
        [1, 0, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 0],
    ]


def test_a_told_title_counts_in_any_layout_and_in_place_of_the_texts_own():
    passages = [
        "It was painted by Moran.",
        "She was born in Bergen.",
        "Ada Moran: Not of her.",
    ]
    told = {passages[1]: "Moran", passages[2]: "Remarks"}
    assert links("Where was the painter born?", passages, told).tolist() == [
        [0, 0, 0],
        [1, 0, 1],
        [0, 0, 0],
    ]
    untold = links("Where was the painter born?", passages)
    assert not untold[1].any()
    assert untold[2, 0] > 0.0


def test_titles_that_are_told_lead_to_the_second_hop():
    passages = ["The ferry was painted by Moran.", "The ferry is blue.", "She was born in Bergen."]
    question = "Where was the painter of the ferry born?"
    by_token = [[-1.0] * 4, [-1.5] * 4, [-2.5] * 4]
    signal = RankFused(Known(by_token), (Scoring(lambda *_: 0.0),))
    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(signal=signal))

    def order(**options):
        return [verdict.index for verdict in shaper.shape(question, passages, **options).ranked]

    assert order() == [0, 1, 2]
    assert order(titles=[None, None, "Moran"]) == [0, 2, 1]


@pytest.mark.parametrize("titles", ["abc", ["a"], ["a", 1, None], [b"a", None, None]])
def test_titles_are_one_text_or_none_for_every_passage(titles):
    shaper = ContextShaper(FakeLanguageModel())
    with pytest.raises(InvalidInputError, match="titles must be 3 texts"):
        shaper.shape("Where?", ["One.", "Two.", "Three."], titles=titles)


def test_names_of_speakers_are_no_titles():
    turns = ["Ada Moran: I did.", "Jon Lie: Ada Moran did."] * 4
    assert not links("Who rowed?", turns).any()


class Known:
    """Signal with given values for each passage."""

    name = "known"
    unit = "nats"
    needs_answer = False
    threshold = None

    def __init__(self, by_token):
        self.by_token = by_token

    def prepare(self, task, model, ledger):
        return task

    def requests(self, task, layout):
        return []

    def utilities(self, task, results):
        utilities = []
        for row in self.by_token:
            mean = np.mean(row) if row else -3.0
            utilities.append(UnitUtility(float(mean), by_token=tuple(row)))
        return utilities


class Scoring:
    """A ranker that scores passages by a function of the query and the passage."""

    name = "scoring"

    def __init__(self, score):
        self.score = score

    def rank(self, query, passages):
        return Ranking.from_scores(self.score(query, passage) for passage in passages)


CASTLE = (-0.1, -6.0)
AGAIN = (-0.2, -6.0)
RIVER = (-6.0, -1.5)


def fused(by_token):
    """Return the verdicts of three passages by given rows, without a ranker."""
    indifferent = Scoring(lambda *_: 0.0)
    signal = RankFused(Known(by_token), (indifferent,))
    return signal.utilities(ScoringTask("Castle, river?", tuple("abc")), [])


def values(utilities):
    return [utility.utility for utility in utilities]


def keys(utilities):
    return [utility.order_by for utility in utilities]


def best_first(utilities):
    return sorted(range(3), key=lambda index: -utilities[index].order_by)


def test_fusion_orders_passages_that_complement_each_other_first():
    covering = fused([AGAIN, RIVER, CASTLE])
    relevance = [utility.parts["relevance"] for utility in covering]
    assert np.argsort(relevance)[::-1].tolist() in ([2, 0, 1], [1, 2, 0])
    assert set(best_first(covering)[:2]) == {1, 2}
    assert sorted(keys(covering)) == sorted(relevance)
    assert values(covering) == [np.mean(row) for row in (AGAIN, RIVER, CASTLE)]


def test_a_signal_that_does_not_score_the_question_is_ordered_by_relevance():
    utilities = fused([AGAIN, (), CASTLE])
    assert keys(utilities) == [utility.parts["relevance"] for utility in utilities]


TASK = ScoringTask("Where is it?", ("It is in Rome.", "It rained."), answers=("Rome", "Roma"))


def measure(signal, model, task=TASK):
    return signal.utilities(task, model.score(signal.requests(task, model.layout)))


def test_fusion_orders_by_both_and_leaves_the_utility_alone():
    model = FakeLanguageModel(lambda context, scored: -1.0)
    by_length = Scoring(lambda query, text: len(text))
    alone = measure(QueryLikelihood(), model)
    both = measure(RankFused(QueryLikelihood(), (by_length,)), model)
    assert values(both) == values(alone)
    assert keys(both) == pytest.approx([1.0, -1.0])
    assert both[0].parts["scoring_z"] == pytest.approx(1.0)


def test_retriever_scores_take_the_place_of_embeddings():
    passages = ["Rome old. Rome stands.", "Rained all day.", "x " * 3000]
    config = ShapingConfig(
        top_k=1,
        ranker=None,
        unit="sentence",
        on_error="raise",
    )
    shaper = ContextShaper(FakeLanguageModel(lambda *_: -1.0), config)
    for best in range(3):
        scores = [0.0, 0.0, 0.0]
        scores[best] = 1.0
        shaped = shaper.shape("Where is it?", passages, scores=scores)
        assert shaped.kept[0].index == best


@pytest.mark.parametrize("scores", [[1.0], [0.0, 1.0, float("nan")], [0.0, "1", 2.0]])
def test_scores_are_a_finite_number_for_each_passage(scores):
    shaper = ContextShaper(FakeLanguageModel())
    with pytest.raises(ValueError, match="3 finite numbers"):
        shaper.shape("Where is it?", ["It is in Rome.", "It rained.", "x"], scores=scores)


@pytest.mark.parametrize("signal", [JointShift(), QueryLikelihood()])
def test_a_ranker_is_asked_with_the_answer_only_where_it_was_given(signal):
    task = ScoringTask("What rose?", ("It was bread", "What was it"), answers=("bread",))
    model = FakeLanguageModel(lambda context, scored: -1.0)
    both = measure(RankFused(signal, (Scoring(shared_words),)), model, task)
    parts = both[0].parts
    assert parts["scoring_z"] == -1.0
    if signal.needs_answer:
        assert parts["answer_z"] == 1.0
        assert both[0].parts["relevance"] == both[1].parts["relevance"]
    else:
        assert "answer_z" not in parts
        assert [each.parts["relevance"] for each in both] == [-1.0, 1.0]


def shared_words(query, text):
    asked = set(query.lower().split())
    return len(asked & set(text.lower().split()))
