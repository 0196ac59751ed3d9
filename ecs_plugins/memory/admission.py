"""Updates of evidence between sleep phases: on ``add``, on retrieval, on an observed answer.

The functions are pure: the caller looks up the nearest items and writes the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from ecs_plugins.common.text import as_reply
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.near_texts import Difference, difference, may_replace
from ecs_plugins.memory.types import ColdMemory, Evidence, HotItem, Vector

HALF_LIFE: Final = 1000.0
"""Steps after which an observed event counts half."""

Item = TypeVar("Item", bound=HotItem | ColdMemory)


_VANISHING: Final = 1e-6
"""A sum of unit vectors that is shorter has no direction."""


def admit(
    new: HotItem,
    *,
    config: MemoryConfig,
    nearest_hot: tuple[HotItem, float] | None = None,
    nearest_cold: tuple[ColdMemory, float] | None = None,
) -> HotItem | ColdMemory:
    """Return an incoming message as a hot item of its own, or as support for another item.

    ``new`` is the hot item of the message alone; the nearest item of each tier has its cosine.

    Returns:
        The item that it repeats, as it is then; a cold memory is preferred to a hot item that is no
        nearer. Else the new item: a message that says something else than a near item (`wording`)
        does not repeat it, and ``Evidence.unlike`` says in what it differs from the nearest.
    """
    text = as_reply(new.text, new.asked)
    unlike: Difference | None = None
    for item in _near_enough(nearest_cold, nearest_hot, config):
        near = as_reply(item.text, item.asked)
        differs = difference(text, near)
        if differs is None:
            return repeated(item, new, config)
        if unlike is None:
            unlike = differs
    evidence = replace(new.evidence, unlike=unlike)
    return replace(new, evidence=evidence)


def _near_enough(
    cold: tuple[ColdMemory, float] | None,
    hot: tuple[HotItem, float] | None,
    config: MemoryConfig,
) -> list[HotItem | ColdMemory]:
    """Return the items that a message may repeat, nearest first; none under the paper's rule."""
    if config.rule == "paper":
        return []
    candidates = [each for each in (cold, hot) if each is not None]
    candidates.sort(key=lambda each: -each[1])
    return [item for item, cosine in candidates if cosine >= config.merge_threshold]


def repeated(item: Item, new: HotItem, config: MemoryConfig) -> Item:
    """Return the item updated by a repeating message; ``new`` is the message's own hot item."""
    evidence = in_demand(item.evidence, new.evidence.created)
    evidence = replace(evidence, support=evidence.support + 1)
    return joined(item, new, evidence, config)


def joined(
    item: Item,
    repeat: HotItem | ColdMemory,
    evidence: Evidence,
    config: MemoryConfig,
) -> Item:
    """Return the item with this evidence, and the vector and the words of both.

    It keeps its own words if `update` set them.
    """
    before = item.evidence
    vector, resultant = moved_centroid(item.vector, before.resultant, repeat)
    evidence = replace(evidence, resultant=resultant)
    both = replace(item, evidence=evidence)
    if not before.edited and may_replace(repeat.text, item.text):
        both = replace(both, text=repeat.text, asked=repeat.asked)
    if isinstance(both, HotItem):
        members = (*both.members, repeat.id)
        return replace(both, vector=vector, members=members)
    if config.proposal == "centroid":
        return replace(both, vector=vector)
    return both


def record_hit(item: Item, *, step: int, score: float = 1.0) -> Item:
    """Return the item after a retrieval returned it: asked for as much as its score says."""
    evidence = in_demand(item.evidence, step, score)
    evidence = replace(evidence, hits=evidence.hits + 1)
    return replace(item, evidence=evidence)


def moved_centroid(
    vector: Vector,
    resultant: float,
    repeat: HotItem | ColdMemory,
) -> tuple[Vector, float]:
    """Return the unit vector and the length of the sum of all observed embeddings."""
    before = vector * np.float32(resultant)
    addition = repeat.vector * np.float32(repeat.evidence.resultant)
    total: Vector = before + addition
    length = float(np.sqrt(total @ total))
    if length <= _VANISHING:
        return vector, 0.0
    return total / np.float32(length), length


def decayed(evidence: Evidence, step: int) -> Evidence:
    """Return the evidence with its decaying counts brought to ``step``."""
    elapsed = step - evidence.updated
    if elapsed <= 0:
        return evidence
    factor = 2.0 ** (-elapsed / HALF_LIFE)
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
    demand = evidence.demand + events
    return replace(evidence, last_seen=step, demand=demand)


def with_outcome(evidence: Evidence, success: bool, step: int) -> Evidence:
    """Return the evidence after using the memory helped or failed at ``step``."""
    evidence = decayed(evidence, step)
    if success:
        agreements = evidence.agreements + 1.0
        return replace(evidence, agreements=agreements)
    contradictions = evidence.contradictions + 1.0
    return replace(evidence, contradictions=contradictions)


def merged(older: Evidence, newer: Evidence) -> Evidence:
    """Return the evidence of two items that are one memory: the newer one is a repeat.

    Its ``resultant`` is that of the older one still.
    """
    step = max(older.updated, newer.updated)
    first = decayed(older, step)
    second = decayed(newer, step)
    return Evidence(
        created=min(first.created, second.created),
        updated=step,
        last_seen=max(first.last_seen, second.last_seen),
        support=first.support + second.support,
        demand=first.demand + second.demand + 1.0,
        hits=first.hits + second.hits,
        agreements=first.agreements + second.agreements,
        contradictions=first.contradictions + second.contradictions,
        resultant=older.resultant,
        edited=older.edited or newer.edited,
        unlike=first.unlike or second.unlike,
    )
