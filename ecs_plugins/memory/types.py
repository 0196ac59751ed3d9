"""The values of a memory: namespaces, items of both tiers, evidence, decisions, plans.

Everything here is frozen and free of storage, clocks and models. Time is a *step*: the running
number of the message within its namespace, which the caller supplies. Vectors are float32 and
L2-normalised; they take no part in equality or ``repr``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ecs_plugins.memory.near_texts import Difference

Vector: TypeAlias = NDArray[np.float32]
Matrix: TypeAlias = NDArray[np.float32]
Floats: TypeAlias = NDArray[np.float64]

Tier: TypeAlias = Literal["hot", "cold"]
TIERS: tuple[Tier, Tier] = ("hot", "cold")

DecisionKind: TypeAlias = Literal["insert", "replace", "reinforce", "reject", "discard", "evict"]

Namespace: TypeAlias = tuple[str, ...]

DEFAULT_NAMESPACE: Namespace = ("default",)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Observations about one memory: the sufficient statistics of E and S.

    Attributes:
        created: Step of the first observation behind the memory.
        updated: Step to which ``demand`` and the outcome weights have been decayed.
        last_seen: Step of the latest repeat or retrieval hit.
        support: Number of observations merged into the memory, never decayed.
        demand: Times that the memory was asked for or said again after the first time, decayed
            with a half-life (`evidence`). A hit and a repeat in one step are one event.
        hits: Retrieval hits, never decayed (for display).
        agreements: Times that using the memory turned out well, decayed like ``demand``.
        contradictions: Times that it did not, decayed likewise.
        resultant: Length of the sum of the unit vectors observed; with the direction it gives the
            sum itself, so the running centroid is exact.
        edited: Whether its text was set by ``update``: no repeat of the old words replaces it.
        unlike: In what it differed from a memory that it was near enough to repeat, when it was
            first said (`wording`): the reason why it is a memory of its own.
    """

    created: int
    updated: int
    last_seen: int
    support: int = 1
    demand: float = 0.0
    hits: int = 0
    agreements: float = 0.0
    contradictions: float = 0.0
    resultant: float = 1.0
    edited: bool = False
    unlike: Difference | None = None

    @property
    def attestations(self) -> int:
        """Number of observations and retrieval hits."""
        return self.support + self.hits


@dataclass(frozen=True, slots=True)
class HotItem:
    """A working-store item: one observation, or several near-duplicates merged on arrival.

    Attributes:
        id: Id of the first message in it.
        vector: Direction of the mean of its observations [d], float32, normalised.
        members: Message ids merged into it, oldest first.
        text: The representative text (of the newest member).
        judged: Its attestations when a sleep phase last judged it; 0 when none has. An item is
            proposed again only when it has gained some.
        asked: The question that ``text`` replies to; empty if it replies to none.
    """

    id: str
    vector: Vector = field(repr=False, compare=False)
    evidence: Evidence
    members: tuple[str, ...]
    text: str = ""
    judged: int = 0
    asked: str = ""


@dataclass(frozen=True, slots=True)
class ColdMemory:
    """A consolidated memory. Its provenance is kept by the store (decisions carry members).

    Attributes:
        vector: Embedding [d], float32, normalised.
        pinned: Never a victim.
        entropy: Entropy of the cluster it came from, as computed then: the readings of S that
            need the members' vectors cannot be recomputed later.
        asked: The question that ``text`` replies to; empty if it replies to none.
    """

    id: str
    vector: Vector = field(repr=False, compare=False)
    evidence: Evidence
    text: str = ""
    pinned: bool = False
    entropy: float = 0.0
    asked: str = ""


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """A recent query; with the answer that was really given, once that is known."""

    step: int
    vector: Vector = field(repr=False, compare=False)
    text: str = ""
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class FreeEnergy:
    """``F = E + lambda * S`` of one memory (paper, section 2)."""

    energy: float
    entropy: float
    total: float


@dataclass(frozen=True, slots=True)
class SleepDecision:
    """One decision of a sleep phase, with all that is needed to recompute it.

    Attributes:
        index: Position within the sleep phase.
        kind: ``insert`` (there was room), ``replace`` (the candidate displaced the victim),
            ``reinforce`` (it repeats a cold memory), ``reject`` (it lost), ``discard`` (too
            little support to be proposed), ``evict`` (the cold store exceeded its capacity and
            lost its weakest memory; there is no candidate).
        candidate_id: Id that the candidate has, or would have had, in the cold store; empty for
            ``evict``.
        members: Message ids behind the candidate.
        support: Observations behind the candidate.
        candidate: Its free energy; None for ``discard`` and ``evict``, and where nothing competes
            because there is room for all.
        target_id: The victim, or the reinforced memory; None if there was none (an empty slot,
            or every memory is pinned).
        victim: The victim's free energy.
        similarity: Cosine to the reinforced memory, for ``reinforce``.
        delta: ``F(candidate) - F(victim)``.
        temperature: The temperature of this sleep phase.
        probability: ``min(1, exp(-delta / T))``.
        draw: The uniform number in [0, 1) that it was compared with.
        entropy_weight: lambda.
        seed: Seed of the sleep phase.
        config_version: ``MemoryConfig.version`` of the configuration used.
    """

    index: int
    kind: DecisionKind
    candidate_id: str
    members: tuple[str, ...]
    support: int
    seed: int
    config_version: str
    entropy_weight: float
    temperature: float
    candidate: FreeEnergy | None = None
    target_id: str | None = None
    victim: FreeEnergy | None = None
    similarity: float | None = None
    delta: float | None = None
    probability: float | None = None
    draw: float | None = None


@dataclass(frozen=True, slots=True)
class SleepPlan:
    """Decisions of a sleep phase, not yet written.

    Attributes:
        updated: Reinforced cold memories, with their new values.
        removed: Displaced cold memories as they were.
        consumed: Ids of the hot items that leave the hot tier.
        judged: Hot items that stay, with their new value of ``HotItem.judged``.
    """

    decisions: tuple[SleepDecision, ...]
    inserted: tuple[ColdMemory, ...]
    updated: tuple[ColdMemory, ...]
    removed: tuple[ColdMemory, ...]
    consumed: tuple[str, ...]
    judged: tuple[HotItem, ...]
    temperature: float
    seed: int
    config_version: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Proposal of one cluster of hot items, with the ids of its messages and items."""

    memory: ColdMemory
    members: tuple[str, ...]
    sources: tuple[str, ...]


UtilityFunction = Callable[[Sequence[ColdMemory], Sequence[QueryEvent], int], Sequence[float]]
"""From the memories that compete, recent queries and the step to one finite utility per memory,
in nats; ``E = -utility``."""

Summarise = Callable[[Sequence[HotItem]], tuple[str, Vector] | None]
"""Turns the members of a cluster into one proposition and its vector; None leaves both to the
cluster."""
