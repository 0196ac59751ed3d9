"""What happens between two sleep phases: on ``add``, on retrieval, on an observed outcome.

Pure functions on values: the caller looks up the nearest items, and carries out what is returned.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import decayed, first_evidence, in_demand, with_label, with_success
from ecs_plugins.memory.types import (
    Admission,
    ColdMemory,
    Evidence,
    HotItem,
    Observation,
    StreamStatistics,
    Vector,
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

    Returns:
        What the message becomes. The cold memory is preferred to a hot item that is no nearer.
    """
    hot = _repeated(nearest_hot, config)
    cold = _repeated(nearest_cold, config)
    if cold is not None and (hot is None or cold[1] >= hot[1]):
        memory, similarity = cold
        return Admission(
            "reinforce_cold", *_repeat(memory, observation, config, statistics), similarity
        )
    if hot is not None:
        item, similarity = hot
        item, statistics = _repeat(item, observation, config, statistics)
        item = replace(item, members=(*item.members, observation.id))
        return Admission("reinforce_hot", item, statistics, similarity)
    evidence = first_evidence(observation.step, observation.label)
    item = HotItem(
        observation.id, observation.vector, evidence, (observation.id,), observation.text
    )
    return Admission("append", item, statistics)


def record_hit(item: Item, *, step: int, config: MemoryConfig) -> Item:
    """Return the item after a retrieval that returned it at ``step``."""
    evidence = in_demand(item.evidence, step, config.half_life)
    return replace(item, evidence=replace(evidence, hits=evidence.hits + 1))


def record_outcome(
    item: Item,
    outcome: str | bool,
    *,
    step: int,
    config: MemoryConfig,
    statistics: StreamStatistics,
) -> tuple[Item, StreamStatistics]:
    """Return item and statistics after an outcome observed with it.

    Args:
        item: The hot item or cold memory that was used.
        outcome: What it should have said (a label: it agrees or contradicts), or whether using
            it was a success (a boolean).
        step: When.
        config: The settings.
        statistics: What the namespace has taught about its stream.
    """
    evidence = decayed(item.evidence, step, config.half_life)
    if isinstance(outcome, bool):
        return replace(item, evidence=with_success(evidence, outcome, statistics)), statistics
    evidence, statistics = with_label(evidence, outcome, statistics, config)
    return replace(item, evidence=evidence), statistics


def overflow(hot: Sequence[HotItem], config: MemoryConfig) -> tuple[str, ...]:
    """Return the ids of the hot items that have to leave.

    Args:
        hot: The hot store in order of arrival.
        config: ``fifo`` removes the first ones; ``unsupported_first`` removes those first that
            the next sleep phase would not propose anyway, the longest unseen leading.
    """
    excess = len(hot) - config.hot_capacity
    if excess <= 0:
        return ()
    if config.hot_eviction == "fifo":
        return tuple(item.id for item in hot[:excess])
    order = heapq.nsmallest(
        excess, hot, key=lambda item: (promotable(item, config), item.evidence.last_seen)
    )
    return tuple(item.id for item in order)


def promotable(item: HotItem, config: MemoryConfig) -> bool:
    """Return whether the item has gathered enough support since it was last judged."""
    return supported(item.evidence, config) and item.evidence.attestations > item.judged


def supported(evidence: Evidence, config: MemoryConfig) -> bool:
    """Return whether a memory was observed or asked for often enough to be believed in."""
    return evidence.attestations >= config.min_support


def sleep_due(messages_since_sleep: int, config: MemoryConfig) -> bool:
    """Return whether a sleep phase is due."""
    return messages_since_sleep >= config.sleep_every


def moved_centroid(vector: Vector, resultant: float, addition: Vector) -> tuple[Vector, float]:
    """Return direction and length of ``resultant * vector + addition``: the running centroid."""
    total = vector * np.float32(resultant) + addition
    length = float(np.sqrt(total @ total))
    if length <= 1e-6:
        return vector, 0.0
    return total / np.float32(length), length


def _repeated(
    nearest: tuple[Item, float] | None, config: MemoryConfig
) -> tuple[Item, float] | None:
    if config.on_add == "append" or nearest is None:
        return None
    return nearest if nearest[1] >= config.merge_threshold else None


def _repeat(
    item: Item, observation: Observation, config: MemoryConfig, statistics: StreamStatistics
) -> tuple[Item, StreamStatistics]:
    """Merge an observation into the item that it repeats."""
    evidence = in_demand(item.evidence, observation.step, config.half_life)
    if observation.label is not None:
        evidence, statistics = with_label(evidence, observation.label, statistics, config)
    vector, resultant = moved_centroid(item.vector, evidence.resultant, observation.vector)
    evidence = replace(evidence, support=evidence.support + 1, resultant=resultant)
    if isinstance(item, ColdMemory) and config.proposal != "centroid":
        vector = item.vector
    text = observation.text if _says_what_is_believed(evidence, observation) else item.text
    return replace(item, vector=vector, evidence=evidence, text=text), statistics


def _says_what_is_believed(evidence: Evidence, observation: Observation) -> bool:
    return observation.label is None or observation.label == evidence.label
