"""The cold store while a sleep phase is deciding: who is nearest, who is weakest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import FreeEnergies
from ecs_plugins.memory.neighbours import ROUNDING
from ecs_plugins.memory.types import ColdMemory, Floats, FreeEnergy, Matrix, Vector


class Standings:
    """Memories with their free energies, side by side in arrays.

    Positions are stable: a memory keeps its position until it is removed, and a new one gets
    the next position.

    Args:
        cold: The cold store.
        vectors: Its vectors [n, d].
        scores: Its free energies.
        config: Decides what makes a memory weak.
        room: How many memories may be added.
    """

    def __init__(
        self,
        cold: Sequence[ColdMemory],
        vectors: Matrix,
        scores: FreeEnergies,
        config: MemoryConfig,
        room: int,
    ) -> None:
        count, size = len(cold), len(cold) + room
        self._config = config
        self._support = config.support_needed if config.fill == "all" else 0.0
        self._cold = cold
        self._memories = list(cold)
        self._changed: list[int] = []
        self._scores = scores
        self._new_terms: dict[int, FreeEnergy] = {}  # of what was added or changed
        self._before = vectors
        self._vectors: Matrix | None = None  # with what was added and changed, once it is needed
        self._present = np.arange(size) < count
        self._count = count
        # How weak a memory is that may be displaced; -inf for one that may not, or is gone.
        by_utility = config.victim == "utility"
        weakness = scores.energies if by_utility else scores.totals
        pinned = np.fromiter((memory.pinned for memory in cold), dtype=bool, count=count)
        self._stakes = np.full(size, -np.inf)
        self._stakes[:count] = np.where(pinned, -np.inf, weakness)
        # The same of those that only fill the store; None while there are none.
        self._filling_stakes: Floats | None = None
        for position in [at for at, memory in enumerate(cold) if self._fills(memory)]:
            self._set_filling(position)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ColdMemory]:
        return (self._memories[i] for i in np.flatnonzero(self._present).tolist())

    def added(self) -> tuple[ColdMemory, ...]:
        """Return what was added and is there."""
        first = len(self._cold)
        return tuple(
            self._memories[first + i] for i in np.flatnonzero(self._present[first:]).tolist()
        )

    def changed(self) -> tuple[ColdMemory, ...]:
        """Return the memories of before that have a new value and are there."""
        before = (i for i in sorted(self._changed) if i < len(self._cold))
        return tuple(self._memories[i] for i in before if self._present[i])

    def removed(self) -> tuple[ColdMemory, ...]:
        """Return the memories of before that are gone, as they were."""
        gone = np.flatnonzero(~self._present[: len(self._cold)]).tolist()
        return tuple(self._cold[i] for i in gone)

    def memory(self, position: int) -> ColdMemory:
        """Return the memory at a position."""
        return self._memories[position]

    def terms(self, position: int) -> FreeEnergy:
        """Return its free energy."""
        return self._new_terms.get(position) or self._scores.at(position)

    def add(self, memory: ColdMemory, terms: FreeEnergy) -> int:
        """Add a memory; returns its position."""
        position = len(self._memories)
        self._memories.append(memory)
        self._present[position] = True
        self._count += 1
        self._set(position, memory, terms)
        return position

    def change(self, position: int, memory: ColdMemory, terms: FreeEnergy) -> None:
        """Give a memory a new value."""
        if position not in self._changed:
            self._changed.append(position)
        self._memories[position] = memory
        self._set(position, memory, terms)

    def remove(self, position: int) -> None:
        """Remove a memory."""
        self._present[position] = False
        self._count -= 1
        self._stakes[position] = -np.inf
        if self._filling_stakes is not None:
            self._filling_stakes[position] = -np.inf

    def near(self, vector: Vector, least: float) -> Iterator[tuple[int, float]]:
        """Yield memories of at least this cosine, the nearest first, with their cosine."""
        count = len(self._memories)
        similarities = self._all_vectors()[:count] @ vector
        found = np.flatnonzero(self._present[:count] & (similarities >= least))
        for position in found[np.argsort(-similarities[found], kind="stable")].tolist():
            yield position, float(similarities[position])

    def changed_near(self, vector: Vector, least: float) -> list[int]:
        """Return the positions of changed memories of this cosine, within `ROUNDING`."""
        if not self._changed:
            return []
        similarities = np.array([self._memories[at].vector for at in self._changed]) @ vector
        near = np.flatnonzero(similarities >= least - ROUNDING).tolist()
        return [self._changed[at] for at in near]

    def is_there(self, position: int) -> bool:
        """Whether a memory has not been removed."""
        return bool(self._present[position])

    def weakest(self) -> int | None:
        """Return the position of the victim, or None if every memory is pinned.

        Memories of too little support, which only filled the store, come first.
        """
        filling = None if self._filling_stakes is None else _highest(self._filling_stakes)
        return _highest(self._stakes) if filling is None else filling

    def weakest_old_filler(self) -> int | None:
        """Return the weakest memory of too little support from before this sleep phase."""
        if self._filling_stakes is None:
            return None
        return _highest(self._filling_stakes[: len(self._cold)])

    def _set(self, position: int, memory: ColdMemory, terms: FreeEnergy) -> None:
        if self._vectors is not None:
            self._vectors[position] = memory.vector
        self._new_terms[position] = terms
        weakness = terms.energy if self._config.victim == "utility" else terms.total
        self._stakes[position] = -np.inf if memory.pinned else weakness
        if self._fills(memory):
            self._set_filling(position)
        elif self._filling_stakes is not None:
            self._filling_stakes[position] = -np.inf

    def _set_filling(self, position: int) -> None:
        if self._filling_stakes is None:
            self._filling_stakes = np.full(len(self._stakes), -np.inf)
        self._filling_stakes[position] = self._stakes[position]

    def _all_vectors(self) -> Matrix:
        if self._vectors is None:
            count = len(self._cold)
            vectors = np.empty((len(self._present), self._before.shape[1]), dtype=np.float32)
            vectors[:count] = self._before
            for position in (*self._changed, *range(count, len(self._memories))):
                vectors[position] = self._memories[position].vector
            self._vectors = vectors
        return self._vectors

    def _fills(self, memory: ColdMemory) -> bool:
        """Whether it only fills the store, for want of support."""
        return memory.evidence.attestations < self._support


def _highest(stakes: Floats) -> int | None:
    position = int(stakes.argmax()) if len(stakes) else 0
    return position if len(stakes) and stakes[position] > -np.inf else None
