"""Entropic Memory in the Infinite Room: the shipped decision code on in-memory tiers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from benchmarks.infinite_room.policies import Moment
from benchmarks.infinite_room.worlds import DIMENSION
from ecs_plugins.memory.admission import admit, overflow, record_hit, sleep_due
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.consolidation import apply_plan, consolidate
from ecs_plugins.memory.types import (
    Admission,
    ColdMemory,
    Decision,
    Floats,
    HotItem,
    Matrix,
    Observation,
    QueryEvent,
    StreamStatistics,
)

Item = TypeVar("Item", HotItem, ColdMemory)


class Tier(Generic[Item]):
    """Items in order, with their vectors side by side."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.vectors: Matrix = np.zeros((0, DIMENSION), dtype=np.float32)

    def reset(self, items: Iterable[Item]) -> None:
        """Replace the contents."""
        self.items = list(items)
        if self.items:
            self.vectors = np.stack([item.vector for item in self.items])
        else:
            self.vectors = np.zeros((0, DIMENSION), dtype=np.float32)

    def put(self, position: int, item: Item) -> None:
        """Replace one item."""
        if item.vector is not self.items[position].vector:
            self.vectors[position] = item.vector
        self.items[position] = item

    def append(self, item: Item) -> None:
        """Add one item at the young end."""
        self.items.append(item)
        self.vectors = np.concatenate([self.vectors, item.vector[None]])

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items."""
        if ids:
            gone = set(ids)
            kept = [i for i, item in enumerate(self.items) if item.id not in gone]
            self.items = [self.items[i] for i in kept]
            self.vectors = self.vectors[kept]


class EntropicPolicy:
    """A policy that calls what the database facade calls, without the database.

    Args:
        config: The settings; only the cold store is searched.
        seed: Base seed of the sleep phases.
        keep_decisions: Keep every decision in ``decisions``.
    """

    def __init__(self, config: MemoryConfig, seed: int, keep_decisions: bool = False) -> None:
        self._config = config
        self._seed = seed
        self._hot: Tier[HotItem] = Tier()
        self._cold: Tier[ColdMemory] = Tier()
        self._statistics = StreamStatistics()
        self._queries: list[QueryEvent] = []
        self._cycle = 0
        self._since_sleep = 0
        self._keep = keep_decisions
        self.decisions: list[Decision] = []

    @property
    def vectors(self) -> Matrix:
        """The cold store's vectors."""
        return self._cold.vectors

    @property
    def tiers(self) -> tuple[tuple[HotItem, ...], tuple[ColdMemory, ...]]:
        """Hot and cold store."""
        return tuple(self._hot.items), tuple(self._cold.items)

    def label(self, position: int) -> int:
        """Return the label that a cold memory predicts."""
        label = self._cold.items[position].evidence.label
        return -1 if label is None else int(label)

    def observe(self, moment: Moment) -> None:
        """Record hits, admit the observation, sleep when it is time."""
        config, step = self._config, moment.step
        if config.utility in ("query_mean", "query_max"):
            self._queries.append(QueryEvent(step, moment.vector))
            del self._queries[: -config.utility_window]
        for position in moment.recalled:
            memory = self._cold.items[position]
            self._cold.put(position, record_hit(memory, step=step, config=config))
        observation = Observation(str(step), moment.vector, step, label=str(moment.label))
        self._admit(observation, moment.similarities)
        self._hot.remove(overflow(self._hot.items, config))
        self._since_sleep += 1
        if sleep_due(self._since_sleep, config):
            self._sleep(step)

    def _admit(self, observation: Observation, similarities: Floats) -> None:
        nearest_hot = nearest_cold = None
        hot_position = cold_position = -1
        if self._config.on_add == "merge":
            if len(similarities):
                cold_position = int(similarities.argmax())
                similarity = float(similarities[cold_position])
                nearest_cold = self._cold.items[cold_position], similarity
            if self._hot.items:
                hot = self._hot.vectors @ observation.vector
                hot_position = int(hot.argmax())
                nearest_hot = self._hot.items[hot_position], float(hot[hot_position])
        admission: Admission = admit(
            observation,
            config=self._config,
            statistics=self._statistics,
            nearest_hot=nearest_hot,
            nearest_cold=nearest_cold,
        )
        self._statistics = admission.statistics
        if isinstance(admission.item, ColdMemory):
            self._cold.put(cold_position, admission.item)
        elif admission.kind == "append":
            self._hot.append(admission.item)
        else:
            self._hot.put(hot_position, admission.item)

    def _sleep(self, step: int) -> None:
        plan = consolidate(
            self._hot.items,
            self._cold.items,
            config=self._config,
            step=step,
            seed=self._seed * 1_000_003 + self._cycle,
            queries=self._queries,
            statistics=self._statistics,
            cycle=self._cycle,
        )
        hot, cold = apply_plan(plan, self._hot.items, self._cold.items)
        self._hot.reset(hot)
        self._cold.reset(cold)
        self._cycle += 1
        self._since_sleep = 0
        if self._keep:
            self.decisions.extend(plan.decisions)
