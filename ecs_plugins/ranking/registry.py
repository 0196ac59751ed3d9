"""Rankers by name: one line of `RANKERS` each, also for those of other packages."""

from __future__ import annotations

from collections.abc import Callable

from ecs_plugins.errors import ConfigurationError, ModelNotFoundError
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import ConvexRanker, DenseRanker
from ecs_plugins.ranking.embedder import Embedder, as_embedder, default_embedder
from ecs_plugins.ranking.fused import FusedRanker
from ecs_plugins.ranking.lexical import BM25Ranker, TfidfQueryRanker, TfidfRanker


def _dense(embedder: Embedder | str | None) -> DenseRanker:
    try:
        return DenseRanker(default_embedder() if embedder is None else as_embedder(embedder))
    except ModelNotFoundError as error:
        raise ModelNotFoundError(
            f"a ranker by meaning needs an embedder, or choose ranker='bm25': {error}"
        ) from error


RANKERS: dict[str, Callable[[Embedder | str | None], Ranker]] = {
    "tfidf": lambda _: TfidfRanker(),
    "tfidf_query": lambda _: TfidfQueryRanker(),
    "bm25": lambda _: BM25Ranker(),
    "coverage": lambda _: CoverageRanker(),
    "dense": _dense,
    "fused": lambda embedder: FusedRanker(BM25Ranker(), _dense(embedder)),
    "convex": lambda embedder: ConvexRanker(CoverageRanker(), _dense(embedder)),
}
"""Factories of rankers by name, with the caller's embedder if there is one. A name that is added
is known everywhere."""


def make_ranker(name: str, embedder: Embedder | str | None = None) -> Ranker:
    """Build a ranker from its name.

    Args:
        name: A key of `RANKERS`. ``"fused"`` is BM25 and the cosine by learned weights,
            ``"convex"`` the mean of query coverage and the cosine.
        embedder: For ``"dense"``, ``"fused"`` and ``"convex"``; by default the installed one.

    Raises:
        ConfigurationError: The name is unknown.
        ModelNotFoundError: An embedder is needed and none is installed.
    """
    if name not in RANKERS:
        raise ConfigurationError(
            f"unknown ranker {name!r}: use one of {', '.join(RANKERS)}, or pass an own Ranker"
        )
    return RANKERS[name](embedder)
