import copy
import logging
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.common.text import terms
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.ranking import Ranker, Ranking
from ecs_plugins.ranking.lexical import BM25Ranker, TfidfQueryRanker, TfidfRanker
from ecs_plugins.ranking.registry import RANKERS, make_ranker

PASSAGES = [
    "The station opens at nine.",
    "Anna keeps bees behind the old mill.",
    "Bees need water in summer.",
    "The mill burned down in 1904, and the mill was never rebuilt.",
]


class WordEmbedder:
    """A dimension per known word, so that a cosine can be computed by hand, and one for none."""

    name = "words"
    vocabulary = ("bees", "mill", "station", "water")
    dimension = len(vocabulary) + 1

    def __init__(self):
        self.embedded = []

    def embed_documents(self, texts):
        self.embedded.extend(texts)
        rows = [self.embed_query(text) for text in texts]
        array = np.array(rows, dtype=np.float32)
        return array.reshape(len(texts), self.dimension)

    def embed_query(self, text):
        words = terms(text)
        counted = [word in words for word in self.vocabulary]
        counted.append(not any(counted))
        vector = np.array(counted, dtype=np.float32)
        length = float(np.linalg.norm(vector))
        return vector / length


@pytest.fixture(params=RANKERS)
def ranker(request):
    return make_ranker(request.param, WordEmbedder())


DEGENERATE = {
    "no passages": [],
    "one passage": ["Anna keeps bees."],
    "empty strings": ["", "   ", "\n"],
    "no vocabulary": ["!!!", "...", "?"],
    "identical": ["the same words"] * 5,
    "one empty among others": ["", "Anna keeps bees."],
}


@pytest.mark.parametrize("passages", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("query", ["Where are the bees?", "??", "Ω unseen"])
def test_degenerate_input_is_ranked_completely_with_finite_floats(ranker, query, passages):
    assert isinstance(ranker, Ranker)
    ranking = ranker.rank(query, passages)
    assert sorted(ranking.order) == list(range(len(passages)))
    for score in ranking.scores:
        assert type(score) is float
        assert math.isfinite(score)


QUERY_AWARE = sorted(set(RANKERS) - {"tfidf"})


@pytest.mark.parametrize("name", QUERY_AWARE)
def test_a_passage_about_the_question_comes_first(name):
    ranking = make_ranker(name, WordEmbedder()).rank("water for bees", PASSAGES)
    assert ranking.order[0] == 2


def test_vanilla_tfidf_does_not_depend_on_the_question():
    ranker = TfidfRanker()
    ranking = ranker.rank("bees", PASSAGES)
    other = ranker.rank("station", PASSAGES)
    assert ranking == other


def test_words_of_scripts_without_spaces_are_found():
    passages = ["私は東京都に住んでいます。", "大阪で蜂を飼っています。", "我的生日是五月七日。"]
    by_bm25 = BM25Ranker().rank("東京に住む人は誰?", passages)
    by_tfidf = TfidfQueryRanker().rank("你的生日是什么时候", passages)
    assert by_bm25.order[0] == 0
    assert by_tfidf.order[0] == 2


def test_case_and_width_and_inflected_accents_do_not_matter():
    assert terms("ＡＮＮＡ Straße CAFÉ") == ["anna", "strasse", "café"]
    assert terms("بُنيت المنارة") == terms("بنيت المنارة") == ["بنيت", "المنارة"]
    assert terms("हिन्दी में") == ["हिन्दी", "में"]


def test_a_passage_is_embedded_once_however_often_it_is_ranked_and_a_blank_one_never():
    embedder = WordEmbedder()
    ranker = make_ranker("dense", embedder)
    first = ranker.rank("bees", [*PASSAGES, PASSAGES[0], " \n"])
    assert embedder.embedded == PASSAGES
    again = ranker.rank("bees", ["", *PASSAGES])
    assert embedder.embedded == PASSAGES
    assert again.scores[1:] == first.scores[:-2]


def test_an_unknown_ranker_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ConfigurationError, match="tfidf_query"):
        make_ranker("elastic")


def test_a_dense_ranker_serves_threads_and_pickles_without_cache():
    ranker = make_ranker("dense", WordEmbedder())
    with ThreadPoolExecutor(4) as pool:
        rankings = set(pool.map(lambda _: ranker.rank("bees", PASSAGES), range(8)))
    assert len(rankings) == 1
    assert copy.deepcopy(ranker) is ranker
    pickled = pickle.dumps(ranker)
    assert len(pickled) < 600
    again = pickle.loads(pickled)
    assert again.rank("bees", PASSAGES) in rankings


@settings(deadline=None)
@given(st.lists(st.one_of(st.floats(), st.sampled_from([0.0, 1.0])), max_size=30))
def test_a_ranking_is_a_stable_permutation_best_first(scores):
    ranking = Ranking.from_scores(scores)
    assert sorted(ranking.order) == list(range(len(scores)))
    for place, next_place in pairwise(ranking.order):
        score = ranking.scores[place]
        next_score = ranking.scores[next_place]
        assert score >= next_score
        if score == next_score:
            assert place < next_place


@settings(max_examples=10, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=8), st.text(max_size=20), st.randoms())
def test_scores_do_not_depend_on_the_order_of_the_passages(passages, query, random):
    places = list(range(len(passages)))
    random.shuffle(places)
    shuffled = [passages[place] for place in places]
    for name in RANKERS:
        ranker = make_ranker(name, WordEmbedder())
        scores = ranker.rank(query, passages).scores
        expected = [scores[place] for place in places]
        ranking = ranker.rank(query, shuffled)
        assert ranking.scores == pytest.approx(expected, abs=1e-6)


def test_a_ranking_leaves_no_debug_line_in_the_log_of_an_application():
    BM25Ranker().rank("bees", ["bees hum", "a mill"])
    log = logging.getLogger("bm25s")
    assert not log.isEnabledFor(logging.DEBUG)
