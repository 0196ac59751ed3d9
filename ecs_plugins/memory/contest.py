"""One sleep phase's competition for the cold store: Metropolis with a record of every decision.

Paper, section 2 and A.1: the candidate competes with the weakest memory and replaces it with
probability ``min(1, exp(-(F(c) - F(v)) / T))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ecs_plugins.memory.admission import moved_centroid, told_apart
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import (
    FreeEnergies,
    acceptance_probability,
    annealed_temperature,
    scaled_temperature,
)
from ecs_plugins.memory.evidence import merged
from ecs_plugins.memory.neighbours import Neighbours
from ecs_plugins.memory.standings import Standings
from ecs_plugins.memory.types import (
    ColdMemory,
    Decision,
    DecisionKind,
    FreeEnergy,
    HotItem,
    Matrix,
    Proposal,
    SleepPlan,
)
from ecs_plugins.memory.wording import Read, Wording, may_replace

_EMPTY_SLOT = FreeEnergy(0.0, 0.0, 0.0)


class Contest:
    """The working state of one sleep phase; :meth:`plan` returns what it decided.

    Args:
        cold: The cold store.
        vectors: Its vectors [n, d].
        scores: The free energy of each cold memory.
        proposals: All that will be judged, in their order.
        config: The settings.
        seed: Seed of the draws.
        cycle: How many sleep phases there have been, for annealing.
        read: Reads what texts say.
    """

    def __init__(
        self,
        cold: Sequence[ColdMemory],
        vectors: Matrix,
        scores: FreeEnergies,
        *,
        proposals: Sequence[Proposal],
        config: MemoryConfig,
        seed: int,
        cycle: int,
        read: Read = Wording.of,
    ) -> None:
        self._config = config
        self._seed = seed
        self._version = config.version
        self._rng = np.random.default_rng(seed)
        self._standings = Standings(cold, vectors, scores, config, len(proposals))
        self._least = config.merged_from
        self._neighbours = Neighbours(proposals if config.reinforce else (), vectors, self._least)
        self._read = read
        self._temperature = _temperature(config, scores, cycle)
        self._decisions: list[Decision] = []
        self._consumed: set[str] = set()
        self._judged: set[str] = set()

    @property
    def has_room(self) -> bool:
        """Whether the cold store holds less than its capacity."""
        return len(self._standings) < self._config.cold_capacity

    def shrink(self) -> None:
        """Evict the weakest memories while the store exceeds its capacity."""
        while len(self._standings) > self._config.cold_capacity:
            weakest = self._standings.weakest()
            if weakest is None:
                return
            self._standings.remove(weakest)
            memory, terms = self._standings.memory(weakest), self._standings.terms(weakest)
            self._record("evict", None, target_id=memory.id, victim=terms)

    def judge(self, proposal: Proposal, terms: FreeEnergy) -> None:
        """Reinforce the memory that the proposal repeats, or let it compete."""
        self._judged.update(proposal.sources)
        if self._config.reinforce and self._reinforce(proposal, terms):
            return
        if self.has_room:
            if self._config.fill != "contest":
                self._insert(proposal, terms)
                self._record("insert", proposal, candidate=terms)
                return
            if self._compete(proposal, terms, None, _EMPTY_SLOT, "insert"):
                self._insert(proposal, terms)
            return
        weakest = self._standings.weakest()
        if weakest is None:
            self._record("reject", proposal, candidate=terms)
            return
        self._challenge(proposal, terms, weakest)

    def fill_or_discard(self, proposal: Proposal, terms: FreeEnergy) -> None:
        """Deal with a cluster of too little support.

        If the settings say so it is inserted while there is room, and afterwards competes with
        the weakest of the older memories that have no more support than itself. Otherwise it is
        discarded; where repeats are merged on arrival it just waits in the hot store, which is
        no decision.
        """
        if self._config.fill != "all":
            if self._config.on_add == "append":
                self._record("discard", proposal)
            return
        if self.has_room:
            self._insert(proposal, terms)
            self._record("insert", proposal, candidate=terms)
            return
        weakest = self._standings.weakest_old_filler()
        if weakest is not None:
            self._judged.update(proposal.sources)
            self._challenge(proposal, terms, weakest)

    def plan(self, hot: Sequence[HotItem], step: int) -> SleepPlan:
        """Return everything that was decided."""
        standings, stay = self._standings, self._config.keep_hot
        return SleepPlan(
            decisions=tuple(self._decisions),
            inserted=standings.added(),
            updated=standings.changed(),
            removed=standings.removed(),
            consumed=() if stay else tuple(i.id for i in hot if i.id in self._consumed),
            judged=()
            if stay
            else tuple(
                replace(item, judged=item.evidence.attestations)
                for item in hot
                if item.id in self._judged - self._consumed
            ),
            step=step,
            temperature=self._temperature,
            seed=self._seed,
            config_version=self._version,
        )

    def _insert(self, proposal: Proposal, terms: FreeEnergy) -> None:
        self._consumed.update(proposal.sources)
        position = self._standings.add(
            ColdMemory(
                id=proposal.id,
                vector=proposal.vector,
                evidence=proposal.evidence,
                text=proposal.text,
                entropy=proposal.entropy,
                utility=-terms.energy,
            ),
            terms,
        )
        self._neighbours.became(proposal, position)

    def _reinforce(self, proposal: Proposal, terms: FreeEnergy) -> bool:
        repeated = self._repeated(proposal)
        if repeated is None:
            return False
        position, similarity = repeated
        memory = self._standings.memory(position)
        stronger = min(self._standings.terms(position), terms, key=lambda item: item.total)
        self._standings.change(position, _reinforced(memory, proposal, self._config), stronger)
        self._consumed.update(proposal.sources)
        self._record(
            "reinforce", proposal, candidate=terms, target_id=memory.id, similarity=similarity
        )
        return True

    def _repeated(self, proposal: Proposal) -> tuple[int, float] | None:
        """Return the nearest memory that says the same, with its cosine; None if none is near."""
        vector, least = proposal.vector, self._least
        near = [*self._neighbours.of(proposal), *self._standings.changed_near(vector, least)]
        if not any(self._says_the_same(proposal, position) for position in near):
            return None
        for position, similarity in self._standings.near(vector, least):
            if self._says_the_same(proposal, position):
                return position, similarity
        return None

    def _says_the_same(self, proposal: Proposal, position: int) -> bool:
        memory = self._standings.memory(position)
        there = self._standings.is_there(position)
        return there and told_apart(proposal, memory, self._config, self._read) is None

    def _challenge(self, proposal: Proposal, terms: FreeEnergy, position: int) -> None:
        """Let a proposal compete with the memory at a position."""
        victim, score = self._standings.memory(position), self._standings.terms(position)
        if self._compete(proposal, terms, victim.id, score, "replace"):
            self._standings.remove(position)
            self._insert(proposal, terms)

    def _compete(
        self,
        proposal: Proposal,
        terms: FreeEnergy,
        victim_id: str | None,
        victim: FreeEnergy,
        kind: DecisionKind,
    ) -> bool:
        delta = terms.total - victim.total
        probability = acceptance_probability(delta, self._temperature)
        draw = float(self._rng.random())
        accepted = draw < probability
        self._record(
            kind if accepted else "reject",
            proposal,
            candidate=terms,
            target_id=victim_id,
            victim=victim,
            delta=delta,
            probability=probability,
            draw=draw,
        )
        return accepted

    def _record(
        self,
        kind: DecisionKind,
        proposal: Proposal | None,
        *,
        candidate: FreeEnergy | None = None,
        target_id: str | None = None,
        victim: FreeEnergy | None = None,
        similarity: float | None = None,
        delta: float | None = None,
        probability: float | None = None,
        draw: float | None = None,
    ) -> None:
        self._decisions.append(
            Decision(
                index=len(self._decisions),
                kind=kind,
                candidate_id=proposal.id if proposal else "",
                members=proposal.members if proposal else (),
                support=proposal.evidence.support if proposal else 0,
                seed=self._seed,
                config_version=self._version,
                entropy_weight=self._config.entropy_weight,
                temperature=self._temperature,
                candidate=candidate,
                target_id=target_id,
                victim=victim,
                similarity=similarity,
                delta=delta,
                probability=probability,
                draw=draw,
            )
        )


def replay(decision: Decision) -> Decision:
    """Recompute free energies, difference, probability and outcome from the record.

    Returns:
        The decision as it follows from what was recorded: equal to the one given, unless that
        was altered. Decisions without a draw are returned as they are.
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


def _temperature(config: MemoryConfig, scores: FreeEnergies, cycle: int) -> float:
    if config.schedule == "constant":
        return config.temperature
    if config.schedule == "annealed":
        return annealed_temperature(
            config.temperature, config.final_temperature, config.annealing, cycle
        )
    return scaled_temperature(config.temperature, scores.totals)


def _reinforced(memory: ColdMemory, proposal: Proposal, config: MemoryConfig) -> ColdMemory:
    """Merge a proposal into the memory that it repeats."""
    vector, resultant = moved_centroid(
        memory.vector,
        memory.evidence.resultant,
        proposal.vector * np.float32(proposal.evidence.resultant),
    )
    evidence = merged(memory.evidence, proposal.evidence, resultant, config)
    agrees = evidence.label is None or evidence.label == proposal.evidence.label
    return replace(
        memory,
        vector=vector if config.proposal == "centroid" else memory.vector,
        evidence=evidence,
        text=proposal.text if agrees and may_replace(proposal.text, memory.text) else memory.text,
    )
