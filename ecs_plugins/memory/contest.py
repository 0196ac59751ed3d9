"""One sleep phase's competition for the cold store: Metropolis with a record of every decision.

Paper, section 2 and A.1: the candidate competes with the weakest memory and replaces it with
probability ``min(1, exp(-(F(c) - F(v)) / T))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from ecs_plugins.memory.admission import joined, merged
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import Energies, acceptance_probability, scaled_temperature
from ecs_plugins.memory.near_texts import difference
from ecs_plugins.memory.types import (
    ColdMemory,
    DecisionKind,
    FreeEnergy,
    HotItem,
    Matrix,
    Proposal,
    SleepDecision,
    SleepPlan,
)


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
        self._fills = self._fillers(self._memories)
        self._temperature = 0.0 if terms is None else self._temperature_of(terms)
        self._decisions: list[SleepDecision] = []
        self._changed: set[int] = set()
        self._consumed: set[str] = set()
        self._judged: set[str] = set()

    def _temperature_of(self, terms: Energies) -> float:
        """Return T; by the default rule it is in standard deviations of F over the cold store."""
        config = self._config
        if config.rule == "paper":
            return config.temperature
        return scaled_temperature(config.temperature, terms.totals[: len(self._cold)])

    def shrink(self) -> None:
        """Evict the weakest memories while the store exceeds its capacity."""
        while self._there.sum() > self._config.cold_capacity:
            weakest = self._weakest(self._there)
            if weakest is None:
                return
            self._there[weakest] = False
            victim = self._terms_of(weakest)
            self._record("evict", None, target_id=self._memories[weakest].id, victim=victim)

    def judge(self, number: int, *, supported: bool) -> None:
        """Let a proposal reinforce the memory that it repeats, fill the store, or compete.

        One of too little support is discarded by the paper's rule. By the default it competes with
        the weakest of the older memories that have no more support than itself; without one it
        waits in the hot store, which is no decision.
        """
        by_paper = self._config.rule == "paper"
        if by_paper and not supported:
            self._record("discard", number, candidate=None)
            return
        if supported and not by_paper and self._reinforce(number):
            return
        if self._terms is None or self._there.sum() < self._config.cold_capacity:
            self._insert(number)
            self._record("insert", number)
            return
        rivals = self._there
        if not supported:
            is_older = np.arange(len(self._there)) < len(self._cold)
            rivals = self._fills & is_older
        weakest = self._weakest(rivals)
        if supported or weakest is not None:
            self._judged.update(self._proposals[number].sources)
        if weakest is not None:
            self._compete(number, weakest)
        elif supported:
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

    def _fillers(self, memories: Sequence[ColdMemory]) -> npt.NDArray[np.bool_]:
        """Return a mask of memories with too little support: they only fill the store."""
        if self._config.rule == "paper" or self._config.min_support == 1:
            return np.zeros(len(memories), dtype=bool)
        attestations = [memory.evidence.attestations for memory in memories]
        return np.array(attestations) < self._config.min_support

    def _weakest(self, among: npt.NDArray[np.bool_]) -> int | None:
        """Return the position of the victim, fillers first; None if every memory is pinned."""
        free = among & self._there & ~self._pinned
        fillers = free & self._fills
        rivals = fillers if fillers.any() else free
        positions = np.flatnonzero(rivals)
        if not len(positions) or self._terms is None:
            return None
        by_paper = self._config.rule == "paper"
        weakness = self._terms.energies if by_paper else self._terms.totals
        weakest = np.argmax(weakness[positions])
        return int(positions[weakest])

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
        self._fills[at] = self._fillers([memory])[0]
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
        """Note a decision about a proposal; about none if ``number`` is None."""
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
