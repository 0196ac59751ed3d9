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
from ecs_plugins.memory.types import (
    Evidence,
    Floats,
    QueryEvent,
    Scorable,
    StreamStatistics,
    UtilityFunction,
)


def utilities(
    items: Sequence[Scorable],
    *,
    config: MemoryConfig,
    step: int,
    queries: Sequence[QueryEvent],
    utility: UtilityFunction | None,
) -> Floats:
    """Return the utility of each item; ``E`` is its negative.

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
    if config.utility == "observed":
        return observed_utility([item.evidence for item in items], step, config)
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

    The prior of the Gamma-Poisson estimate is the mean rate over the memories given, so it needs
    no setting and follows the stream.
    """
    age = np.array([step - item.created for item in evidence], dtype=np.float64)
    exposure = effective_age(age, config.half_life)
    lag = np.array([step - item.updated for item in evidence], dtype=np.float64)
    demand = np.array([item.demand for item in evidence]) * 2.0 ** (-lag / config.half_life)
    prior_rate = (float(demand.sum()) + 1.0) / (float(exposure.sum()) + 1.0)
    return log_demand_rate(demand, exposure, prior_rate)


def entropies(
    items: Sequence[Scorable], *, config: MemoryConfig, step: int, statistics: StreamStatistics
) -> list[float]:
    """Return S of each item under the configured reading."""
    if config.entropy != "evidence":
        return [item.entropy for item in items]
    return [evidence_entropy(item.evidence, step, config, statistics) for item in items]


def evidence_entropy(
    evidence: Evidence, step: int, config: MemoryConfig, statistics: StreamStatistics
) -> float:
    """Return the entropy over what the supporting observations say, plus their spread, in nats.

    A memory of which no outcome was ever observed has only its spread: outcomes that nobody
    reports tell nothing about it.
    """
    spread = config.spread_weight * evidence.spread
    if not evidence.outcomes:
        return spread
    factor = 2.0 ** (-(step - evidence.updated) / config.half_life)
    weights = [weight * factor for _, weight in evidence.outcomes]
    return spread + outcome_entropy(weights, statistics.labels)
