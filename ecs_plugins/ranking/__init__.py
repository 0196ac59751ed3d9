"""Lexical and semantic rankers, written once for all engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.ranking.base import Ranker as Ranker
    from ecs_plugins.ranking.base import Ranking as Ranking
    from ecs_plugins.ranking.build import RANKERS as RANKERS
    from ecs_plugins.ranking.build import make_ranker as make_ranker
    from ecs_plugins.ranking.dense import DenseRanker as DenseRanker
    from ecs_plugins.ranking.fusion import FusedRanker as FusedRanker
    from ecs_plugins.ranking.fusion import HybridRanker as HybridRanker
    from ecs_plugins.ranking.fusion import reciprocal_rank_fusion as reciprocal_rank_fusion
    from ecs_plugins.ranking.lexical import BM25Ranker as BM25Ranker
    from ecs_plugins.ranking.lexical import TfidfQueryRanker as TfidfQueryRanker
    from ecs_plugins.ranking.lexical import TfidfRanker as TfidfRanker

_EXPORTS = {
    "BM25Ranker": ".lexical",
    "DenseRanker": ".dense",
    "FusedRanker": ".fusion",
    "HybridRanker": ".fusion",
    "RANKERS": ".build",
    "Ranker": ".base",
    "Ranking": ".base",
    "TfidfQueryRanker": ".lexical",
    "TfidfRanker": ".lexical",
    "make_ranker": ".build",
    "reciprocal_rank_fusion": ".fusion",
}

__all__ = [
    "RANKERS",
    "BM25Ranker",
    "DenseRanker",
    "FusedRanker",
    "HybridRanker",
    "Ranker",
    "Ranking",
    "TfidfQueryRanker",
    "TfidfRanker",
    "make_ranker",
    "reciprocal_rank_fusion",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
