import math

import numpy as np
import pytest

from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.ranking.fused import (
    FusedRanker,
    Scored,
    Weight,
    fuse,
    learned,
    weights_of,
    z_scores,
)
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.ranking.registry import make_ranker

PASSAGES = ["Refunds take five days.", "The ferry leaves at nine.", "Gulls nest here.", "Soup."]


def test_z_scores_have_mean_0_and_deviation_1_and_keep_unknown_values():
    scores = z_scores([1.0, 2.0, 3.0, math.nan])
    assert np.mean(scores[:3]) == pytest.approx(0.0)
    assert np.std(scores[:3]) == pytest.approx(1.0)
    assert math.isnan(scores[3])
    assert z_scores([0.1, 0.1 + 1e-12]) == [0.0, 0.0]


def test_surer_ranker_counts_more():
    sure = Scored.of([9.0, 1.0, 1.0, 1.0, 1.0])
    torn = Scored.of([1.0, 3.0, 2.0, 3.0, 2.0])
    weights = {"a": Weight(0.0, peak=1.0), "b": Weight(0.0, peak=1.0)}
    fused = fuse({"a": sure, "b": torn}, 0.0, weights)
    assert int(np.argmax(fused)) == 0


def test_weight_is_never_negative():
    assert Weight(0.5, peak=-1.0).at(3.0, 0.0) == 0.0


def test_fused_ranker_orders_by_words_and_meaning_and_ties_equal_passages():
    ranker = make_ranker("fused", FakeEmbedder())
    ranking = ranker.rank("When does the ferry leave?", [*PASSAGES, PASSAGES[1]])
    assert ranking.order[:2] == (1, 4)
    assert ranking.scores[1] == ranking.scores[4]
    assert ranker.rank("When?", []).order == ()


def test_learned_numbers_name_their_data_and_licences():
    assert all("licence" in each for each in learned()["data"].values())
    for kind in ("rankers", "signal"):
        assert {"bm25", "dense"} <= weights_of(kind).keys()


class Counting(FakeEmbedder):
    embedded = 0

    def _documents(self, texts):
        Counting.embedded += len(texts)
        return super()._documents(texts)


def test_given_vectors_are_not_computed_again_and_unfit_ones_are_left_out():
    embedder = Counting()
    dense = DenseRanker(embedder)
    vectors = [list(map(float, 3 * embedder.embed_query(text))) for text in PASSAGES[:2]]
    dense.remember(PASSAGES, [*vectors, [1.0], None])
    ranking = FusedRanker(BM25Ranker(), dense).rank("Ferry?", PASSAGES)
    assert Counting.embedded == 2
    assert ranking.scores == make_ranker("fused", FakeEmbedder()).rank("Ferry?", PASSAGES).scores
