"""How evidence about a memory accumulates, decays and merges; is a contradiction drift or noise?

The belief about what a memory says is a hidden Markov filter over its labels: between two
observations the truth changes with probability ``change``, and an observation lies with
probability ``lie``. Both are learned per namespace from how earlier contradictions turned out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import Evidence, StreamStatistics

_PRIOR_REPEATS = 20.0
_ESTABLISHED = 1.5
_NEGLIGIBLE = 1e-4
_MOST_LABELS = 64


def first_evidence(step: int, label: str | None) -> Evidence:
    """Return the evidence of one observation."""
    evidence = Evidence(created=step, updated=step, last_seen=step)
    if label is None:
        return evidence
    return replace(evidence, outcomes=((label, 1.0),), belief=((label, 1.0),))


def decayed(evidence: Evidence, step: int, half_life: float) -> Evidence:
    """Return the evidence with its decaying counts brought to ``step``."""
    if step <= evidence.updated:
        return evidence
    if math.isinf(half_life):
        return replace(evidence, updated=step)
    factor = 2.0 ** (-(step - evidence.updated) / half_life)
    return replace(
        evidence,
        updated=step,
        demand=evidence.demand * factor,
        agreements=evidence.agreements * factor,
        contradictions=evidence.contradictions * factor,
        surprise=evidence.surprise * factor,
        outcomes=tuple(
            (label, weight * factor)
            for label, weight in evidence.outcomes
            if weight * factor > _NEGLIGIBLE
        ),
    )


def in_demand(evidence: Evidence, step: int, half_life: float) -> Evidence:
    """Return the evidence after the memory was asked for, or said again, at ``step``.

    A second event in the same step is the same event: a message that is both the query and a
    repeat counts once.
    """
    evidence = decayed(evidence, step, half_life)
    if evidence.last_seen == step:
        return evidence
    return replace(evidence, last_seen=step, demand=evidence.demand + 1.0)


def change_and_lie_rates(statistics: StreamStatistics) -> tuple[float, float]:
    """Return the learned probabilities (change, lie) per observation of a memory."""
    total = statistics.repeats + _PRIOR_REPEATS
    return (statistics.drifts + 1.0) / total, (statistics.noises + 1.0) / total


def with_label(
    evidence: Evidence, label: str, statistics: StreamStatistics, config: MemoryConfig
) -> tuple[Evidence, StreamStatistics]:
    """Return evidence and statistics after the memory was observed to say ``label``.

    Counts in ``evidence`` must have been decayed to the step of the observation.
    """
    believed = evidence.label
    agrees = believed is None or believed == label
    surprise = 0.0 if believed is None else -math.log(_probability(evidence, label, statistics))
    evidence = replace(
        evidence,
        agreements=evidence.agreements + (1.0 if agrees and believed is not None else 0.0),
        contradictions=evidence.contradictions + (0.0 if agrees else 1.0),
        surprise=evidence.surprise + surprise,
    )
    statistics, contested = _resolve(evidence, label, statistics)
    outcomes = dict(evidence.outcomes)
    outcomes[label] = outcomes.pop(label, 0.0) + 1.0
    statistics = _with_labels(statistics, len(outcomes))
    evidence = replace(
        evidence,
        outcomes=tuple(outcomes.items())[-_MOST_LABELS:],
        belief=_updated_belief(evidence.belief, label, statistics, config),
        contested=contested,
    )
    return evidence, statistics


def with_success(evidence: Evidence, success: bool, statistics: StreamStatistics) -> Evidence:
    """Return the evidence after using the memory helped or failed.

    A memory claims to help, so a failure is a contradiction, as surprising as contradictions
    are in this namespace.
    """
    change, lie = change_and_lie_rates(statistics)
    failure = min(change + lie, 0.5)
    return replace(
        evidence,
        agreements=evidence.agreements + (1.0 if success else 0.0),
        contradictions=evidence.contradictions + (0.0 if success else 1.0),
        surprise=evidence.surprise - math.log(1.0 - failure if success else failure),
    )


def merged(older: Evidence, newer: Evidence, resultant: float, config: MemoryConfig) -> Evidence:
    """Return the evidence of two items that turned out to be one memory.

    Args:
        older: The one that was created first.
        newer: The other; its first observation counts as a repeat.
        resultant: Length of the sum of both vector sums.
        config: The settings.
    """
    step = max(older.updated, newer.updated)
    first, second = (decayed(item, step, config.half_life) for item in (older, newer))
    outcomes = dict(first.outcomes)
    for label, weight in second.outcomes:
        outcomes[label] = outcomes.pop(label, 0.0) + weight
    return Evidence(
        created=min(first.created, second.created),
        updated=step,
        last_seen=max(first.last_seen, second.last_seen),
        support=first.support + second.support,
        demand=first.demand + second.demand + 1.0,
        hits=first.hits + second.hits,
        agreements=first.agreements + second.agreements,
        contradictions=first.contradictions + second.contradictions,
        surprise=first.surprise + second.surprise,
        outcomes=tuple(outcomes.items())[-_MOST_LABELS:],
        belief=_merged_belief(first, second, config),
        contested=second.contested or first.contested,
        resultant=resultant,
        unlike=first.unlike or second.unlike,
    )


def _resolve(
    evidence: Evidence, label: str, statistics: StreamStatistics
) -> tuple[StreamStatistics, tuple[str, str] | None]:
    """Settle an open contradiction with the new label, or open one."""
    contested = evidence.contested
    if contested is not None:
        older, newer = contested
        if label == newer:
            return replace(
                statistics, repeats=statistics.repeats + 1.0, drifts=statistics.drifts + 1.0
            ), None
        statistics = replace(
            statistics, repeats=statistics.repeats + 1.0, noises=statistics.noises + 1.0
        )
        return statistics, None if label == older else (older, label)
    established = evidence.label
    if established is None or dict(evidence.outcomes).get(established, 0.0) < _ESTABLISHED:
        return statistics, None
    if label == established:
        return replace(statistics, repeats=statistics.repeats + 1.0), None
    return statistics, (established, label)


def _with_labels(statistics: StreamStatistics, seen: int) -> StreamStatistics:
    return statistics if statistics.labels >= seen else replace(statistics, labels=seen)


def _updated_belief(
    belief: tuple[tuple[str, float], ...],
    label: str,
    statistics: StreamStatistics,
    config: MemoryConfig,
) -> tuple[tuple[str, float], ...]:
    if config.contradiction == "newest" or not belief:
        return ((label, 1.0),)
    if config.contradiction == "never":
        return belief
    _, lie = change_and_lie_rates(statistics)
    weights, possible = _after_change(belief, label, statistics)
    noise = lie / possible
    scored = {
        known: weight * (noise + (1.0 - lie if known == label else 0.0))
        for known, weight in weights.items()
    }
    return _normalised(scored)


def _probability(evidence: Evidence, label: str, statistics: StreamStatistics) -> float:
    """Return the probability that the memory gives to ``label`` as its next outcome."""
    _, lie = change_and_lie_rates(statistics)
    weights, possible = _after_change(evidence.belief, label, statistics)
    return lie / possible + (1.0 - lie) * weights[label]


def _after_change(
    belief: tuple[tuple[str, float], ...], label: str, statistics: StreamStatistics
) -> tuple[dict[str, float], int]:
    """Return the belief after the truth may have changed, and how many labels are possible."""
    change, _ = change_and_lie_rates(statistics)
    possible = max(statistics.labels, len(belief) + 1)
    fresh = change / possible
    weights = {known: (1.0 - change) * weight + fresh for known, weight in belief}
    weights.setdefault(label, fresh)
    return weights, possible


def _merged_belief(
    older: Evidence, newer: Evidence, config: MemoryConfig
) -> tuple[tuple[str, float], ...]:
    if not older.belief or not newer.belief:
        return newer.belief or older.belief
    if config.contradiction == "newest":
        return newer.belief
    if config.contradiction == "never":
        return older.belief
    first, second = dict(older.belief), dict(newer.belief)
    floor = 0.01
    # Ties go to the newer side: its labels come first, and the sort is stable.
    return _normalised(
        {
            label: max(first.get(label, 0.0), floor) * max(second.get(label, 0.0), floor)
            for label in [*second, *first]
        }
    )


def _normalised(weights: dict[str, float]) -> tuple[tuple[str, float], ...]:
    total = sum(weights.values())
    kept = [(label, weight / total) for label, weight in weights.items()]
    kept.sort(key=lambda pair: -pair[1])
    likely = (pair for i, pair in enumerate(kept) if i == 0 or pair[1] > _NEGLIGIBLE)
    return tuple(islice(likely, _MOST_LABELS))
