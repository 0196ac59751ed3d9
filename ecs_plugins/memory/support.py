"""How many observations an item needs to be proposed for the cold store.

Where things are said again, one that was said once is mostly noise, and waiting for a second time
costs nothing. Where nothing is said again, as in most chats, waiting would keep out everything. So
what is needed is read off the store itself, unless it is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import ColdMemory, HotItem

REPEATED: Final = 0.1
"""Share of the items that were said again from which on a single observation waits."""


def needed_support(config: MemoryConfig, items: Iterable[HotItem | ColdMemory]) -> int:
    """The observations and retrieval hits that a cluster needs to be proposed.

    Args:
        config: Its ``min_support``, if it is set.
        items: Of both tiers.
    """
    if config.min_support is not None:
        return config.min_support
    supports = [item.evidence.support for item in items]
    repeated = [support for support in supports if support > 1]
    return support_among(len(repeated), len(supports))


def support_among(repeated: int, count: int) -> int:
    """The same, of so many items of which so many were said again."""
    if count and repeated >= REPEATED * count:
        return 2
    return 1
