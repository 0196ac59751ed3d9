import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.ranking import HybridRanker, Ranking, reciprocal_rank_fusion


class Fixed:
    def __init__(self, name, scores):
        self.name = name
        self._scores = scores

    def rank(self, query, passages):
        return Ranking.from_scores(self._scores)


def test_the_fused_score_is_the_sum_of_reciprocal_ranks():
    fused = reciprocal_rank_fusion(
        [Ranking.from_scores([3, 2, 1]), Ranking.from_scores([1, 3, 2])], k=60
    )
    assert fused.scores == pytest.approx([1 / 61 + 1 / 63, 1 / 62 + 1 / 61, 1 / 63 + 1 / 62])
    assert fused.order == (1, 0, 2)


def test_ties_share_their_places_and_minus_infinity_means_not_ranked():
    fused = reciprocal_rank_fusion([Ranking.from_scores([0.0, 0.0, 0.0, 1.0, -math.inf])])
    assert fused.scores == pytest.approx([1 / 63, 1 / 63, 1 / 63, 1 / 61, 0.0])
    assert len(set(fused.scores[:3])) == 1


def test_rankings_of_different_passages_are_refused():
    with pytest.raises(InvalidInputError, match="same passages"):
        reciprocal_rank_fusion([Ranking.from_scores([1.0]), Ranking.from_scores([1.0, 2.0])])
    with pytest.raises(InvalidInputError, match="at least one"):
        reciprocal_rank_fusion([])


def test_a_hybrid_ranker_fuses_two_and_embeds_at_least_one_passage():
    parts = [Fixed("a", [1.0, 2.0]), Fixed("b", [1.0, 2.0])]
    assert HybridRanker(*parts).rank("q", ["x", "y"]).order == (1, 0)
    with pytest.raises(ConfigurationError, match="max_dense"):
        HybridRanker(parts[0], parts[1], max_dense=0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=12))
def test_a_passage_that_is_best_everywhere_stays_best(pairs):
    first = [a for a, _ in pairs] + [10.0]
    second = [b for _, b in pairs] + [10.0]
    fused = reciprocal_rank_fusion([Ranking.from_scores(first), Ranking.from_scores(second)])
    assert fused.order[0] == len(pairs)
