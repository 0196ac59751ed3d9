"""Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009) and the hybrid ranker built on it.

``score(d) = sum over rankings of 1 / (60 + rank(d))``. Passages that a ranking cannot tell
apart share the average of their places: a passage must not profit from standing early in the
input among all those that have no word in common with the query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.ranking.base import Ranker, Ranking

RRF_K = 60
"""The constant of the original paper."""


def reciprocal_rank_fusion(rankings: Sequence[Ranking], k: int = RRF_K) -> Ranking:
    """Fuse rankings of the same passages.

    Args:
        rankings: One or more, of equal length. A score of minus infinity means "not ranked"
            and adds nothing.
        k: Damps the weight of the first places.

    Raises:
        InvalidInputError: No ranking, or rankings of different length.
    """
    if not rankings:
        raise InvalidInputError("reciprocal rank fusion needs at least one ranking")
    length = len(rankings[0])
    if any(len(ranking) != length for ranking in rankings):
        raise InvalidInputError("only rankings of the same passages can be fused")
    fused = [0.0] * length
    for ranking in rankings:
        for index, place in enumerate(ranking.tied_ranks):
            if ranking.scores[index] > -math.inf:
                fused[index] += 1.0 / (k + place)
    return Ranking.from_scores(round(score, 12) for score in fused)


class HybridRanker:
    """Words first, meaning second: TF-IDF and dense, fused by reciprocal rank.

    Embedding is the expensive part, so in a long list only the passages that the lexical ranker
    puts first are embedded; the others are ranked by words alone.

    Args:
        lexical: Ranks everything.
        dense: Ranks the first ``max_dense`` of them.
        max_dense: How many passages may be embedded for one query.

    Raises:
        ConfigurationError: ``max_dense`` is not positive.
    """

    name = "hybrid"

    def __init__(self, lexical: Ranker, dense: Ranker, *, max_dense: int = 1000) -> None:
        if max_dense < 1:
            raise ConfigurationError(f"max_dense must be positive, got {max_dense}")
        self._lexical = lexical
        self._dense = dense
        self._max_dense = max_dense

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Scores are sums of reciprocal ranks."""
        by_words = self._lexical.rank(query, passages)
        if len(passages) <= self._max_dense:
            by_meaning = self._dense.rank(query, passages)
        else:
            first = sorted(by_words.top(self._max_dense))
            part = self._dense.rank(query, [passages[i] for i in first])
            scores = [-math.inf] * len(passages)
            for index, score in zip(first, part.scores, strict=True):
                scores[index] = score
            by_meaning = Ranking.from_scores(scores)
        return reciprocal_rank_fusion([by_words, by_meaning])
