"""What happens between two sleep phases: on ``add``, on retrieval, on an observed outcome.

Pure functions on values: the caller looks up the nearest items, and carries out what is returned.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import decayed, first_evidence, in_demand, with_label, with_success
from ecs_plugins.memory.types import (
    Admission,
    ColdMemory,
    Evidence,
    HotItem,
    Observation,
    Proposal,
    StreamStatistics,
    Vector,
)
from ecs_plugins.memory.wording import Difference, Read, Wording, difference, may_replace

Item = TypeVar("Item", HotItem, ColdMemory)
Stating: TypeAlias = Observation | HotItem | ColdMemory | Proposal


def admit(
    observation: Observation,
    *,
    config: MemoryConfig,
    statistics: StreamStatistics,
    nearest_hot: tuple[HotItem, float] | None = None,
    nearest_cold: tuple[ColdMemory, float] | None = None,
    read: Read = Wording.of,
) -> Admission:
    """Decide what an incoming message becomes: a new hot item, or support for an existing one.

    Args:
        observation: The message, embedded.
        config: The settings.
        statistics: What the namespace has taught about its stream.
        nearest_hot: The hot item of highest cosine, with that cosine, if any.
        nearest_cold: The cold memory of highest cosine, with that cosine, if any.
        read: Reads what texts say; a `Reader` reads each only once.

    Returns:
        What the message becomes. The cold memory is preferred to a hot item that is no nearer.
        A message that says something else than a near item (`told_apart`) does not repeat it; if
        it founds one of its own, ``Evidence.unlike`` says in what they differ.
    """
    hot = _repeated(observation, nearest_hot, config, read)
    cold = _repeated(observation, nearest_cold, config, read)
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
    unlike = _kept_apart(observation, nearest_hot, nearest_cold, config, read)
    if unlike is not None:
        evidence = replace(evidence, unlike=unlike)
    item = HotItem(
        observation.id, observation.vector, evidence, (observation.id,), observation.text
    )
    return Admission("append", item, statistics)


def told_apart(
    one: Stating, other: Stating, config: MemoryConfig, read: Read = Wording.of
) -> Difference | None:
    """Return in what two items differ, so that they are not one memory however near they are.

    Where both carry a label, the labels say what they say, and a contradiction is evidence.
    """
    if config.merge_guard == "none" or (_label(one) is not None and _label(other) is not None):
        return None
    return difference(one.text, other.text, read)


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
    return evidence.attestations >= config.support_needed


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


def _label(item: Stating) -> str | None:
    return item.label if isinstance(item, Observation) else item.evidence.label


def _near(similarity: float, config: MemoryConfig) -> bool:
    return config.on_add == "merge" and similarity >= config.merged_from


def _repeated(
    observation: Observation, nearest: tuple[Item, float] | None, config: MemoryConfig, read: Read
) -> tuple[Item, float] | None:
    if nearest is None or not _near(nearest[1], config):
        return None
    return None if told_apart(observation, nearest[0], config, read) else nearest


def _kept_apart(
    observation: Observation,
    nearest_hot: tuple[HotItem, float] | None,
    nearest_cold: tuple[ColdMemory, float] | None,
    config: MemoryConfig,
    read: Read,
) -> Difference | None:
    """In what the observation differs from the nearest item, if it would have repeated that."""
    found: list[tuple[HotItem | ColdMemory, float]] = []
    found += [each for each in (nearest_cold, nearest_hot) if each and _near(each[1], config)]
    if not found:
        return None
    return told_apart(observation, max(found, key=lambda each: each[1])[0], config, read)


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
    speaks = _says_what_is_believed(evidence, observation)
    text = observation.text if speaks and may_replace(observation.text, item.text) else item.text
    return replace(item, vector=vector, evidence=evidence, text=text), statistics


def _says_what_is_believed(evidence: Evidence, observation: Observation) -> bool:
    return observation.label is None or observation.label == evidence.label
