"""Query coverage, against its definition computed text by text."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.common.text import terms
from ecs_plugins.ranking import coverage, dense
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.ranking.registry import make_ranker

WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=6).map(" ".join)
NUMBERS = st.integers(0, 9)
CHANGES = st.lists(st.tuples(NUMBERS, st.none() | WORDS), max_size=30)


def defined(query, texts):
    """The share of the weight of the query's terms that each text has, by number."""
    n = max(coverage.MIN_TEXTS, len(texts))
    terms_of = {number: set(terms(text)) for number, text in texts.items()}
    idf = {}
    for term in terms(query):
        df = sum(term in held for held in terms_of.values())
        idf[term] = math.log(1 + (n - df + 0.5) / (df + 0.5))
    total = sum(idf.values()) or 1.0
    shares = {}
    for number, held in terms_of.items():
        covered = idf.keys() & held
        shares[number] = sum(idf[term] for term in covered) / total
    return shares


def indexed(changes):
    """The index after some changes, and the texts that it then holds, by number."""
    index = CoverageIndex()
    texts = {}
    for number, text in changes:
        if text is None:
            index.discard(number)
            texts.pop(number, None)
        else:
            index.add(number, text)
            texts[number] = text
    return index, texts


@settings(deadline=None)
@given(CHANGES, WORDS)
def test_the_index_equals_the_definition_after_changes(changes, query):
    index, texts = indexed(changes)
    expected = defined(query, texts)
    shares = [expected.get(number, 0.0) for number in range(10)]
    covered = index.coverage(query, np.arange(10))
    assert covered.tolist() == pytest.approx(shares)
    occurrences = sum(len(set(terms(text))) for text in texts.values())
    assert index.size == 30 * occurrences


@settings(deadline=None)
@given(CHANGES, WORDS)
def test_the_nearest_are_those_that_cover_most_by_the_definition(changes, query):
    index, texts = indexed(changes)
    expected = defined(query, texts)

    def best_first(number):
        return -round(expected[number], 9), number

    covering = [number for number, share in expected.items() if share > 0]
    best = sorted(covering, key=best_first)[:4]
    others = [3, 7]
    further = [number for number in best if number not in others]
    numbers, shares, least = index.nearest(query, 4, np.array(others))
    assert numbers.tolist() == others + further
    assert shares.tolist() == pytest.approx([expected.get(number, 0.0) for number in numbers])
    assert least == pytest.approx(expected[best[3]] if len(best) == 4 else 0.0)


def test_frequent_terms_only_decide_among_the_best_by_the_rare_ones(monkeypatch):
    index = CoverageIndex()
    texts = ["the", "the train"] * 20 + ["the rare train"]
    for number, text in enumerate(texts):
        index.add(number, text)
    query = "the rare train"
    numbers, _, _ = index.nearest(query, 3, np.empty(0, dtype=int))
    assert numbers.tolist() == [40, 1, 3]
    monkeypatch.setattr(coverage, "POSTINGS_READ", 5)
    numbers, shares, _ = index.nearest(query, 3, np.array([2, 1]))
    covered = index.coverage(query, numbers)
    assert numbers.tolist() == [2, 1, 40]
    assert shares.tolist() == covered.tolist()


def test_coverage_means_the_same_for_every_question():
    ranker = make_ranker("coverage")
    ranking = ranker.rank("bees?", ["bees, bees and bees", "a mill", ""])
    without_words = ranker.rank("?", ["bees"])
    assert ranking.scores == (1.0, 0.0, 0.0)
    assert without_words.scores == (0.0,)


def test_convex_is_the_mean_of_cosine_and_coverage_and_embeds_the_best_by_words_only(monkeypatch):
    texts = ["bees need water", "a mill by the water", "the station"]
    query = "water for bees"
    embedder = FakeEmbedder()
    by_words = make_ranker("coverage").rank(query, texts)
    by_meaning = DenseRanker(embedder).rank(query, texts)
    convex = make_ranker("convex", embedder)
    ranking = convex.rank(query, texts)
    sums = np.add(by_words.scores, by_meaning.scores)
    assert ranking.scores == pytest.approx(sums / 2)
    monkeypatch.setattr(dense, "MAX_DENSE", 1)
    ranking = convex.rank("bees", ["a mill", "bees"])
    assert ranking.scores == pytest.approx((0.0, 1.0))
