"""The variants of Entropic Memory that are compared on chat, and how each shares the budget.

Wherever a variant searches both tiers, they hold the budget together: what is not yet consolidated
takes room from what is. The paper's reading searches only the cold tier, which gets the whole
budget; its hot tier of 100 comes on top.
"""

from __future__ import annotations

from benchmarks.bounded_chat.stores import (
    Entropic,
    Everything,
    Room,
    StoreFactory,
)
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.prior import worths

HOT_SHARE = 0.05
"""Share of the budget that the hot tier gets; chosen on two of LoCoMo's conversations."""


def shared(budget: int, config: MemoryConfig) -> MemoryConfig:
    """Return the settings with tiers that hold ``budget`` items together."""
    hot = min(max(1, round(HOT_SHARE * budget)), budget - 1)
    return config.replace(
        hot_capacity=hot, cold_capacity=budget - hot, sleep_every=min(config.sleep_every, hot)
    )


class Longest(Everything):
    """Store of the longest turns, as a baseline."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._turns = room.chat.turns
        self._budget = room.budget

    def add(self, position: int) -> None:
        """Keep it; if there are too many, drop the shortest."""
        super().add(position)
        if len(self._kept) > self._budget:
            self._kept.remove(min(self._kept, key=lambda at: len(self._turns[at].text)))


class Heap(Everything):
    """Keeps the turns of the highest prior: free energy without entropy, at zero temperature."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._worths = worths([turn.text for turn in room.chat.turns])
        self._budget = room.budget

    def add(self, position: int) -> None:
        """Keep it; if there are too many, drop the one of the lowest prior."""
        super().add(position)
        if len(self._kept) > self._budget:
            self._kept.remove(min(self._kept, key=lambda at: self._worths[at]))


def variants() -> dict[str, StoreFactory]:
    """Return the variants by their short names."""
    return {
        "default": lambda room: Entropic(room, shared(room.budget, MemoryConfig())),
        "paper": lambda room: Entropic(room, MemoryConfig.paper(cold_capacity=room.budget)),
    }
