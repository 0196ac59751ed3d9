"""Rankers by name: one line of `RANKERS` each, also for those of other packages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ecs_plugins.errors import ConfigurationError, ModelNotFoundError
from ecs_plugins.ranking.base import Ranker, Ranking
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import ConvexRanker, DenseRanker
from ecs_plugins.ranking.embedder import Embedder, default_embedder
from ecs_plugins.ranking.lexical import BM25Ranker, TfidfQueryRanker, TfidfRanker


def _dense(embedder: Embedder | None) -> DenseRanker:
    return DenseRanker(embedder or default_embedder())


RANKERS: dict[str, Callable[[Embedder | None], Ranker]] = {
    "tfidf": lambda _: TfidfRanker(),
    "tfidf_query": lambda _: TfidfQueryRanker(),
    "bm25": lambda _: BM25Ranker(),
    "coverage": lambda _: CoverageRanker(),
    "dense": _dense,
    "convex": lambda embedder: ConvexRanker(CoverageRanker(), _dense(embedder)),
}
"""What makes the ranker of each name, of the caller's embedder if there is one. A name that is
added is known everywhere."""

_DENSE = ("dense", "convex")


def make_ranker(name: str, embedder: Embedder | None = None) -> Ranker:
    """Build a ranker from its name.

    Args:
        name: A key of `RANKERS`. ``"convex"`` is the mean of query coverage and the cosine.
        embedder: For ``"dense"`` and ``"convex"``; by default the one that is installed.

    Raises:
        ConfigurationError: The name is unknown.
        ModelNotFoundError: An embedder is needed and none is installed.
    """
    if name not in RANKERS:
        raise ConfigurationError(
            f"unknown ranker {name!r}: use one of {', '.join(RANKERS)}, or pass an own Ranker"
        )
    return RANKERS[name](embedder)


class LazyRanker:
    """`make_ranker`, at the first ranking: until then no embedder is loaded.

    That there is one is seen to at once, so that it does not depend on how many passages come.

    Thread-safe; the ranker is built once. A pickle holds the name and the embedder, not what has
    been embedded, and a deep copy is the ranker itself.
    """

    def __init__(self, name: str, embedder: Embedder | None = None) -> None:
        if embedder is None and name in _DENSE:
            try:
                default_embedder()
            except ModelNotFoundError as error:
                raise ModelNotFoundError(
                    f"the ranker {name!r} needs an embedder, or choose ranker='bm25': {error}"
                ) from error
        self.name = name
        self.embedder = embedder
        self._built: Ranker | None = None
        self._lock = threading.Lock()

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """As the ranker of that name; raises what `make_ranker` does."""
        with self._lock:
            if self._built is None:
                self._built = make_ranker(self.name, self.embedder)
        return self._built.rank(query, passages)

    def __deepcopy__(self, memo: dict[int, object]) -> LazyRanker:
        return self

    def __reduce__(self) -> tuple[type[LazyRanker], tuple[str, Embedder | None]]:
        return (LazyRanker, (self.name, self.embedder))
