"""Entropic Memory in the Infinite Room: the shipped decision code on in-memory tiers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from benchmarks.infinite_room.labels import Contradiction, Labels
from benchmarks.infinite_room.policies import Moment
from benchmarks.infinite_room.worlds import DIMENSION
from ecs_plugins.memory.admission import (
    admit,
    record_hit,
    with_outcome,
)
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.consolidation import consolidate
from ecs_plugins.memory.store.messages import item_of
from ecs_plugins.memory.types import (
    ColdMemory,
    HotItem,
    Matrix,
    QueryEvent,
    SleepDecision,
    SleepPlan,
)
from ecs_plugins.memory.utility import QUERY_WINDOW

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


@dataclass(frozen=True, slots=True)
class Variant:
    """Variant of Entropic Memory.

    Attributes:
        config: The settings; only the cold store is searched.
        contradiction: What a memory answers after it was contradicted (`Labels`).
        merges: Whether an observation is merged on arrival into the item that it repeats.
    """

    config: MemoryConfig
    contradiction: Contradiction = "learned"
    merges: bool = True

    def replace(self, **changes: Any) -> Variant:
        """Return a copy with other settings."""
        return replace(self, config=self.config.replace(**changes))


class EntropicPolicy:
    """Policy that calls the same functions as the database facade, without the database.

    What a memory answers is in its text under the paper's rule, which never merges two
    observations into one memory; else `Labels` knows. An observation that repeats an item tells
    whether that was right, as an agent tells with ``EntropicMemory.observe(used=...)``.

    Args:
        variant: How it is played.
        seed: Base seed of the sleep phases.
        keep_decisions: Keep every decision in ``decisions``.
    """

    def __init__(self, variant: Variant, seed: int, keep_decisions: bool = False) -> None:
        self._config = variant.config
        self._merges = variant.merges and variant.config.rule == "default"
        self._labels = Labels(variant.contradiction)
        self._seed = seed
        self._hot: Tier[HotItem] = Tier()
        self._cold: Tier[ColdMemory] = Tier()
        self._queries: list[QueryEvent] = []
        self._cycle = 0
        self._since_sleep = 0
        self._keep = keep_decisions
        self.decisions: list[SleepDecision] = []

    @property
    def vectors(self) -> Matrix:
        """Return the vectors of the cold store."""
        return self._cold.vectors

    @property
    def tiers(self) -> tuple[tuple[HotItem, ...], tuple[ColdMemory, ...]]:
        """Return the items of both tiers."""
        return tuple(self._hot.items), tuple(self._cold.items)

    def label(self, position: int) -> int:
        """Return the label that a cold memory predicts."""
        memory = self._cold.items[position]
        return int(memory.text) if self._config.rule == "paper" else self._labels.of(memory.id)

    def observe(self, moment: Moment) -> None:
        """Record hits, admit the observation, sleep when it is time."""
        config, step = self._config, moment.step
        if config.rule == "paper":
            self._queries.append(QueryEvent(step, moment.vector))
            del self._queries[:-QUERY_WINDOW]
        for position in moment.recalled:
            self._cold.put(position, record_hit(self._cold.items[position], step=step))
        self._admit(moment)
        self._hot.remove(overflow(self._hot.items, config))
        self._since_sleep += 1
        if self._since_sleep >= config.sleep_every:
            self._sleep(step)

    def _admit(self, moment: Moment) -> None:
        nearest_hot = nearest_cold = None
        hot_position = cold_position = -1
        if self._merges:
            if len(moment.similarities):
                cold_position = int(moment.similarities.argmax())
                similarity = float(moment.similarities[cold_position])
                nearest_cold = self._cold.items[cold_position], similarity
            if self._hot.items:
                hot = self._hot.vectors @ moment.vector
                hot_position = int(hot.argmax())
                nearest_hot = self._hot.items[hot_position], float(hot[hot_position])
        text = str(moment.label) if self._config.rule == "paper" else ""
        new = item_of(str(moment.step), moment.vector, moment.step, text)
        item = admit(
            new,
            config=self._config,
            nearest_hot=nearest_hot,
            nearest_cold=nearest_cold,
        )
        if item.id == new.id:
            assert isinstance(item, HotItem)
            self._labels.founded(item.id, moment.label)
            self._hot.append(item)
            return
        right = self._labels.repeated(item.id, moment.label)
        evidence = with_outcome(item.evidence, right, moment.step)
        if isinstance(item, ColdMemory):
            self._cold.put(cold_position, replace(item, evidence=evidence))
        else:
            self._hot.put(hot_position, replace(item, evidence=evidence))

    def _sleep(self, step: int) -> None:
        plan = consolidate(
            self._hot.items,
            self._cold.items,
            config=self._config,
            step=step,
            seed=self._seed * 1_000_003 + self._cycle,
            queries=self._queries,
        )
        if self._config.rule == "default":
            self._label(plan.decisions)
        hot, cold = apply_plan(plan, self._hot.items, self._cold.items)
        self._hot.reset(hot)
        self._cold.reset(cold)
        if self._config.rule == "default":
            self._labels.keep([*(item.id for item in hot), *(item.id for item in cold)])
        self._cycle += 1
        self._since_sleep = 0
        if self._keep:
            self.decisions.extend(plan.decisions)

    def _label(self, decisions: Sequence[SleepDecision]) -> None:
        """Give each memory the label of the hot items behind it."""
        created = {item.id: item.evidence.created for item in self._hot.items}
        for decision in decisions:
            behind = sorted(
                (name for name in decision.members if name in created),
                key=lambda name: created[name],
            )
            if decision.kind in ("insert", "replace"):
                self._labels.merged(decision.candidate_id, behind)
            elif decision.kind == "reinforce" and decision.target_id is not None:
                self._labels.merged(decision.candidate_id, behind)
                self._labels.merged(decision.target_id, (decision.target_id, decision.candidate_id))


def apply_plan(
    plan: SleepPlan, hot: Sequence[HotItem], cold: Sequence[ColdMemory]
) -> tuple[tuple[HotItem, ...], tuple[ColdMemory, ...]]:
    """Apply a plan to both tiers in memory, as reference for a store."""
    gone = {memory.id for memory in plan.removed}
    updated = {memory.id: memory for memory in plan.updated}
    consumed = set(plan.consumed)
    judged = {item.id: item for item in plan.judged}
    kept = (updated.get(memory.id, memory) for memory in cold if memory.id not in gone)
    return (
        tuple(judged.get(item.id, item) for item in hot if item.id not in consumed),
        (*kept, *plan.inserted),
    )


def overflow(hot: Sequence[HotItem], config: MemoryConfig) -> tuple[str, ...]:
    """Return the ids of the hot items that have to leave: the rule of `intake.evict_overflow`.

    Args:
        hot: The hot store in order of arrival.
        config: The paper's rule removes the first ones. The default removes those first that the
            next sleep phase would not propose anyway, the longest unseen leading.
    """
    excess = len(hot) - config.hot_capacity
    if excess <= 0:
        return ()
    if config.rule == "paper":
        return tuple(item.id for item in hot[:excess])
    order = heapq.nsmallest(
        excess,
        hot,
        key=lambda item: (
            item.evidence.attestations > max(item.judged, config.min_support - 1),
            item.evidence.last_seen,
        ),
    )
    return tuple(item.id for item in order)
