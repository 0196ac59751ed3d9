"""Ranking by meaning, alone and together with words.

`DenseRanker` is the cosine between the embeddings of the query and the passages. `HybridRanker`
fuses it with a lexical ranker by reciprocal rank (Cormack, Clarke and Büttcher 2009):

    score(d) = sum over rankings of 1 / (60 + rank(d))

`ConvexRanker` fuses it with a lexical ranker whose scores lie in [0, 1] and mean the same for every
query, such as query coverage, by a convex combination of the scores themselves (Bruch, Gai and
Ingber 2023).

Passages that a ranking cannot tell apart share the average of their places: a passage must not
profit from standing early in the input among all those without a word of the query.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import cachetools
import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.ranking.base import Ranker, Ranking
from ecs_plugins.ranking.embedder import Embedder

CACHED_VECTORS = 20_000
"""Passages whose vectors are remembered: about 30 MB at 384 dimensions."""
RRF_K = 60
"""The constant of the original paper."""


class DenseRanker:
    """Cosine in the space of an embedder.

    Vectors of passages are remembered, least recently used ones forgotten first: many questions
    are asked about the same passages, and embedding is nearly all of the cost.

    Args:
        embedder: Gives L2-normalised vectors, so that a dot product is a cosine.
        cached: How many vectors are remembered; 0 remembers none.
    """

    name = "dense"

    def __init__(self, embedder: Embedder, *, cached: int = CACHED_VECTORS) -> None:
        self._embedder = embedder
        self._vectors: cachetools.LRUCache[str, npt.NDArray[np.float32]] = cachetools.LRUCache(
            cached
        )
        self._lock = threading.Lock()

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Scores in [-1, 1]; a blank passage is not embedded and has -1."""
        filled = [i for i, passage in enumerate(passages) if passage.strip()]
        scores = np.full(len(passages), -1.0)
        if filled:
            documents = self._embedded([passages[i] for i in filled])
            asked = self._embedder.embed_query(query)
            # Equal texts must tie, although a batched product may differ in the last bits.
            scores[filled] = (documents @ asked).astype(np.float64).round(6)
        return Ranking.from_scores(scores.tolist())

    def _embedded(self, texts: list[str]) -> npt.NDArray[np.float32]:
        with self._lock:
            found = {text: self._vectors[text] for text in texts if text in self._vectors}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing:
            # Outside the lock: two threads may embed the same text, neither waits for the other.
            vectors = self._embedder.embed_documents(missing)
            found.update(zip(missing, vectors, strict=True))
            with self._lock:
                for text in missing if self._vectors.maxsize else ():
                    self._vectors[text] = found[text]
        return np.stack([found[text] for text in texts])


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
        return reciprocal_rank_fusion(self._both(query, passages))

    def _both(self, query: str, passages: Sequence[str]) -> tuple[Ranking, Ranking]:
        """The lexical ranking and the dense one; what is not embedded scores minus infinity."""
        by_words = self._lexical.rank(query, passages)
        if len(passages) <= self._max_dense:
            return by_words, self._dense.rank(query, passages)
        first = sorted(by_words.top(self._max_dense))
        part = self._dense.rank(query, [passages[i] for i in first])
        scores = [-math.inf] * len(passages)
        for index, score in zip(first, part.scores, strict=True):
            scores[index] = score
        return by_words, Ranking.from_scores(scores)


class ConvexRanker(HybridRanker):
    """The mean of a lexical score in [0, 1] and a cosine, which counts 0 where it is unknown.

    Args:
        lexical: Ranks everything.
        dense: Ranks the first ``max_dense`` of them.
        weight: Of the cosine, in [0, 1]; the rest is the lexical score's.
        max_dense: How many passages may be embedded for one query.

    Raises:
        ConfigurationError: ``weight`` or ``max_dense`` is out of range.
    """

    name = "convex"

    def __init__(
        self, lexical: Ranker, dense: Ranker, *, weight: float = 0.5, max_dense: int = 1000
    ) -> None:
        super().__init__(lexical, dense, max_dense=max_dense)
        if not 0.0 <= weight <= 1.0:
            raise ConfigurationError(f"weight is a number from 0 to 1, got {weight}")
        self._weight = weight

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Scores are weighted means."""
        by_words, by_meaning = self._both(query, passages)
        cosines = (0.0 if score == -math.inf else score for score in by_meaning.scores)
        return Ranking.from_scores(
            round(self._weight * cosine + (1.0 - self._weight) * words, 12)
            for cosine, words in zip(cosines, by_words.scores, strict=True)
        )
