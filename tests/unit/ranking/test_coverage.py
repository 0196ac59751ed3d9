"""Query coverage, against its definition computed text by text."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.common.text import terms
from ecs_plugins.ranking import coverage, dense, make_ranker
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.ranking.embedder import FakeEmbedder

WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=6).map(" ".join)


def defined(query, texts):
    """The share of the weight of the query's terms that each text has, by number."""

    def idf(term):
        df = sum(term in terms(text) for text in texts.values())
        n = max(coverage.MIN_TEXTS, len(texts))
        return math.log(1 + (n - df + 0.5) / (df + 0.5))

    asked = set(terms(query))
    total = sum(map(idf, asked)) or 1.0
    return {
        number: sum(idf(term) for term in asked if term in terms(text)) / total
        for number, text in texts.items()
    }


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.none() | WORDS), max_size=30), WORDS)
def test_after_any_changes_the_index_says_what_the_definition_says(changes, query):
    index, texts = CoverageIndex(), {}
    for number, text in changes:
        if text is None:
            index.discard(number)
            texts.pop(number, None)
        else:
            index.add(number, text)
            texts[number] = text
    expected = defined(query, texts)
    assert index.size == 30 * sum(len(set(terms(text))) for text in texts.values())
    shares = [expected.get(number, 0.0) for number in range(10)]
    assert index.coverage(query, np.arange(10)).tolist() == pytest.approx(shares)
    covering = {number: share for number, share in expected.items() if share > 0}
    best = sorted(covering, key=lambda number: (-round(covering[number], 9), number))
    numbers, found, least = index.nearest(query, 4, np.array([3, 7]))
    assert numbers.tolist() == [3, 7, *(each for each in best[:4] if each not in (3, 7))]
    assert found.tolist() == pytest.approx([shares[number] for number in numbers])
    assert least == pytest.approx(covering[best[3]] if len(best) > 3 else 0.0)


def test_frequent_terms_only_decide_among_the_best_by_the_rare_ones(monkeypatch):
    index = CoverageIndex()
    for number, text in enumerate(["the", "the train"] * 20 + ["the rare train"]):
        index.add(number, text)
    assert index.nearest("the rare train", 3, np.empty(0, dtype=int))[0].tolist() == [40, 1, 3]
    monkeypatch.setattr(coverage, "POSTINGS_READ", 5)
    numbers, shares, _ = index.nearest("the rare train", 3, np.array([2, 1]))
    assert numbers.tolist() == [2, 1, 40]
    assert shares.tolist() == index.coverage("the rare train", numbers).tolist()


def test_coverage_means_the_same_for_every_question():
    ranking = make_ranker("coverage").rank("bees?", ["bees, bees and bees", "a mill", ""])
    assert ranking.scores == (1.0, 0.0, 0.0)
    assert make_ranker("coverage").rank("?", ["bees"]).scores == (0.0,)


def test_convex_is_the_mean_of_cosine_and_coverage_and_embeds_the_best_by_words_only(monkeypatch):
    texts = ["bees need water", "a mill by the water", "the station"]
    embedder = FakeEmbedder()
    words = make_ranker("coverage").rank("water for bees", texts).scores
    meaning = DenseRanker(embedder).rank("water for bees", texts).scores
    half = [(w + m) / 2 for w, m in zip(words, meaning, strict=True)]
    convex = make_ranker("convex", embedder)
    assert convex.rank("water for bees", texts).scores == pytest.approx(half)
    monkeypatch.setattr(dense, "MAX_DENSE", 1)
    assert convex.rank("bees", ["a mill", "bees"]).scores == pytest.approx((0.0, 1.0))
