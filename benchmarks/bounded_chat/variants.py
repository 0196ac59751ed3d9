"""The variants of Entropic Memory that are compared on chat, and how each shares the budget.

Wherever a variant searches both tiers, they hold the budget together: what is not yet consolidated
takes room from what is. The paper's reading searches only the cold tier, which gets the whole
budget; its hot tier of 100 comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from benchmarks.bounded_chat.prior import PriorTable
from benchmarks.bounded_chat.stores import (
    ChatStore,
    Entropic,
    Everything,
    Room,
    StoreFactory,
)
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.prior import worths
from ecs_plugins.memory.types import ColdMemory, QueryEvent
from ecs_plugins.memory.utility import answer_utility, observed_utility

HOT_SHARE = 0.05
"""Share of the budget that the hot tier gets; chosen on two of LoCoMo's conversations."""

BATCHED = 0.25
"""Variants that call a language model in every sleep phase."""

BATCHED_SETTINGS = MemoryConfig(min_support=2)


def demand(items: Sequence[ColdMemory], _queries: Sequence[QueryEvent], step: int) -> list[float]:
    """Return utilities from demand and repetition alone."""
    return list(observed_utility([item.evidence for item in items], step))


def shared(budget: int, config: MemoryConfig, hot_share: float = HOT_SHARE) -> MemoryConfig:
    """Return the settings with tiers that hold ``budget`` items together."""
    hot = min(max(1, round(hot_share * budget)), budget - 1)
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
    """Return the variants that need no language model, by their short names.

    ``observed`` and ``vectors`` show the part of the prior in the default, and the part of the
    values that fit sentences.
    """
    return {
        "default": lambda room: Entropic(room, _config(room)),
        "observed": lambda room: Entropic(room, _config(room), demand),
        "vectors": lambda room: Entropic(
            room, _config(room).replace(merge_threshold=0.7, min_support=2)
        ),
        "paper": _paper,
    }


def held_out(tables: Mapping[str, PriorTable]) -> StoreFactory:
    """Return the default with weights of its prior that were not learned on the chat at hand.

    Args:
        tables: By chat.
    """

    def make(room: Room) -> ChatStore:
        worth = cache(tables[room.chat.id].worth)

        def utility(
            items: Sequence[ColdMemory], queries: Sequence[QueryEvent], step: int
        ) -> list[float]:
            told = [worth(item.text) for item in items]
            return [a + b for a, b in zip(demand(items, queries, step), told, strict=True)]

        return Entropic(room, _config(room), utility)

    return make


def model_variants() -> dict[str, StoreFactory]:
    """Return those that need one, and the same settings without it to compare them with.

    A sleep phase with a model costs seconds, so these sleep when a quarter of the budget is new.
    They are valued by `demand` alone: what a text tells by its length would hide what
    a model adds.
    """
    return {
        "batched": lambda room: Entropic(room, _batched(room), demand),
        "summaries": _summaries,
        "ecs": _ecs,
    }


def _paper(room: Room) -> ChatStore:
    return Entropic(room, MemoryConfig.paper(cold_capacity=room.budget))


def _summaries(room: Room) -> ChatStore:
    _model(room)
    return Entropic(room, _batched(room).replace(proposal="summary"), demand)


def _ecs(room: Room) -> ChatStore:
    # One answer per sleep phase: each costs a scoring of the whole store.
    return Entropic(room, _batched(room), answer_utility(_model(room), max_queries=1))


def _config(room: Room) -> MemoryConfig:
    return shared(room.budget, MemoryConfig())


def _batched(room: Room) -> MemoryConfig:
    return shared(room.budget, BATCHED_SETTINGS, BATCHED)


def _model(room: Room) -> LanguageModel:
    if room.model is None:
        raise ConfigurationError(
            "summaries and the ECS utility need a language model: run ecs-plugins model install"
        )
    return room.model
