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

from ecs_plugins.memory.admission import joined, merged
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import acceptance_probability, scaled_temperature
from ecs_plugins.memory.types import (
    ColdMemory,
    DecisionKind,
    FreeEnergy,
    HotItem,
    Proposal,
    SleepDecision,
    SleepPlan,
)
from ecs_plugins.memory.wording import difference


class ColdContest:
    """The cold store while a sleep phase decides; :meth:`plan` returns what it decided.

    Memories and proposals stand side by side, the memories first, and keep their positions; so do
    their free energies, ``terms``. A proposal is *there* once it is inserted; a displaced memory no
    longer is.
    """

    def __init__(
        self,
        cold: Sequence[ColdMemory],
        proposals: Sequence[Proposal],
        terms: Sequence[FreeEnergy],
        *,
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
        self._vectors = np.array([memory.vector for memory in self._memories])
        self._terms = list(terms)
        self._there = np.arange(len(self._memories)) < len(cold)
        self._pinned = np.array([memory.pinned for memory in self._memories], dtype=bool)
        self._weakness = np.array([self._weakness_of(each) for each in terms])
        self._fills = np.array([self._is_filler(each) for each in self._memories], dtype=bool)
        self._temperature = config.temperature
        if config.rule == "default":
            known = zip(terms, cold, strict=False)
            totals = [each.total for each, memory in known if not memory.superseded]
            self._temperature = scaled_temperature(config.temperature, totals)
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
            victim = self._terms[weakest]
            self._record("evict", None, target_id=self._memories[weakest].id, victim=victim)

    def judge(self, number: int, *, supported: bool) -> None:
        """Let a proposal reinforce the memory that it repeats, fill the store, or compete.

        One of too little support is discarded by the paper's rule. By the default it competes with
        the weakest of the older memories that have no more support than itself; without one it
        waits in the hot store, which is no decision.
        """
        rivals = self._there
        if supported:
            if self._config.rule == "default" and self._reinforce(number):
                return
        elif self._config.rule == "paper":
            self._record("discard", number, candidate=None)
            return
        else:
            rivals = self._fills & (np.arange(len(self._there)) < len(self._cold))
        if self._there.sum() < self._config.cold_capacity:
            self._insert(number)
            self._record("insert", number)
            return
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
        moving = [] if self._config.rule == "paper" else hot
        staying = self._judged - self._consumed
        return SleepPlan(
            decisions=tuple(self._decisions),
            inserted=tuple(compress(self._memories[count:], self._there[count:])),
            updated=tuple(
                self._memories[at] for at in sorted(self._changed) if at < count and self._there[at]
            ),
            removed=tuple(compress(self._cold, ~self._there[:count])),
            consumed=tuple(item.id for item in moving if item.id in self._consumed),
            judged=tuple(
                replace(item, judged=item.evidence.attestations)
                for item in moving
                if item.id in staying
            ),
            temperature=self._temperature,
            seed=self._seed,
            config_version=self._version,
        )

    def _weakness_of(self, terms: FreeEnergy) -> float:
        return terms.energy if self._config.rule == "paper" else terms.total

    def _is_filler(self, memory: ColdMemory) -> bool:
        """Whether a memory only fills the store: it is superseded, or for want of support."""
        if self._config.rule == "paper":
            return False
        return memory.superseded or memory.evidence.attestations < self._config.min_support

    def _weakest(self, among: np.ndarray[Any, np.dtype[np.bool_]]) -> int | None:
        """The position of the victim, or None if every memory is pinned; fillers come first."""
        free = among & self._there & ~self._pinned
        for part in (free & self._fills, free):
            if len(positions := np.flatnonzero(part)):
                return int(positions[np.argmax(self._weakness[positions])])
        return None

    def _insert(self, number: int) -> None:
        self._consumed.update(self._proposals[number].sources)
        self._there[len(self._cold) + number] = True

    def _reinforce(self, number: int) -> bool:
        found = self._repeated(number)
        if found is None:
            return False
        at, similarity = found
        proposal, memory = self._proposals[number], self._memories[at]
        own, new = self._terms[at], self._terms[len(self._cold) + number]
        self._record("reinforce", number, target_id=memory.id, similarity=similarity)
        evidence = merged(memory.evidence, proposal.memory.evidence)
        outdated = memory.superseded and proposal.memory.superseded
        memory = joined(memory, proposal.memory, evidence, self._config)
        memory = self._memories[at] = replace(memory, superseded=outdated)
        self._vectors[at] = memory.vector
        self._terms[at] = min(own, new, key=lambda terms: terms.total)
        self._weakness[at] = self._weakness_of(self._terms[at])
        self._fills[at] = self._is_filler(memory)
        self._changed.add(at)
        self._consumed.update(proposal.sources)
        return True

    def _repeated(self, number: int) -> tuple[int, float] | None:
        """The nearest memory that says the same, with its cosine; None if none is near."""
        proposal = self._proposals[number].memory
        cosines = self._vectors @ proposal.vector
        near = np.flatnonzero(self._there & (cosines >= self._config.merge_threshold))
        for at in near[np.argsort(-cosines[near], kind="stable")].tolist():
            if difference(proposal.text, self._memories[at].text) is None:
                return at, float(cosines[at])
        return None

    def _compete(self, number: int, at: int) -> None:
        """Let a proposal compete with the memory at a position."""
        victim = self._terms[at]
        delta = self._terms[len(self._cold) + number].total - victim.total
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
        proposal = None if number is None else self._proposals[number]
        if number is not None:
            rest.setdefault("candidate", self._terms[len(self._cold) + number])
        self._decisions.append(
            SleepDecision(
                index=len(self._decisions),
                kind=kind,
                candidate_id=proposal.memory.id if proposal else "",
                members=proposal.members if proposal else (),
                support=proposal.memory.evidence.support if proposal else 0,
                seed=self._seed,
                config_version=self._version,
                entropy_weight=self._config.entropy_weight,
                temperature=self._temperature,
                **rest,
            )
        )


def replay(decision: SleepDecision) -> SleepDecision:
    """The decision as it follows from the free energies recorded in it.

    It equals the one given, unless that was altered; without a draw it is returned as it is.
    """

    def total(terms: FreeEnergy) -> FreeEnergy:
        return replace(terms, total=terms.energy + decision.entropy_weight * terms.entropy)

    if decision.candidate is None or decision.victim is None or decision.draw is None:
        return decision
    candidate, victim = total(decision.candidate), total(decision.victim)
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
