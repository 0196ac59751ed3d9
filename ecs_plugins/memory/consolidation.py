"""The sleep phase: cluster the hot store, propose, let proposals compete, decide (paper, A.1).

:func:`consolidate` is a pure function. It writes nothing and reads no clock: what it returns is
a plan, which the caller carries out in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ecs_plugins.common.text import as_reply, asks
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import merged, moved_centroid
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.contest import ColdContest
from ecs_plugins.memory.energy import SUPERSEDED, cluster_variance, embedding_entropy, free_energy
from ecs_plugins.memory.types import (
    ColdMemory,
    Evidence,
    FreeEnergy,
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
from ecs_plugins.memory.wording import difference

Rows = npt.NDArray[np.int64]

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
        unsupported = _leaving(unsupported, len(hot) - sum(map(len, supported)), config)
    proposals = [_propose(m, config=config, summarise=summarise, seed=seed) for m in supported]
    proposals += [_propose(m, config=config, summarise=None, seed=seed) for m in unsupported]
    terms = free_energies(
        [*cold, *(proposal.memory for proposal in proposals)],
        config=config,
        step=step,
        queries=queries,
        utility=utility,
    )
    contest = ColdContest(cold, proposals, terms, config=config, seed=seed)
    contest.shrink()
    for number in range(len(proposals)):
        contest.judge(number, supported=number < len(supported))
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
    penalty = SUPERSEDED if config.rule == "default" else 0.0
    return [
        free_energy(value - penalty * memory.superseded, entropy, config.entropy_weight)
        for memory, value, entropy in zip(memories, values.tolist(), disorder.tolist(), strict=True)
    ]


def _checked_matrix(hot: Sequence[HotItem], cold: Sequence[ColdMemory]) -> Matrix:
    """Return all vectors, hot ones first, after checking shape and finiteness."""
    items: list[HotItem | ColdMemory] = [*hot, *cold]
    if not items:
        return np.zeros((0, 0), dtype=np.float32)
    try:
        vectors = np.stack([item.vector for item in items])
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
    before = accumulate(map(len, unsupported), initial=0)
    return [members for members, count in zip(unsupported, before, strict=False) if count < excess]


def _propose(
    members: Sequence[HotItem], *, config: MemoryConfig, summarise: Summarise | None, seed: int
) -> Proposal:
    """Return what a cluster of hot items, oldest first, proposes for the cold store."""
    vectors = np.array([item.vector for item in members])
    nearest = members[medoid(vectors)]
    vector, evidence = _pooled(members)
    representative = _representative(members, nearest)
    if config.proposal == "medoid":
        vector, representative = nearest.vector, nearest
    text, asked = representative.text, representative.asked
    written = None if summarise is None else summarise(members)
    if written is not None:
        (text, summary), asked = written, ""
        vector = summary if config.proposal == "summary" else vector
    entropy = 0.0  # "evidence" is computed when memories compete, so that later outcomes count
    if config.entropy == "cluster_variance":
        entropy = cluster_variance(vectors)
    elif config.entropy == "embedding":
        entropy = embedding_entropy(vector)
    messages = tuple(message for item in members for message in item.members)
    return Proposal(
        ColdMemory(
            hashlib.sha256("\0".join([str(seed), *messages]).encode()).hexdigest()[:32],
            vector,
            evidence,
            text,
            entropy=entropy,
            asked=asked,
            superseded=all(item.superseded for item in members),
        ),
        members=messages,
        sources=tuple(item.id for item in members),
    )


def _pooled(members: Sequence[HotItem]) -> tuple[Vector, Evidence]:
    """Return direction and evidence of all observations behind the members."""
    first, *others = sorted(members, key=lambda item: item.evidence.created)
    vector, evidence = first.vector, first.evidence
    for item in others:
        vector, resultant = moved_centroid(vector, evidence.resultant, item)
        evidence = replace(merged(evidence, item.evidence), resultant=resultant)
    return vector, evidence


def _representative(members: Sequence[HotItem], nearest: HotItem) -> HotItem:
    """The medoid; if that is a question, the newest statement."""
    if not asks(nearest.text):
        return nearest
    statements = [item for item in members if not asks(item.text)]
    return max(statements or [nearest], key=lambda item: item.evidence.last_seen)


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
    rows, columns, cosines = _links(vectors, threshold)
    nearest_first = np.argsort(-cosines, kind="stable")
    root = list(range(len(vectors)))
    members = [[row] for row in root]
    for a, b in zip(rows[nearest_first].tolist(), columns[nearest_first].tolist(), strict=True):
        low, high = sorted((root[a], root[b]))
        if low == high or any(
            difference(texts[one], texts[other]) for one in members[low] for other in members[high]
        ):
            continue
        for row in members[high]:
            root[row] = low
        members[low] += members[high]
    return root


def _links(vectors: Matrix, threshold: float) -> tuple[Rows, Rows, Vector]:
    """The pairs of rows that are linked, and their cosines, without a matrix of all pairs."""
    found = []
    count = max(1, len(vectors))
    step = max(1, _BLOCK // count)
    for start in range(0, count, step):
        cosines = vectors[start : start + step] @ vectors[start:].T
        rows, columns = np.nonzero(np.triu(cosines >= threshold, k=1))
        found.append((rows + start, columns + start, cosines[rows, columns]))
    rows, columns, near = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows, columns, near


def kmeans_labels(vectors: Matrix, clusters: int, seed: int) -> list[int]:
    """Return the k-means labels of the rows, with at most as many clusters as distinct rows."""
    from sklearn.cluster import KMeans

    count = min(clusters, len(np.unique(vectors, axis=0)))
    model = KMeans(n_clusters=count, n_init=1, random_state=seed % 2**32)
    return [int(label) for label in model.fit_predict(vectors)]


def medoid(vectors: Matrix) -> int:
    """Return the row of ``vectors`` [m, d] nearest to their mean."""
    return int(np.argmax(vectors @ vectors.mean(axis=0)))
