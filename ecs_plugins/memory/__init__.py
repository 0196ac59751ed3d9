"""Entropic Memory: a bounded memory that keeps what a free energy says is worth keeping.

Importing this package loads neither torch nor faiss nor scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.memory.config import MemoryConfig as MemoryConfig
    from ecs_plugins.memory.consolidation import consolidate as consolidate
    from ecs_plugins.memory.contest import replay as replay
    from ecs_plugins.memory.types import ColdMemory as ColdMemory
    from ecs_plugins.memory.types import Decision as Decision
    from ecs_plugins.memory.types import Evidence as Evidence
    from ecs_plugins.memory.types import FreeEnergy as FreeEnergy
    from ecs_plugins.memory.types import HotItem as HotItem
    from ecs_plugins.memory.types import SleepPlan as SleepPlan
    from ecs_plugins.memory.types import UtilityFunction as UtilityFunction

_EXPORTS = {
    "ColdMemory": ".types",
    "Decision": ".types",
    "Evidence": ".types",
    "FreeEnergy": ".types",
    "HotItem": ".types",
    "MemoryConfig": ".config",
    "SleepPlan": ".types",
    "UtilityFunction": ".types",
    "consolidate": ".consolidation",
    "replay": ".contest",
}

__all__ = [
    "ColdMemory",
    "Decision",
    "Evidence",
    "FreeEnergy",
    "HotItem",
    "MemoryConfig",
    "SleepPlan",
    "UtilityFunction",
    "consolidate",
    "replay",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
