"""The sleep phase: cluster the hot store, propose, let proposals compete, decide (paper, A.1).

:func:`consolidate` is a pure function. It writes nothing and reads no clock: it returns a plan,
which the caller carries out in one transaction. A candidate competes with the weakest memory and
replaces it with probability ``min(1, exp(-(F(c) - F(v)) / T))`` (paper, section 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecs_plugins.common.text import as_reply, asks
from ecs_plugins.memory.admission import joined, merged, moved_centroid
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import (
    Energies,
    acceptance_probability,
    cluster_variance,
    embedding_entropy,
)
from ecs_plugins.memory.near_texts import difference
from ecs_plugins.memory.types import (
    ColdMemory,
    DecisionKind,
    Evidence,
    FreeEnergy,
    HotItem,
    Matrix,
    Proposal,
    QueryEvent,
    SleepDecision,
    SleepPlan,
    Summarise,
    UtilityFunction,
    Vector,
)
from ecs_plugins.memory.utility import entropies, utilities


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

    By the default rule, where the cold store has room for every hot item nothing competes, and no
    free energy is computed.

    Args:
        hot: The hot store, oldest first.
        cold: The cold store; where it has room for every hot item, those that one may repeat.
        config: The settings.
        step: Number of the latest message in the namespace.
        seed: Seed of this sleep phase; it stands in every decision.
        queries: Recent queries, oldest first, for the utilities that need them.
        utility: Replaces the configured utility, for example with ECS.
        summarise: Writes the text of a proposal and embeds it, or leaves it; an exception
            that it raises passes through, and nothing has changed then.

    Raises:
        InvalidInputError: If the utility returns a wrong number of values or a value that is not
            finite.
    """
    items: list[HotItem | ColdMemory] = [*hot, *cold]
    vectors = np.array([item.vector for item in items], dtype=np.float32)
    proposals = _proposals(hot, vectors[: len(hot)], config, seed, summarise)
    terms = None
    has_room = len(hot) + len(cold) <= config.cold_capacity
    if config.rule == "paper" or not has_room:
        memories = [*cold, *(proposal.memory for proposal in proposals)]
        terms = free_energies(memories, config=config, step=step, queries=queries, utility=utility)
    contest = ColdContest(
        cold, proposals, terms, vectors=vectors[len(hot) :], config=config, seed=seed
    )
    contest.shrink()
    for number in range(len(proposals)):
        contest.judge(number)
    return contest.plan(hot)


def _proposals(
    hot: Sequence[HotItem],
    vectors: Matrix,
    config: MemoryConfig,
    seed: int,
    summarise: Summarise | None,
) -> list[Proposal]:
    """Return the proposals of the clusters, those with enough support first.

    By the default rule a cluster whose items have all been judged and have gained nothing since is
    not proposed, and one of too little support waits in the hot store for a repeat; the oldest of
    these, which may leave it before the next sleep phase, are proposed.
    """
    texts = [as_reply(item.text, item.asked) for item in hot]
    attestations = [item.evidence.attestations for item in hot]
    proposals = []
    waiting: list[list[HotItem]] = []
    leaving = len(hot) + config.sleep_every - config.hot_capacity
    for rows in cluster(vectors, texts, config, seed):
        members = [hot[row] for row in rows]
        has_gained = any(attestations[row] > hot[row].judged for row in rows)
        if config.rule == "default" and not has_gained:
            continue
        if sum(attestations[row] for row in rows) < config.min_support:
            waiting.append(members)
            continue
        proposals.append(_propose(members, config, seed, summarise))
        leaving -= len(members)
    for members in waiting:
        if config.rule == "paper" or leaving > 0:
            proposals.append(_propose(members, config, seed, None))
            leaving -= len(members)
    return proposals


def free_energies(
    memories: Sequence[ColdMemory],
    *,
    config: MemoryConfig,
    step: int,
    queries: Sequence[QueryEvent],
    utility: UtilityFunction | None,
) -> Energies:
    """Return free energy F, energy E and entropy S of each memory; arguments as `consolidate`."""
    values = utilities(memories, config=config, step=step, queries=queries, utility=utility)
    return Energies(-values, entropies(memories, config), config.entropy_weight)


def _propose(
    members: Sequence[HotItem],
    config: MemoryConfig,
    seed: int,
    summarise: Summarise | None,
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
    content = "\0".join([str(seed), *messages])  # the same sleep phase makes the same id again
    memory = ColdMemory(
        id=hashlib.sha256(content.encode()).hexdigest()[:32],
        vector=vector,
        evidence=evidence,
        text=text,
        entropy=_entropy_of(vectors, vector, config),
        asked=asked,
    )
    sources = tuple(item.id for item in members)
    return Proposal(memory, members=tuple(messages), sources=sources)


def _entropy_of(
    members: Matrix,
    proposal: Vector,
    config: MemoryConfig,
) -> float:
    """Return S for readings that need the vectors of the members or of the proposal.

    "evidence" is computed when memories compete, so that later outcomes count.
    """
    if config.entropy == "cluster_variance":
        return cluster_variance(members)
    if config.entropy == "embedding":
        return embedding_entropy(proposal)
    return 0.0


def _pooled(members: Sequence[HotItem]) -> tuple[Vector, Evidence]:
    """Return the direction and the evidence of all observations of the members."""
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


# The contest


class ColdContest:
    """The cold store during a sleep phase; :meth:`plan` returns the decisions.

    Memories and proposals stand side by side, the memories first, and keep their positions; so do
    their free energies, ``terms``. A proposal is *there* once it is inserted; a displaced memory no
    longer is. Without ``terms`` there is room for every proposal, and nothing competes.
    """

    def __init__(
        self,
        cold: Sequence[ColdMemory],
        proposals: Sequence[Proposal],
        terms: Energies | None,
        *,
        vectors: Matrix,
        config: MemoryConfig,
        seed: int,
    ) -> None:
        self._config = config
        self._seed = seed
        self._version = config.version
        self._rng = np.random.default_rng(seed)
        self._cold = cold
        self._proposals = proposals
        self._memories = [*cold, *(proposal.memory for proposal in proposals)]
        proposed = [proposal.memory.vector for proposal in proposals]
        self._vectors = np.concatenate([vectors, np.array(proposed)]) if proposed else vectors
        self._terms = terms
        self._there = np.arange(len(self._memories)) < len(cold)
        self._pinned = np.array([memory.pinned for memory in self._memories], dtype=bool)
        self._weak = np.zeros(len(self._memories), dtype=bool)
        if config.rule == "default" and config.min_support > 1:
            self._weak[:] = [*map(self._is_weak, self._memories)]
        self._temperature = 0.0 if terms is None else config.temperature
        if terms is not None and config.rule == "default":  # in deviations of F over the store
            self._temperature *= float(np.std(terms.totals[: len(cold)])) if cold else 0.0
        self._decisions: list[SleepDecision] = []
        self._changed: set[int] = set()
        self._consumed: set[str] = set()
        self._judged: set[str] = set()

    def shrink(self) -> None:
        """Evict the weakest memories while the store exceeds its capacity."""
        while self._there.sum() > self._config.cold_capacity:
            weakest = self._weakest(self._there)
            if weakest is None:
                return
            self._there[weakest] = False
            victim = self._terms_of(weakest)
            self._record("evict", None, target_id=self._memories[weakest].id, victim=victim)

    def judge(self, number: int) -> None:
        """Let a proposal reinforce the memory that it repeats, fill the store, or compete.

        One of too little support is discarded by the paper's rule. By the default it competes with
        the older memories that have no more support than itself; without one it waits in the hot
        store, which is no decision.
        """
        by_paper = self._config.rule == "paper"
        is_supported = not self._is_weak(self._proposals[number].memory)
        if by_paper and not is_supported:
            self._record("discard", number, candidate=None)
            return
        if is_supported and not by_paper and self._reinforce(number):
            return
        if self._terms is None or self._there.sum() < self._config.cold_capacity:
            self._insert(number)
            self._record("insert", number)
            return
        rivals = self._there
        if not is_supported:
            rivals = self._weak & (np.arange(len(rivals)) < len(self._cold))
        weakest = self._weakest(rivals)
        if is_supported or weakest is not None:
            self._judged.update(self._proposals[number].sources)
        if weakest is not None:
            self._compete(number, weakest)
        elif is_supported:
            self._record("reject", number)

    def plan(self, hot: Sequence[HotItem]) -> SleepPlan:
        """Return everything that was decided. Under the paper's rule the hot items stay."""
        count = len(self._cold)
        stays = self._there[:count]
        changed = [at for at in sorted(self._changed) if at < count and stays[at]]
        moving = [] if self._config.rule == "paper" else hot
        consumed = [item.id for item in moving if item.id in self._consumed]
        judged = []
        for item in moving:
            if item.id in self._judged and item.id not in self._consumed:
                attestations = item.evidence.attestations
                judged.append(replace(item, judged=attestations))
        return SleepPlan(
            decisions=tuple(self._decisions),
            inserted=tuple(compress(self._memories[count:], self._there[count:])),
            updated=tuple(self._memories[at] for at in changed),
            removed=tuple(compress(self._cold, ~stays)),
            consumed=tuple(consumed),
            judged=tuple(judged),
            temperature=self._temperature,
            seed=self._seed,
            config_version=self._version,
        )

    def _terms_of(self, at: int) -> FreeEnergy | None:
        return None if self._terms is None else self._terms[at]

    def _is_weak(self, memory: ColdMemory) -> bool:
        return memory.evidence.attestations < self._config.min_support

    def _weakest(self, among: NDArray[np.bool_]) -> int | None:
        """Return the position of the victim, of too little support first; None without one."""
        free = among & self._there & ~self._pinned
        weak = free & self._weak
        positions = np.flatnonzero(weak if weak.any() else free)
        if not len(positions) or self._terms is None:
            return None
        by_paper = self._config.rule == "paper"
        weakness = self._terms.energies if by_paper else self._terms.totals
        return int(positions[np.argmax(weakness[positions])])

    def _insert(self, number: int) -> None:
        self._consumed.update(self._proposals[number].sources)
        self._there[len(self._cold) + number] = True

    def _reinforce(self, number: int) -> bool:
        """Let a proposal join the memory that it repeats; return False if there is none."""
        target = self._repeated(number)
        if target is None:
            return False
        at, similarity = target
        proposal = self._proposals[number]
        memory = self._memories[at]
        self._record("reinforce", number, target_id=memory.id, similarity=similarity)
        evidence = merged(memory.evidence, proposal.memory.evidence)
        memory = joined(memory, proposal.memory, evidence, self._config)
        self._memories[at] = memory
        self._vectors[at] = memory.vector
        own = len(self._cold) + number
        if self._terms is not None and self._terms.totals[own] < self._terms.totals[at]:
            self._terms.take(at, own)
        self._weak[at] = self._is_weak(memory)
        self._changed.add(at)
        self._consumed.update(proposal.sources)
        return True

    def _repeated(self, number: int) -> tuple[int, float] | None:
        """Return the nearest memory that says the same, with its cosine; None if none is near."""
        proposal = self._proposals[number].memory
        cosines = self._vectors @ proposal.vector
        is_near = cosines >= self._config.merge_threshold
        near = np.flatnonzero(self._there & is_near)
        nearest_first = near[np.argsort(-cosines[near], kind="stable")]
        for at in nearest_first.tolist():
            memory = self._memories[at]
            if difference(proposal.text, memory.text) is None:
                return at, float(cosines[at])
        return None

    def _compete(self, number: int, at: int) -> None:
        """Let a proposal compete with the memory at a position."""
        assert self._terms is not None
        victim = self._terms[at]
        candidate = self._terms[len(self._cold) + number]
        delta = candidate.total - victim.total
        probability = acceptance_probability(delta, self._temperature)
        draw = float(self._rng.random())
        won = draw < probability
        if won:
            self._there[at] = False
            self._insert(number)
        self._record(
            "replace" if won else "reject",
            number,
            target_id=self._memories[at].id,
            victim=victim,
            delta=delta,
            probability=probability,
            draw=draw,
        )

    def _record(self, kind: DecisionKind, number: int | None, **rest: Any) -> None:
        """Record a decision about proposal ``number``, or about no proposal if None."""
        about: dict[str, Any] = {"candidate_id": "", "members": (), "support": 0}
        if number is not None:
            proposal = self._proposals[number]
            about = {
                "candidate_id": proposal.memory.id,
                "members": proposal.members,
                "support": proposal.memory.evidence.support,
                "candidate": self._terms_of(len(self._cold) + number),
            }
        decision = SleepDecision(
            index=len(self._decisions),
            kind=kind,
            seed=self._seed,
            config_version=self._version,
            entropy_weight=self._config.entropy_weight,
            temperature=self._temperature,
            **(about | rest),
        )
        self._decisions.append(decision)


def replay(decision: SleepDecision) -> SleepDecision:
    """Return the decision as it follows from the free energies recorded in it.

    It equals the one given, unless that was altered; without a draw it is returned as it is.
    """
    if decision.candidate is None or decision.victim is None or decision.draw is None:
        return decision
    candidate = _added_up(decision.candidate, decision.entropy_weight)
    victim = _added_up(decision.victim, decision.entropy_weight)
    delta = candidate.total - victim.total
    probability = acceptance_probability(delta, decision.temperature)
    won: DecisionKind = "insert" if decision.target_id is None else "replace"
    return replace(
        decision,
        kind=won if decision.draw < probability else "reject",
        candidate=candidate,
        victim=victim,
        delta=delta,
        probability=probability,
    )


def _added_up(terms: FreeEnergy, entropy_weight: float) -> FreeEnergy:
    total = terms.energy + entropy_weight * terms.entropy
    return replace(terms, total=total)


# Clusters: linked at a threshold, or the paper's k-means


def cluster(
    vectors: Matrix,
    texts: Sequence[str],
    config: MemoryConfig,
    seed: int,
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


def link_labels(
    vectors: Matrix,
    threshold: float,
    texts: Sequence[str],
) -> list[int]:
    """Return the smallest row of each row's component in the graph ``cosine >= threshold``.

    The nearest pairs are joined first. Two components are not joined if any text of one
    differs from a text of the other (`wording`).
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


def _says_something_else(
    ones: list[int],
    others: list[int],
    texts: Sequence[str],
) -> bool:
    """Return True if a text of one group differs from a text of the other."""
    for one, other in product(ones, others):
        if difference(texts[one], texts[other]) is not None:
            return True
    return False


def _links(vectors: Matrix, threshold: float) -> list[tuple[int, int]]:
    """Return the linked pairs of rows, the nearest first."""
    cosines = vectors @ vectors.T
    first, second = np.nonzero(np.triu(cosines >= threshold, k=1))
    nearest_first = np.argsort(-cosines[first, second], kind="stable")
    pairs = np.stack([first, second], axis=1)[nearest_first]
    return [(one, other) for one, other in pairs.tolist()]


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
