"""What happens between two sleep phases: on ``add``, on retrieval, on an observed outcome.

With every event evidence about a memory begins, accumulates, decays or merges.

Pure functions on values: the caller looks up the nearest items, and carries out what is returned.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import (
    Admission,
    ColdMemory,
    Evidence,
    HotItem,
    Observation,
    Vector,
)
from ecs_plugins.memory.wording import difference, may_replace
from ecs_plugins.ranking.conversation import as_reply

HALF_LIFE: Final = 1000.0
"""Steps after which an observed event counts half."""

Item = TypeVar("Item", bound=HotItem | ColdMemory)


def admit(
    observation: Observation,
    *,
    config: MemoryConfig,
    nearest_hot: tuple[HotItem, float] | None = None,
    nearest_cold: tuple[ColdMemory, float] | None = None,
) -> Admission:
    """Decide what an incoming message becomes: a new hot item, or support for an existing one.

    Args:
        observation: The message, embedded.
        config: The settings.
        nearest_hot: The hot item of highest cosine, with that cosine, if any.
        nearest_cold: The cold memory of highest cosine, with that cosine, if any.

    Returns:
        What the message becomes. The cold memory is preferred to a hot item that is no nearer.
        A message that says something else than a near item (`wording`) does not repeat it; if it
        founds one of its own, ``Evidence.unlike`` says in what it differs from the nearest.
    """
    unlike = None
    near = [
        each
        for each in (nearest_cold, nearest_hot)
        if each is not None and config.rule == "default" and each[1] >= config.merge_threshold
    ]
    for item, similarity in sorted(near, key=lambda each: -each[1]):
        differs = difference(
            as_reply(observation.text, observation.asked), as_reply(item.text, item.asked)
        )
        if differs is not None:
            unlike = unlike or differs
        elif isinstance(item, ColdMemory):
            return Admission("reinforce_cold", repeated(item, observation, config), similarity)
        else:
            return Admission("reinforce_hot", repeated(item, observation, config), similarity)
    item = founded(observation)
    return Admission("append", replace(item, evidence=replace(item.evidence, unlike=unlike)))


def founded(observation: Observation) -> HotItem:
    """Return the hot item of one observation alone."""
    return HotItem(
        observation.id,
        observation.vector,
        first_evidence(observation.step),
        (observation.id,),
        observation.text,
        asked=observation.asked,
    )


def repeated(item: Item, observation: Observation, config: MemoryConfig) -> Item:
    """Return the item after an observation that repeats it."""
    evidence = in_demand(item.evidence, observation.step)
    vector, resultant = moved_centroid(item.vector, evidence.resultant, observation.vector)
    evidence = replace(evidence, support=evidence.support + 1, resultant=resultant)
    text, asked = worded(item, observation)
    if isinstance(item, HotItem):
        members = (*item.members, observation.id)
        return replace(
            item, vector=vector, evidence=evidence, text=text, asked=asked, members=members
        )
    if config.proposal != "centroid":
        vector = item.vector
    return replace(item, vector=vector, evidence=evidence, text=text, asked=asked, prior=None)


def worded(item: HotItem | ColdMemory, said: Observation | ColdMemory) -> tuple[str, str]:
    """Return what an item says, and the question that this replies to, after what repeats it.

    It keeps its own words if `update` set them.
    """
    keeps = item.evidence.edited or not may_replace(said.text, item.text)
    return (item.text, item.asked) if keeps else (said.text, said.asked)


def record_hit(item: Item, *, step: int, score: float = 1.0) -> Item:
    """Return the item after a retrieval that returned it at ``step``.

    It was asked for as much as its ``score`` says: the probability that it holds the answer.
    """
    evidence = in_demand(item.evidence, step, score)
    return replace(item, evidence=replace(evidence, hits=evidence.hits + 1))


def record_outcome(item: Item, success: bool, *, step: int) -> Item:
    """Return the item after using it helped or failed at ``step``."""
    return replace(item, evidence=with_outcome(item.evidence, success, step))


def overflow(hot: Sequence[HotItem], config: MemoryConfig) -> tuple[str, ...]:
    """Return the ids of the hot items that have to leave.

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
        excess, hot, key=lambda item: (promotable(item, config), item.evidence.last_seen)
    )
    return tuple(item.id for item in order)


def promotable(item: HotItem, config: MemoryConfig) -> bool:
    """Return whether the item has gathered enough support since it was last judged."""
    attestations = item.evidence.attestations
    return attestations >= config.min_support and attestations > item.judged


def moved_centroid(vector: Vector, resultant: float, addition: Vector) -> tuple[Vector, float]:
    """Return direction and length of ``resultant * vector + addition``: the running centroid."""
    total = vector * np.float32(resultant) + addition
    length = float(np.sqrt(total @ total))
    if length <= 1e-6:
        return vector, 0.0
    return total / np.float32(length), length


def first_evidence(step: int) -> Evidence:
    """Return the evidence of one observation."""
    return Evidence(created=step, updated=step, last_seen=step)


def decayed(evidence: Evidence, step: int) -> Evidence:
    """Return the evidence with its decaying counts brought to ``step``."""
    if step <= evidence.updated:
        return evidence
    factor = 2.0 ** (-(step - evidence.updated) / HALF_LIFE)
    return replace(
        evidence,
        updated=step,
        demand=evidence.demand * factor,
        agreements=evidence.agreements * factor,
        contradictions=evidence.contradictions * factor,
    )


def in_demand(evidence: Evidence, step: int, events: float = 1.0) -> Evidence:
    """Return the evidence after the memory was asked for, or said again, at ``step``.

    A second event in the same step is the same event: a message that is both the query and a
    repeat counts once.
    """
    evidence = decayed(evidence, step)
    if evidence.last_seen == step:
        return evidence
    return replace(evidence, last_seen=step, demand=evidence.demand + events)


def with_outcome(evidence: Evidence, success: bool, step: int) -> Evidence:
    """Return the evidence after using the memory helped or failed at ``step``."""
    evidence = decayed(evidence, step)
    if success:
        return replace(evidence, agreements=evidence.agreements + 1.0)
    return replace(evidence, contradictions=evidence.contradictions + 1.0)


def merged(older: Evidence, newer: Evidence, resultant: float) -> Evidence:
    """Return the evidence of two items that turned out to be one memory.

    Args:
        older: The one that was created first.
        newer: The other; its first observation counts as a repeat.
        resultant: Length of the sum of both vector sums.
    """
    step = max(older.updated, newer.updated)
    first, second = decayed(older, step), decayed(newer, step)
    return Evidence(
        created=min(first.created, second.created),
        updated=step,
        last_seen=max(first.last_seen, second.last_seen),
        support=first.support + second.support,
        demand=first.demand + second.demand + 1.0,
        hits=first.hits + second.hits,
        agreements=first.agreements + second.agreements,
        contradictions=first.contradictions + second.contradictions,
        resultant=resultant,
        edited=older.edited or newer.edited,
        unlike=first.unlike or second.unlike,
    )
