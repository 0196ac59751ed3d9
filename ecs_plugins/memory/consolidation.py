"""The sleep phase: cluster the hot store, propose, let proposals compete, decide (paper, A.1).

:func:`consolidate` is a pure function. It writes nothing and reads no clock: what it returns is
a plan, which the caller carries out in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import (
    ColdMemory,
    Decision,
    HotItem,
    QueryEvent,
    SleepPlan,
    StreamStatistics,
    Summarise,
    UtilityFunction,
)


def consolidate(
    hot: Sequence[HotItem],
    cold: Sequence[ColdMemory],
    *,
    config: MemoryConfig,
    step: int,
    seed: int,
    queries: Sequence[QueryEvent] = (),
    statistics: StreamStatistics | None = None,
    utility: UtilityFunction | None = None,
    summarise: Summarise | None = None,
    cycle: int = 0,
) -> SleepPlan:
    """Decide what a sleep phase does.

    Args:
        hot: The hot store, oldest first.
        cold: The cold store.
        config: The settings.
        step: Number of the latest message in the namespace.
        seed: Seed of this sleep phase; it stands in every decision.
        queries: Recent queries, oldest first, for the utilities that need them.
        statistics: What the namespace has taught about its stream.
        utility: Replaces the configured utility, for example with ECS.
        summarise: Writes the text (and optionally the vector) of a proposition; an exception
            that it raises passes through, and nothing has changed then.
        cycle: How many sleep phases the namespace has had, for annealing.

    Returns:
        The plan.

    Raises:
        InvalidInputError: If vectors disagree in shape or are not finite, or the utility returns
            a wrong number of values or a value that is not finite.
    """
    raise NotImplementedError


def replay(decision: Decision) -> Decision:
    """Recompute probability and outcome of a decision from what it recorded.

    Returns:
        The decision as recomputed; equal to the one given unless that was tampered with.
    """
    raise NotImplementedError


def apply_plan(
    plan: SleepPlan, hot: Sequence[HotItem], cold: Sequence[ColdMemory]
) -> tuple[tuple[HotItem, ...], tuple[ColdMemory, ...]]:
    """Return both tiers as they are after the plan (the in-memory reference for a store)."""
    raise NotImplementedError
