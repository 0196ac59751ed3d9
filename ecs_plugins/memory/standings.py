"""The cold store while a sleep phase is deciding: who is nearest, who is weakest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ecs_plugins.memory.admission import supported
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import ColdMemory, FreeEnergy, Matrix, Vector


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
        scores: Sequence[FreeEnergy],
        config: MemoryConfig,
        room: int,
    ) -> None:
        size = len(cold) + room
        self._config = config
        self._original = len(cold)
        self._memories: list[ColdMemory] = []
        self._terms: list[FreeEnergy] = []
        self._vectors = np.zeros((size, vectors.shape[1]), dtype=np.float32)
        self._weakness = np.full(size, -np.inf)
        self._present = np.zeros(size, dtype=bool)
        self._free = np.zeros(size, dtype=bool)
        self._filler = np.zeros(size, dtype=bool)
        self._vectors[: len(cold)] = vectors
        for memory, terms in zip(cold, scores, strict=True):
            self._enter(memory, terms)

    def __len__(self) -> int:
        return int(self._present.sum())

    def __iter__(self) -> Iterator[ColdMemory]:
        return (self._memories[i] for i in np.flatnonzero(self._present).tolist())

    def memory(self, position: int) -> ColdMemory:
        """Return the memory at a position."""
        return self._memories[position]

    def terms(self, position: int) -> FreeEnergy:
        """Return its free energy."""
        return self._terms[position]

    def add(self, memory: ColdMemory, terms: FreeEnergy) -> None:
        """Add a memory."""
        self._vectors[len(self._memories)] = memory.vector
        self._enter(memory, terms)

    def change(self, position: int, memory: ColdMemory, terms: FreeEnergy) -> None:
        """Give a memory a new value."""
        self._memories[position] = memory
        self._terms[position] = terms
        self._vectors[position] = memory.vector
        self._rate(position)

    def remove(self, position: int) -> None:
        """Remove a memory."""
        self._present[position] = False

    def near(self, vector: Vector, least: float) -> Iterator[tuple[int, float]]:
        """Yield memories of at least this cosine, the nearest first, with their cosine."""
        count = len(self._memories)
        similarities = self._vectors[:count] @ vector
        found = np.flatnonzero(self._present[:count] & (similarities >= least))
        for position in found[np.argsort(-similarities[found], kind="stable")].tolist():
            yield position, float(similarities[position])

    def weakest(self) -> int | None:
        """Return the position of the victim, or None if every memory is pinned.

        Memories of too little support, which only filled the store, come first.
        """
        candidates = self._present & self._free
        fillers = candidates & self._filler
        return self._weakest_of(fillers if fillers.any() else candidates)

    def weakest_old_filler(self) -> int | None:
        """Return the weakest memory of too little support from before this sleep phase."""
        candidates = self._present & self._free & self._filler
        candidates[self._original :] = False
        return self._weakest_of(candidates)

    def _weakest_of(self, candidates: NDArray[np.bool_]) -> int | None:
        if not candidates.any():
            return None
        return int(np.where(candidates, self._weakness, -np.inf).argmax())

    def _enter(self, memory: ColdMemory, terms: FreeEnergy) -> None:
        position = len(self._memories)
        self._memories.append(memory)
        self._terms.append(terms)
        self._present[position] = True
        self._rate(position)

    def _rate(self, position: int) -> None:
        memory, terms = self._memories[position], self._terms[position]
        by_utility = self._config.victim == "utility"
        self._weakness[position] = terms.energy if by_utility else terms.total
        self._free[position] = not memory.pinned
        self._filler[position] = self._config.fill == "all" and not supported(
            memory.evidence, self._config
        )
