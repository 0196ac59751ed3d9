"""Entropic Memory: a bounded memory that keeps what a free energy says is worth keeping.

Importing this package loads neither torch nor faiss nor scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.memory.closed_loop import answer_utility as answer_utility
    from ecs_plugins.memory.config import MemoryConfig as MemoryConfig
    from ecs_plugins.memory.consolidation import consolidate as consolidate
    from ecs_plugins.memory.contest import replay as replay
    from ecs_plugins.memory.entropic import EntropicMemory as EntropicMemory
    from ecs_plugins.memory.records import ErasureReceipt as ErasureReceipt
    from ecs_plugins.memory.records import Explanation as Explanation
    from ecs_plugins.memory.records import Memory as Memory
    from ecs_plugins.memory.records import MemoryStats as MemoryStats
    from ecs_plugins.memory.records import Recollection as Recollection
    from ecs_plugins.memory.records import RecordedDecision as RecordedDecision
    from ecs_plugins.memory.records import ReplayedDecision as ReplayedDecision
    from ecs_plugins.memory.records import SleepReport as SleepReport
    from ecs_plugins.memory.store.index_config import IndexConfig as IndexConfig
    from ecs_plugins.memory.store.messages import Message as Message
    from ecs_plugins.memory.store.messages import NewMessage as NewMessage
    from ecs_plugins.memory.store.store_config import StoreConfig as StoreConfig
    from ecs_plugins.memory.store.verification import Verification as Verification
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
    "EntropicMemory": ".entropic",
    "ErasureReceipt": ".records",
    "Evidence": ".types",
    "Explanation": ".records",
    "FreeEnergy": ".types",
    "HotItem": ".types",
    "IndexConfig": ".store.index_config",
    "Memory": ".records",
    "MemoryConfig": ".config",
    "MemoryStats": ".records",
    "Message": ".store.messages",
    "NewMessage": ".store.messages",
    "Recollection": ".records",
    "RecordedDecision": ".records",
    "ReplayedDecision": ".records",
    "SleepPlan": ".types",
    "SleepReport": ".records",
    "StoreConfig": ".store.store_config",
    "UtilityFunction": ".types",
    "Verification": ".store.verification",
    "answer_utility": ".closed_loop",
    "consolidate": ".consolidation",
    "replay": ".contest",
}

__all__ = [
    "ColdMemory",
    "Decision",
    "EntropicMemory",
    "ErasureReceipt",
    "Evidence",
    "Explanation",
    "FreeEnergy",
    "HotItem",
    "IndexConfig",
    "Memory",
    "MemoryConfig",
    "MemoryStats",
    "Message",
    "NewMessage",
    "Recollection",
    "RecordedDecision",
    "ReplayedDecision",
    "SleepPlan",
    "SleepReport",
    "StoreConfig",
    "UtilityFunction",
    "Verification",
    "answer_utility",
    "consolidate",
    "replay",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
