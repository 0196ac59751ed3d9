"""The sleep phase: cluster the hot store, propose, let proposals compete, decide (paper, A.1).

:func:`consolidate` is a pure function. It writes nothing and reads no clock: what it returns is
a plan, which the caller carries out in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import told_apart
from ecs_plugins.memory.clustering import Apart, cluster
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.contest import Contest
from ecs_plugins.memory.energy import FreeEnergies
from ecs_plugins.memory.proposals import propose
from ecs_plugins.memory.types import (
    ColdMemory,
    HotItem,
    Matrix,
    QueryEvent,
    Scorable,
    SleepPlan,
    StreamStatistics,
    Summarise,
    UtilityFunction,
)
from ecs_plugins.memory.utility import entropies, utilities
from ecs_plugins.memory.wording import Read, Reader


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
    told: Sequence[float] = (),
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
        told: The `information` of the texts in ``cold``, of a caller that knows it already.

    Returns:
        The plan.

    Raises:
        InvalidInputError: If vectors disagree in shape or are not finite, or the utility returns
            a wrong number of values or a value that is not finite.
    """
    vectors = _checked_matrix(hot, cold)
    read = Reader()
    supported, unsupported = _split(hot, vectors[: len(hot)], config, seed, read)
    proposals = [propose(m, config=config, summarise=summarise, seed=seed) for m in supported]
    if config.on_add == "merge":
        unsupported = _leaving(unsupported, len(hot) - _size(supported), config)
    waiting = [propose(m, config=config, summarise=None, seed=seed) for m in unsupported]
    items: list[Scorable] = [*cold, *proposals, *waiting]
    values = utilities(items, config=config, step=step, queries=queries, utility=utility, told=told)
    if not config.recompute_utility:
        values = np.concatenate([[memory.utility for memory in cold], values[len(cold) :]])
    statistics = statistics or StreamStatistics()
    disorder = entropies(items, config=config, step=step, statistics=statistics)
    scores = FreeEnergies.of(values, disorder, config.entropy_weight)
    contest = Contest(
        cold,
        vectors[len(hot) :],
        scores.first(len(cold)),
        proposals=[*proposals, *waiting],
        config=config,
        seed=seed,
        cycle=cycle,
        read=read,
    )
    contest.shrink()
    for position, proposal in enumerate(proposals, start=len(cold)):
        contest.judge(proposal, scores.at(position))
    for position, proposal in enumerate(waiting, start=len(cold) + len(proposals)):
        contest.fill_or_discard(proposal, scores.at(position))
    return contest.plan(hot, step)


def apply_plan(
    plan: SleepPlan, hot: Sequence[HotItem], cold: Sequence[ColdMemory]
) -> tuple[tuple[HotItem, ...], tuple[ColdMemory, ...]]:
    """Return both tiers as they are after the plan (the in-memory reference for a store)."""
    gone = {memory.id for memory in plan.removed}
    updated = {memory.id: memory for memory in plan.updated}
    consumed = set(plan.consumed)
    judged = {item.id: item for item in plan.judged}
    kept = (updated.get(memory.id, memory) for memory in cold if memory.id not in gone)
    return (
        tuple(judged.get(item.id, item) for item in hot if item.id not in consumed),
        (*kept, *plan.inserted),
    )


def _checked_matrix(hot: Sequence[HotItem], cold: Sequence[ColdMemory]) -> Matrix:
    """Return all vectors, hot ones first, after checking shape and finiteness."""
    items: list[HotItem | ColdMemory] = [*hot, *cold]
    if not items:
        return np.zeros((0, 0), dtype=np.float32)
    try:
        vectors = np.array([item.vector for item in items], dtype=np.float32)
    except ValueError:
        vectors = np.empty(0, dtype=np.float32)
    if vectors.ndim != 2:
        raise InvalidInputError(
            "Memories have vectors of different shapes; re-embed the store with one embedder."
        )
    if not np.isfinite(vectors).all():
        raise InvalidInputError("A memory's vector holds NaN or infinity; re-embed its text.")
    return vectors


def _split(
    hot: Sequence[HotItem],
    vectors: Matrix,
    config: MemoryConfig,
    seed: int,
    read: Read,
) -> tuple[list[list[HotItem]], list[list[HotItem]]]:
    """Return the clusters to be proposed, and those with too little support.

    A cluster whose items have all been judged and have gained nothing since is in neither.
    """
    supported: list[list[HotItem]] = []
    unsupported: list[list[HotItem]] = []
    for rows in cluster(vectors, config, seed, _apart(hot, config, read)):
        members = [hot[row] for row in rows]
        if not config.keep_hot and all(i.evidence.attestations <= i.judged for i in members):
            continue
        enough = sum(i.evidence.attestations for i in members) >= config.support_needed
        (supported if enough else unsupported).append(members)
    return supported, unsupported


def _apart(hot: Sequence[HotItem], config: MemoryConfig, read: Read) -> Apart | None:
    """Which of the items differ in what they say."""
    if config.merge_guard == "none":
        return None

    def apart(row: int, other: int) -> bool:
        one, two = hot[row], hot[other]
        return told_apart(one, two, config, read) is not None

    return apart


def _leaving(
    unsupported: list[list[HotItem]], occupied: int, config: MemoryConfig
) -> list[list[HotItem]]:
    """Return the oldest clusters, those that may overflow before the next sleep phase.

    The others lose nothing by waiting: a repeat may still come.
    """
    if config.fill != "all":
        return []
    excess = occupied + config.sleep_every - config.hot_capacity
    leaving: list[list[HotItem]] = []
    for members in unsupported:
        if _size(leaving) >= excess:
            break
        leaving.append(members)
    return leaving


def _size(clusters: Sequence[Sequence[HotItem]]) -> int:
    return sum(map(len, clusters))
