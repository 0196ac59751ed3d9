"""What happens between two sleep phases: on ``add``, on retrieval, on an observed outcome.

Pure functions on values: the caller looks up the nearest items, and carries out what is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import (
    Admission,
    ColdMemory,
    HotItem,
    Observation,
    StreamStatistics,
)

Item = TypeVar("Item", HotItem, ColdMemory)


def admit(
    observation: Observation,
    *,
    config: MemoryConfig,
    statistics: StreamStatistics,
    nearest_hot: tuple[HotItem, float] | None = None,
    nearest_cold: tuple[ColdMemory, float] | None = None,
) -> Admission:
    """Decide what an incoming message becomes: a new hot item, or support for an existing one.

    Args:
        observation: The message, embedded.
        config: The settings.
        statistics: What the namespace has taught about its stream.
        nearest_hot: The hot item of highest cosine, with that cosine, if any.
        nearest_cold: The cold memory of highest cosine, with that cosine, if any.
    """
    raise NotImplementedError


def record_hit(item: Item, *, step: int, config: MemoryConfig) -> Item:
    """Return the item after a retrieval that returned it at ``step``."""
    raise NotImplementedError


def record_outcome(
    item: Item,
    outcome: str | bool,
    *,
    step: int,
    config: MemoryConfig,
    statistics: StreamStatistics,
) -> tuple[Item, StreamStatistics]:
    """Return item and statistics after an outcome observed with it.

    A string is what the memory should have said (a label: it agrees or contradicts); a boolean
    is whether using it was a success.
    """
    raise NotImplementedError


def overflow(hot: Sequence[HotItem], config: MemoryConfig) -> tuple[str, ...]:
    """Return the ids of the hot items (oldest first in ``hot``) that have to leave."""
    raise NotImplementedError


def sleep_due(messages_since_sleep: int, config: MemoryConfig) -> bool:
    """Return whether a sleep phase is due."""
    return messages_since_sleep >= config.sleep_every
