"""The sleep phase: cluster the hot store, propose, let proposals compete, decide (paper, A.1).

:func:`consolidate` is a pure function. It writes nothing and reads no clock: what it returns is
a plan, which the caller carries out in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.clustering import Apart, cluster
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.contest import Contest
from ecs_plugins.memory.energy import free_energy
from ecs_plugins.memory.proposals import propose
from ecs_plugins.memory.types import (
    ColdMemory,
    FreeEnergy,
    HotItem,
    Matrix,
    Proposal,
    QueryEvent,
    Scorable,
    SleepPlan,
    StreamStatistics,
    Summarise,
    UtilityFunction,
)
from ecs_plugins.memory.utility import entropies, utilities
from ecs_plugins.memory.wording import Wording


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
    vectors = _checked_matrix(hot, cold)
    supported, unsupported = _split(hot, vectors[: len(hot)], config, seed)
    proposals = [propose(m, config=config, summarise=summarise, seed=seed) for m in supported]
    if config.on_add == "merge":
        unsupported = _leaving(unsupported, len(hot) - _size(supported), config)
    waiting = [propose(m, config=config, summarise=None, seed=seed) for m in unsupported]
    scores = _scores(
        [*cold, *proposals, *waiting],
        config,
        step,
        queries,
        statistics or StreamStatistics(),
        utility,
    )
    contest = Contest(
        cold,
        vectors[len(hot) :],
        scores[: len(cold)],
        proposals=len(proposals) + len(waiting),
        config=config,
        seed=seed,
        cycle=cycle,
    )
    contest.shrink()
    for proposal, terms in zip(proposals, scores[len(cold) :], strict=False):
        contest.judge(proposal, terms)
    for proposal, terms in zip(waiting, scores[len(cold) + len(proposals) :], strict=True):
        contest.fill_or_discard(proposal, terms)
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
    if len({item.vector.shape for item in items}) > 1 or items[0].vector.ndim != 1:
        raise InvalidInputError(
            "Memories have vectors of different shapes; re-embed the store with one embedder."
        )
    vectors = np.stack([item.vector for item in items]).astype(np.float32, copy=False)
    if not np.isfinite(vectors).all():
        raise InvalidInputError("A memory's vector holds NaN or infinity; re-embed its text.")
    return vectors


def _split(
    hot: Sequence[HotItem],
    vectors: Matrix,
    config: MemoryConfig,
    seed: int,
) -> tuple[list[list[HotItem]], list[list[HotItem]]]:
    """Return the clusters to be proposed, and those with too little support.

    A cluster whose items have all been judged and have gained nothing since is in neither.
    """
    supported: list[list[HotItem]] = []
    unsupported: list[list[HotItem]] = []
    for rows in cluster(vectors, config, seed, _apart(hot, config)):
        members = [hot[row] for row in rows]
        if not config.keep_hot and all(i.evidence.attestations <= i.judged for i in members):
            continue
        enough = sum(i.evidence.attestations for i in members) >= config.support_needed
        (supported if enough else unsupported).append(members)
    return supported, unsupported


def _apart(hot: Sequence[HotItem], config: MemoryConfig) -> Apart | None:
    """Which of the items differ in what they say; each text is read once, when it is needed."""
    if config.merge_guard == "none":
        return None
    read: dict[int, Wording] = {}

    def wording(row: int) -> Wording:
        if row not in read:
            read[row] = Wording.of(hot[row].text)
        return read[row]

    def apart(row: int, other: int) -> bool:
        one, two = hot[row], hot[other]
        labelled = one.evidence.label is not None and two.evidence.label is not None
        if labelled or one.text == two.text or not (one.text and two.text):
            return False
        return wording(row).difference(wording(other)) is not None

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


def _scores(
    items: Sequence[Scorable],
    config: MemoryConfig,
    step: int,
    queries: Sequence[QueryEvent],
    statistics: StreamStatistics,
    utility: UtilityFunction | None,
) -> list[FreeEnergy]:
    values = utilities(items, config=config, step=step, queries=queries, utility=utility)
    disorder = entropies(items, config=config, step=step, statistics=statistics)
    scores = []
    for item, value, entropy in zip(items, values.tolist(), disorder.tolist(), strict=True):
        if not config.recompute_utility and not isinstance(item, Proposal):
            value = item.utility
        scores.append(free_energy(value, entropy, config.entropy_weight))
    return scores
