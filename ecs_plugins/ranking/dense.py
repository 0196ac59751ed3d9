"""Ranking by meaning: cosine between the embeddings of the query and the passages."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import cachetools
import numpy as np
import numpy.typing as npt

from ecs_plugins.ranking.base import Ranking
from ecs_plugins.ranking.embedder import Embedder

CACHED_VECTORS = 20_000
"""Passages whose vectors are remembered: about 30 MB at 384 dimensions."""


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
