"""Ranking by meaning, alone and together with words.

`DenseRanker` is the cosine between the embeddings of the query and the passages. `ConvexRanker`
fuses it with a lexical ranker whose scores lie in [0, 1] and mean the same for every query, such as
query coverage, by a convex combination of the scores (Bruch, Gai and Ingber 2023).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import cachetools
import numpy as np
import numpy.typing as npt

from ecs_plugins.ranking.base import Ranker, Ranking
from ecs_plugins.ranking.embedder import CACHED_VECTORS, Embedder

MAX_DENSE = 1000
"""Passages that the convex ranker embeds for one query at most."""
_BLANK = -1.0
"""The score of a passage without text: the least that a cosine can be."""


class DenseRanker:
    """Cosine in the space of an embedder.

    Args:
        embedder: Gives L2-normalised vectors, so that a dot product is a cosine.
    """

    name = "dense"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._given: cachetools.LRUCache[str, npt.NDArray[np.float32]]
        self._given = cachetools.LRUCache(CACHED_VECTORS)
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, object]) -> DenseRanker:
        return self

    def __reduce__(self) -> tuple[type[DenseRanker], tuple[Embedder]]:
        """Return a pickle holds no vectors."""
        return DenseRanker, (self._embedder,)

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank passages by cosine, in [-1, 1]; a blank passage gets -1 without embedding."""
        scores = np.full(len(passages), _BLANK)
        filled = [index for index, passage in enumerate(passages) if passage.strip()]
        if filled:
            texts = [passages[index] for index in filled]
            documents = self._vectors(texts)
            question = self._embedder.embed_query(query)
            products = documents @ question
            cosines = products.astype(np.float64)
            # Equal texts must tie, although a batched product may differ in the last bits.
            scores[filled] = cosines.round(6)
        return Ranking.from_scores(scores.tolist())

    def remember(self, texts: Sequence[str], vectors: Sequence[Sequence[float] | None]) -> None:
        """Take vectors that the same embedder has made before; None for unknown ones.

        Vectors of another length, without a direction or not finite are left out.
        """
        known: dict[str, npt.NDArray[np.float32]] = {}
        for text, given in zip(texts, vectors, strict=True):
            vector = np.asarray([] if given is None else given, dtype=np.float64)
            length = float(np.linalg.norm(vector))
            if vector.shape == (self._embedder.dimension,) and 0.0 < length < np.inf:
                known[text.strip()] = (vector / length).astype(np.float32)
        with self._lock:
            self._given.update(known)

    def _vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        with self._lock:
            given = {text: self._given[text] for text in texts if text in self._given}
        others = [text for text in dict.fromkeys(texts) if text not in given]
        if others:
            given |= zip(others, self._embedder.embed_documents(others), strict=True)
        return np.stack([given[text] for text in texts])


class ConvexRanker:
    """The mean of a lexical score in [0, 1] and a cosine, which counts 0 where it is unknown.

    Embedding is the expensive part, so in a long list only the passages that the lexical ranker
    puts first are embedded; the others are ranked by words alone.

    Args:
        lexical: Ranks everything.
        dense: Ranks the first `MAX_DENSE` of them.
    """

    name = "convex"

    def __init__(self, lexical: Ranker, dense: Ranker) -> None:
        self._lexical = lexical
        self._dense = dense

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank passages by the mean of coverage and cosine; a cosine not computed counts as 0."""
        lexical = self._lexical.rank(query, passages)
        first = sorted(lexical.top(MAX_DENSE))
        likely = [passages[index] for index in first]
        dense = self._dense.rank(query, likely)
        cosines = np.zeros(len(passages))
        cosines[first] = dense.scores
        coverages = np.array(lexical.scores)
        means = (cosines + coverages) / 2
        return Ranking.from_scores(means.round(12))
