"""How evidence about a memory begins, accumulates, decays and merges."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ecs_plugins.memory.types import Evidence

HALF_LIFE: Final = 1000.0
"""Steps after which an observed event counts half."""


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


def in_demand(evidence: Evidence, step: int) -> Evidence:
    """Return the evidence after the memory was asked for, or said again, at ``step``.

    A second event in the same step is the same event: a message that is both the query and a
    repeat counts once.
    """
    evidence = decayed(evidence, step)
    if evidence.last_seen == step:
        return evidence
    return replace(evidence, last_seen=step, demand=evidence.demand + 1.0)


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
        unlike=first.unlike or second.unlike,
    )
