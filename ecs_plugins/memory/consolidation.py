"""The sleep phase: cluster the hot store, propose, let proposals compete, decide (paper, A.1).

:func:`consolidate` is a pure function. It writes nothing and reads no clock: what it returns is
a plan, which the caller carries out in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from ecs_plugins.common.text import as_reply, asks
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import merged, moved_centroid
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.contest import ColdContest
from ecs_plugins.memory.energy import Energies, cluster_variance, embedding_entropy
from ecs_plugins.memory.near_texts import difference
from ecs_plugins.memory.types import (
    ColdMemory,
    Evidence,
    HotItem,
    Matrix,
    Proposal,
    QueryEvent,
    SleepPlan,
    Summarise,
    UtilityFunction,
    Vector,
)
from ecs_plugins.memory.utility import entropies, utilities

_BLOCK = 1 << 23  # cosines computed at a time


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
    """Return the plan of a sleep phase.

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
    proposals, supported = _proposals(hot, vectors, config, seed, summarise)
    terms = free_energies(
        [*cold, *(proposal.memory for proposal in proposals)],
        config=config,
        step=step,
        queries=queries,
        utility=utility,
    )
    contest = ColdContest(
        cold, proposals, terms, vectors=vectors[len(hot) :], config=config, seed=seed
    )
    contest.shrink()
    for number in range(len(proposals)):
        contest.judge(number, supported=number < supported)
    return contest.plan(hot)


def fill(
    hot: Sequence[HotItem],
    near: Sequence[ColdMemory],
    *,
    config: MemoryConfig,
    seed: int,
    summarise: Summarise | None = None,
) -> SleepPlan:
    """Return the plan of a sleep phase with room for every hot item in the cold store.

    Nothing competes, and no free energy is computed; ``near`` are the memories that a hot item may
    repeat. For the other arguments see `consolidate`.
    """
    vectors = _checked_matrix(hot, near)
    proposals, supported = _proposals(hot, vectors, config, seed, summarise)
    contest = ColdContest(
        near, proposals, None, vectors=vectors[len(hot) :], config=config, seed=seed
    )
    for number in range(len(proposals)):
        contest.judge(number, supported=number < supported)
    return contest.plan(hot)


def _proposals(
    hot: Sequence[HotItem],
    vectors: Matrix,
    config: MemoryConfig,
    seed: int,
    summarise: Summarise | None,
) -> tuple[list[Proposal], int]:
    """Return the proposals of the clusters, supported ones first, and the number of these."""
    supported, unsupported = _split(hot, vectors[: len(hot)], config, seed)
    if config.rule == "default":
        proposed = sum(len(members) for members in supported)
        unsupported = _leaving(unsupported, len(hot) - proposed, config)
    proposals = [_propose(each, config, seed, summarise) for each in supported]
    proposals += [_propose(each, config, seed, None) for each in unsupported]
    return proposals, len(supported)


def free_energies(
    memories: Sequence[ColdMemory],
    *,
    config: MemoryConfig,
    step: int,
    queries: Sequence[QueryEvent],
    utility: UtilityFunction | None,
) -> Energies:
    """Return F, E and S of each memory among the others; for the arguments see `consolidate`."""
    values = utilities(memories, config=config, step=step, queries=queries, utility=utility)
    return Energies(-values, entropies(memories, config), config.entropy_weight)


def _checked_matrix(hot: Sequence[HotItem], cold: Sequence[ColdMemory]) -> Matrix:
    """Return all vectors, hot ones first, after checking shape and finiteness."""
    items: list[HotItem | ColdMemory] = [*hot, *cold]
    if not items:
        return np.zeros((0, 0), dtype=np.float32)
    try:
        vectors = np.array([item.vector for item in items])
    except ValueError:
        raise InvalidInputError(
            "Memories have vectors of different shapes; re-embed the store with one embedder."
        ) from None
    if not np.isfinite(vectors).all():
        raise InvalidInputError("A memory's vector holds NaN or infinity; re-embed its text.")
    return vectors


def _split(
    hot: Sequence[HotItem], vectors: Matrix, config: MemoryConfig, seed: int
) -> tuple[list[list[HotItem]], list[list[HotItem]]]:
    """Return the clusters to be proposed, and those with less than the support needed.

    A cluster whose items have all been judged and have gained nothing since is in neither; under
    the paper's rule, what was judged is judged again.
    """
    supported: list[list[HotItem]] = []
    unsupported: list[list[HotItem]] = []
    texts = [as_reply(item.text, item.asked) for item in hot]
    attestations = [item.evidence.attestations for item in hot]
    for rows in cluster(vectors, texts, config, seed):
        members = [hot[row] for row in rows]
        gained = any(attestations[row] > hot[row].judged for row in rows)
        if config.rule == "default" and not gained:
            continue
        if sum(attestations[row] for row in rows) >= config.min_support:
            supported.append(members)
        else:
            unsupported.append(members)
    return supported, unsupported


def _leaving(
    unsupported: list[list[HotItem]], occupied: int, config: MemoryConfig
) -> list[list[HotItem]]:
    """Return the oldest clusters, those that may overflow before the next sleep phase.

    The others lose nothing by waiting: a repeat may still come.
    """
    excess = occupied + config.sleep_every - config.hot_capacity
    leaving = []
    older = 0
    for members in unsupported:
        if older >= excess:
            break
        leaving.append(members)
        older += len(members)
    return leaving


def _propose(
    members: Sequence[HotItem], config: MemoryConfig, seed: int, summarise: Summarise | None
) -> Proposal:
    """Return the proposal of a cluster of hot items, which are sorted oldest first."""
    vectors = np.array([item.vector for item in members])
    nearest = members[medoid(vectors)]
    vector, evidence = _pooled(members)
    representative = _representative(members, nearest)
    if config.proposal == "medoid":
        vector = nearest.vector
        representative = nearest
    text = representative.text
    asked = representative.asked
    summary = None if summarise is None else summarise(members)
    if summary is not None:
        text, summary_vector = summary
        asked = ""
        if config.proposal == "summary":
            vector = summary_vector
    messages: list[str] = []
    for item in members:
        messages += item.members
    memory = ColdMemory(
        id=_name_of(messages, seed),
        vector=vector,
        evidence=evidence,
        text=text,
        entropy=_entropy_of(vectors, vector, config),
        asked=asked,
    )
    sources = tuple(item.id for item in members)
    return Proposal(memory, members=tuple(messages), sources=sources)


def _name_of(messages: Sequence[str], seed: int) -> str:
    """Return a hash as id, so that the same sleep phase makes the same one again."""
    content = "\0".join([str(seed), *messages])
    digest = hashlib.sha256(content.encode())
    return digest.hexdigest()[:32]


def _entropy_of(members: Matrix, proposal: Vector, config: MemoryConfig) -> float:
    """Return S for readings that need the vectors of the members or of the proposal.

    "evidence" is computed when memories compete, so that later outcomes count.
    """
    if config.entropy == "cluster_variance":
        return cluster_variance(members)
    if config.entropy == "embedding":
        return embedding_entropy(proposal)
    return 0.0


def _pooled(members: Sequence[HotItem]) -> tuple[Vector, Evidence]:
    """Return direction and evidence of all observations behind the members."""
    first, *others = sorted(members, key=lambda item: item.evidence.created)
    vector = first.vector
    evidence = first.evidence
    for item in others:
        vector, resultant = moved_centroid(vector, evidence.resultant, item)
        both = merged(evidence, item.evidence)
        evidence = replace(both, resultant=resultant)
    return vector, evidence


def _representative(members: Sequence[HotItem], nearest: HotItem) -> HotItem:
    """Return the medoid; if that is a question, the newest statement."""
    if not asks(nearest.text):
        return nearest
    statements = [item for item in members if not asks(item.text)]
    if not statements:
        return nearest
    return max(statements, key=lambda item: item.evidence.last_seen)


# Clusters: linked at a threshold, or the paper's k-means


def cluster(
    vectors: Matrix, texts: Sequence[str], config: MemoryConfig, seed: int
) -> list[list[int]]:
    """Partition the rows of ``vectors`` [n, d]; each cluster lists its rows in order.

    Clusters are ordered by their first row. Only link clusters keep ``texts`` apart that say
    different things: what k-means puts together is not meant to say the same.
    """
    if not len(vectors):
        return []
    if config.rule == "paper":
        labels = kmeans_labels(vectors, config.clusters, seed)
    else:
        labels = link_labels(vectors, config.merge_threshold, texts)
    clusters: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        clusters.setdefault(label, []).append(row)
    return list(clusters.values())


def link_labels(vectors: Matrix, threshold: float, texts: Sequence[str]) -> list[int]:
    """Return the smallest row of each row's component in the graph ``cosine >= threshold``.

    Two components are not joined if a text of the one says something else than a text of the
    other (`wording`); the nearest pairs are joined first.
    """
    root = list(range(len(vectors)))
    members = [[row] for row in root]
    for one, other in _links(vectors, threshold):
        low = min(root[one], root[other])
        high = max(root[one], root[other])
        if low == high or _says_something_else(members[low], members[high], texts):
            continue
        for row in members[high]:
            root[row] = low
        members[low] += members[high]
    return root


def _says_something_else(ones: list[int], others: list[int], texts: Sequence[str]) -> bool:
    """Return True if a text of one group differs from a text of the other."""
    for one, other in product(ones, others):
        if difference(texts[one], texts[other]) is not None:
            return True
    return False


def _links(vectors: Matrix, threshold: float) -> list[tuple[int, int]]:
    """Return the linked pairs of rows, the nearest first, without a matrix of all pairs."""
    count = max(1, len(vectors))
    step = max(1, _BLOCK // count)
    ones, others, cosines = [], [], []
    for start in range(0, count, step):
        products = vectors[start : start + step] @ vectors[start:].T
        is_linked = np.triu(products >= threshold, k=1)
        rows, columns = np.nonzero(is_linked)
        ones.append(rows + start)
        others.append(columns + start)
        cosines.append(products[rows, columns])
    nearest_first = np.argsort(-np.concatenate(cosines), kind="stable")
    first = np.concatenate(ones)[nearest_first]
    second = np.concatenate(others)[nearest_first]
    return list(zip(first.tolist(), second.tolist(), strict=True))


def kmeans_labels(vectors: Matrix, clusters: int, seed: int) -> list[int]:
    """Return the k-means labels of the rows, with at most as many clusters as distinct rows."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(vectors, axis=0))
    count = min(clusters, distinct)
    model = KMeans(n_clusters=count, n_init=1, random_state=seed % 2**32)
    labels = model.fit_predict(vectors)
    return [int(label) for label in labels]


def medoid(vectors: Matrix) -> int:
    """Return the row of ``vectors`` [m, d] nearest to their mean."""
    mean = vectors.mean(axis=0)
    return int(np.argmax(vectors @ mean))
