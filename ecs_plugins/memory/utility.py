"""Utility and entropy of memories when they compete: the configured reading of E and S.

A :class:`~ecs_plugins.memory.types.UtilityFunction` of the caller replaces the utility; the
entropy stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import effective_age, log_demand_rate, query_utility
from ecs_plugins.memory.evidence import HALF_LIFE
from ecs_plugins.memory.types import ColdMemory, Evidence, Floats, QueryEvent, UtilityFunction
from ecs_plugins.ranking.lexical import UNSPACED

QUERY_WINDOW: Final = 100
"""Recent queries that a utility looks at."""

_QUERY_DECAY = 0.99  # weight of a query per step of its age
_FAILURE = 0.02  # probability that using a memory fails, as expected beforehand
_PRIOR_OUTCOMES = 2.0  # weight of the store's typical surprise when a memory's own is estimated

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


def utilities(
    items: Sequence[ColdMemory],
    *,
    config: MemoryConfig,
    step: int,
    queries: Sequence[QueryEvent],
    utility: UtilityFunction | None,
) -> Floats:
    """Return the utility of each item; ``E`` is its negative.

    Args:
        items: Memories and what is proposed.
        config: Which reading of the utility.
        step: Number of the latest message in the namespace.
        queries: Recent queries, oldest first.
        utility: Replaces the configured one.

    Raises:
        InvalidInputError: If a utility function returned a wrong number of values, or a value
            that is not finite.
    """
    if not items:
        return np.zeros(0)
    recent = list(queries)[-QUERY_WINDOW:]
    if utility is not None:
        values = np.asarray(utility(items, recent, step), dtype=np.float64)
        if values.shape != (len(items),) or not np.isfinite(values).all():
            raise InvalidInputError(
                f"The utility function must return {len(items)} finite numbers, one per memory; "
                f"it returned {values!r}."
            )
        return values
    if config.utility == "informed":
        told: Floats = np.array([information(item.text) for item in items])
        demand: Floats = observed_utility([item.evidence for item in items], step)
        return demand + told
    if not recent:
        return np.zeros(len(items))
    return query_utility(
        np.array([item.vector for item in items]),
        np.array([query.vector for query in recent]),
        np.array([max(step - query.step, 0) for query in recent], dtype=np.float64),
        decay=_QUERY_DECAY,
    )


def observed_utility(evidence: Sequence[Evidence], step: int) -> Floats:
    """Return the log of the rate at which each memory is in demand, in nats.

    The prior of the Gamma-Poisson estimate is one event at the mean rate over the memories given,
    so it follows the stream.
    """
    age = np.array([step - item.created for item in evidence], dtype=np.float64)
    exposure = effective_age(age, HALF_LIFE)
    lag = np.array([step - item.updated for item in evidence], dtype=np.float64)
    demand = np.array([item.demand for item in evidence]) * 2.0 ** (-lag / HALF_LIFE)
    mean_rate = (float(demand.sum()) + 1.0) / (float(exposure.sum()) + 1.0)
    return log_demand_rate(demand, exposure, mean_rate)


@lru_cache(maxsize=4096)  # most of the cold tier is judged again in every sleep phase
def information(text: str) -> float:
    """``ln(1 + distinct words)``, in nats: what a text has to tell; 0 without words.

    In a chat most turns carry little: greetings, applause, questions back. Few have been asked
    for by the time when they must be judged; how much a text says can be seen at once.
    """
    return math.log1p(distinct_words(text))


def distinct_words(text: str) -> int:
    """How many different words a text has, whatever their case.

    In a script that is written without spaces every character counts as one.
    """
    return len(set(_WORD.findall(text.casefold())))


def entropies(items: Sequence[ColdMemory], config: MemoryConfig) -> Floats:
    """Return S of each item under the configured reading."""
    if config.entropy != "evidence":
        return np.array([item.entropy for item in items])
    evidence = [item.evidence for item in items]
    return np.array([item.spread for item in evidence]) + mean_surprise(evidence)


def mean_surprise(evidence: Sequence[Evidence]) -> Floats:
    """Return the mean surprise of the outcomes of using each memory, in nats.

    It is the cross-entropy between what a memory claims, to help 49 times in 50, and what was
    observed with it: near 0 for one that always helps, high for one that fails again and again.
    The estimate is shrunk towards the mean over the memories given, so that a short history is
    neither a merit nor a fault.
    """
    agreements = np.array([item.agreements for item in evidence])
    contradictions = np.array([item.contradictions for item in evidence])
    surprise = -agreements * math.log1p(-_FAILURE) - contradictions * math.log(_FAILURE)
    outcomes = agreements + contradictions
    typical = float(surprise.sum()) / max(float(outcomes.sum()), 1.0)
    return np.asarray(
        (surprise + _PRIOR_OUTCOMES * typical) / (outcomes + _PRIOR_OUTCOMES), dtype=np.float64
    )
