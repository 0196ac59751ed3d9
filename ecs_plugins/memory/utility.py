"""Utility and entropy of memories when they compete: the configured reading of E and S.

A :class:`~ecs_plugins.memory.types.UtilityFunction` of the caller replaces the utility; the
entropy stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import (
    effective_age,
    log_demand_rate,
    outcome_entropy,
    query_utility,
)
from ecs_plugins.memory.information import information
from ecs_plugins.memory.types import (
    Evidence,
    Floats,
    QueryEvent,
    Scorable,
    StreamStatistics,
    UtilityFunction,
)

PRIOR_OUTCOMES = 2.0
"""Weight of the store's typical surprise, in outcomes, when a memory's own is estimated."""


def utilities(
    items: Sequence[Scorable],
    *,
    config: MemoryConfig,
    step: int,
    queries: Sequence[QueryEvent],
    utility: UtilityFunction | None,
    told: Sequence[float] = (),
) -> Floats:
    """Return the utility of each item; ``E`` is its negative.

    Args:
        items: Proposals and memories.
        config: Which reading of the utility.
        step: Number of the latest message in the namespace.
        queries: Recent queries, oldest first.
        utility: Replaces the configured one.
        told: The `information` of the first items' texts, of a caller that knows it already.

    Raises:
        InvalidInputError: If a utility function returned a wrong number of values, or a value
            that is not finite.
    """
    if not items:
        return np.zeros(0)
    recent = list(queries)[-config.utility_window :]
    if utility is not None:
        values = np.asarray(utility(items, recent, step), dtype=np.float64)
        if values.shape != (len(items),) or not np.isfinite(values).all():
            raise InvalidInputError(
                f"The utility function must return {len(items)} finite numbers, one per memory; "
                f"it returned {values!r}."
            )
        return values
    if config.utility in ("informed", "observed"):
        demand = observed_utility([item.evidence for item in items], step, config)
        if config.utility == "observed":
            return demand
        unknown = (information(item.text) for item in items[len(told) :])
        return demand + config.information_weight * np.array([*told, *unknown])
    if not recent:
        return np.zeros(len(items))
    ages = np.array([step - query.step for query in recent], dtype=np.float64)
    return query_utility(
        np.stack([item.vector for item in items]),
        np.stack([query.vector for query in recent]),
        ages,
        decay=config.utility_decay,
        reduce="max" if config.utility == "query_max" else "mean",
    )


def observed_utility(evidence: Sequence[Evidence], step: int, config: MemoryConfig) -> Floats:
    """Return the log of the rate at which each memory is in demand, in nats.

    The prior of the Gamma-Poisson estimate is one event at ``newcomer_rate`` times the mean rate
    over the memories given, so it follows the stream.
    """
    age = np.array([step - item.created for item in evidence], dtype=np.float64)
    exposure = effective_age(age, config.half_life)
    lag = np.array([step - item.updated for item in evidence], dtype=np.float64)
    demand = np.array([item.demand for item in evidence]) * 2.0 ** (-lag / config.half_life)
    mean_rate = (float(demand.sum()) + 1.0) / (float(exposure.sum()) + 1.0)
    return log_demand_rate(demand, exposure, config.expected_of_newcomers * mean_rate)


def entropies(
    items: Sequence[Scorable], *, config: MemoryConfig, step: int, statistics: StreamStatistics
) -> Floats:
    """Return S of each item under the configured reading."""
    evidence = [item.evidence for item in items]
    if config.entropy == "evidence":
        return config.spread_weight * spreads(evidence) + mean_surprise(evidence)
    if config.entropy == "outcomes":
        return config.spread_weight * spreads(evidence) + [
            _outcome_entropy(item, step, config, statistics) for item in evidence
        ]
    return np.array([item.entropy for item in items])


def spreads(evidence: Sequence[Evidence]) -> Floats:
    """Return `Evidence.spread` of each memory."""
    resultants = np.array([item.resultant for item in evidence])
    supports = np.array([item.support for item in evidence])
    spread: Floats = np.clip(1.0 - resultants / supports, 0.0, 1.0)
    return spread


def mean_surprise(evidence: Sequence[Evidence], prior_outcomes: float = PRIOR_OUTCOMES) -> Floats:
    """Return the mean surprise of each memory's outcomes, in nats.

    It is the cross-entropy between what a memory says and what was observed with it: near 0 for
    one that is always confirmed, high for one that is contradicted again and again. The estimate
    is shrunk towards the mean over the memories given, so that a short history is neither a
    merit nor a fault.
    """
    surprise = np.array([item.surprise for item in evidence])
    outcomes = np.array([item.agreements + item.contradictions for item in evidence])
    typical = float(surprise.sum()) / max(float(outcomes.sum()), 1.0)
    return np.asarray(
        (surprise + prior_outcomes * typical) / (outcomes + prior_outcomes), dtype=np.float64
    )


def _outcome_entropy(
    evidence: Evidence, step: int, config: MemoryConfig, statistics: StreamStatistics
) -> float:
    """Return the entropy of the outcomes seen; 0 if none was, for that tells nothing."""
    if not evidence.outcomes:
        return 0.0
    factor = 2.0 ** (-(step - evidence.updated) / config.half_life)
    weights = [weight * factor for _, weight in evidence.outcomes]
    return outcome_entropy(weights, statistics.labels)
