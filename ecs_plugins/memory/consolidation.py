"""The sleep phase: cluster the hot store, propose, let proposals compete, decide (paper, A.1).

:func:`consolidate` is a pure function. It writes nothing and reads no clock: what it returns is
a plan, which the caller carries out in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.clustering import cluster
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.contest import ColdContest
from ecs_plugins.memory.energy import free_energy
from ecs_plugins.memory.proposals import propose
from ecs_plugins.memory.types import (
    ColdMemory,
    FreeEnergy,
    HotItem,
    Matrix,
    QueryEvent,
    SleepPlan,
    Summarise,
    UtilityFunction,
)
from ecs_plugins.memory.utility import entropies, utilities
from ecs_plugins.ranking.conversation import as_reply


def consolidate(
    hot: Sequence[HotItem],
    cold: Sequence[ColdMemory],
    *,
    config: MemoryConfig,
    step: int,
    seed: int,
    queries: Sequence[QueryEvent] = (),
    utility: UtilityFunction | None = None,
    summarise: Summarise | None = None,
) -> SleepPlan:
    """Decide what a sleep phase does.

    Args:
        hot: The hot store, oldest first.
        cold: The cold store.
        config: The settings.
        step: Number of the latest message in the namespace.
        seed: Seed of this sleep phase; it stands in every decision.
        queries: Recent queries, oldest first, for the utilities that need them.
        utility: Replaces the configured utility, for example with ECS.
        summarise: Writes the text of a proposal and embeds it, or leaves it; an exception
            that it raises passes through, and nothing has changed then.

    Returns:
        The plan.

    Raises:
        InvalidInputError: If vectors disagree in shape or are not finite, or the utility returns
            a wrong number of values or a value that is not finite.
    """
    vectors = _checked_matrix(hot, cold)
    supported, unsupported = _split(hot, vectors[: len(hot)], config, seed)
    if config.rule == "default":
        unsupported = _leaving(unsupported, len(hot) - _size(supported), config)
    proposals = [propose(m, config=config, summarise=summarise, seed=seed) for m in supported]
    proposals += [propose(m, config=config, summarise=None, seed=seed) for m in unsupported]
    terms = free_energies(
        [*cold, *(proposal.memory for proposal in proposals)],
        config=config,
        step=step,
        queries=queries,
        utility=utility,
    )
    contest = ColdContest(cold, proposals, terms, config=config, seed=seed)
    contest.shrink()
    for number in range(len(supported)):
        contest.judge(number)
    for number in range(len(supported), len(proposals)):
        contest.fill_or_discard(number)
    return contest.plan(hot)


def free_energies(
    memories: Sequence[ColdMemory],
    *,
    config: MemoryConfig,
    step: int,
    queries: Sequence[QueryEvent],
    utility: UtilityFunction | None,
) -> list[FreeEnergy]:
    """Return F, E and S of each memory among the others; for the arguments see `consolidate`."""
    values = utilities(memories, config=config, step=step, queries=queries, utility=utility)
    disorder = entropies(memories, config)
    return [
        free_energy(value, entropy, config.entropy_weight)
        for value, entropy in zip(values.tolist(), disorder.tolist(), strict=True)
    ]


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
    hot: Sequence[HotItem], vectors: Matrix, config: MemoryConfig, seed: int
) -> tuple[list[list[HotItem]], list[list[HotItem]]]:
    """Return the clusters to be proposed, and those with too little support.

    A cluster whose items have all been judged and have gained nothing since is in neither; under
    the paper's rule, what was judged is judged again.
    """
    supported: list[list[HotItem]] = []
    unsupported: list[list[HotItem]] = []
    for rows in cluster(vectors, [as_reply(item.text, item.asked) for item in hot], config, seed):
        members = [hot[row] for row in rows]
        if config.rule == "default" and all(i.evidence.attestations <= i.judged for i in members):
            continue
        enough = sum(i.evidence.attestations for i in members) >= config.min_support
        (supported if enough else unsupported).append(members)
    return supported, unsupported


def _leaving(
    unsupported: list[list[HotItem]], occupied: int, config: MemoryConfig
) -> list[list[HotItem]]:
    """Return the oldest clusters, those that may overflow before the next sleep phase.

    The others lose nothing by waiting: a repeat may still come.
    """
    excess = occupied + config.sleep_every - config.hot_capacity
    leaving: list[list[HotItem]] = []
    for members in unsupported:
        if _size(leaving) >= excess:
            break
        leaving.append(members)
    return leaving


def _size(clusters: Sequence[Sequence[HotItem]]) -> int:
    return sum(map(len, clusters))
