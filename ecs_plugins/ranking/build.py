"""Rankers by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.ranking.base import Ranker, Ranking
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.ranking.embedder import Embedder, default_embedder
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


class LazyRanker:
    """`make_ranker`, at the first ranking: until then no embedder is looked for or loaded.

    Thread-safe; the ranker is built once. A pickle holds the name and the embedder, not what has
    been embedded, and a deep copy is the ranker itself.

    Args:
        name: One of `RANKERS`.
        embedder: As for `make_ranker`.
    """

    def __init__(self, name: str, embedder: Embedder | None = None) -> None:
        self.name = name
        self.embedder = embedder
        self._built: Ranker | None = None
        self._lock = threading.Lock()

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """As the ranker of that name.

        Raises:
            ConfigurationError: The name is unknown.
            ModelNotFoundError: An embedder is needed and none is installed.
        """
        return self._ranker().rank(query, passages)

    def _ranker(self) -> Ranker:
        with self._lock:
            if self._built is None:
                self._built = make_ranker(self.name, self.embedder)
            return self._built

    def __deepcopy__(self, memo: dict[int, object]) -> LazyRanker:
        return self

    def __reduce__(self) -> tuple[type[LazyRanker], tuple[str, Embedder | None]]:
        return (LazyRanker, (self.name, self.embedder))
