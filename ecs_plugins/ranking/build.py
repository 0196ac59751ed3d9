"""Rankers by name."""

from __future__ import annotations

from collections.abc import Callable

from ecs_plugins.embedding import Embedder, default_embedder
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.ranking.fusion import HybridRanker
from ecs_plugins.ranking.lexical import BM25Ranker, TfidfQueryRanker, TfidfRanker

_LEXICAL: dict[str, Callable[[], Ranker]] = {
    "tfidf": TfidfRanker,
    "tfidf_query": TfidfQueryRanker,
    "bm25": BM25Ranker,
}

RANKERS = (*_LEXICAL, "dense", "hybrid")
"""The names that `make_ranker` knows."""


def make_ranker(name: str, embedder: Embedder | None = None) -> Ranker:
    """Build a ranker from its name.

    Args:
        name: One of `RANKERS`. ``"hybrid"`` is TF-IDF on words and word pairs with dense, fused
            by reciprocal rank.
        embedder: For ``"dense"`` and ``"hybrid"``; by default the one that is installed.

    Raises:
        ConfigurationError: The name is unknown.
        ModelNotFoundError: An embedder is needed and none is installed.
    """
    if name in _LEXICAL:
        return _LEXICAL[name]()
    if name not in RANKERS:
        raise ConfigurationError(
            f"unknown ranker {name!r}: use one of {', '.join(RANKERS)}, or pass an own Ranker"
        )
    dense = DenseRanker(embedder or default_embedder())
    return dense if name == "dense" else HybridRanker(TfidfQueryRanker((1, 2)), dense)
