"""Ranking by meaning: cosine between the embeddings of the query and the passages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ecs_plugins.embedding import Embedder
from ecs_plugins.ranking.base import Ranking


class DenseRanker:
    """Cosine in the space of an embedder.

    Args:
        embedder: Gives L2-normalised vectors, so that a dot product is a cosine.
    """

    name = "dense"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Scores in [-1, 1]; a blank passage is not embedded and has -1."""
        filled = [i for i, passage in enumerate(passages) if passage.strip()]
        scores = np.full(len(passages), -1.0)
        if filled:
            documents = self._embedder.embed_documents([passages[i] for i in filled])
            asked = self._embedder.embed_query(query)
            # Equal texts must tie, although a batched product may differ in the last bits.
            scores[filled] = (documents @ asked).astype(np.float64).round(6)
        return Ranking.from_scores(scores.tolist())
