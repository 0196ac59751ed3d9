"""Whom each message of a batch repeats, while the batch itself changes the tier.

Messages are admitted one after the other: one may repeat what an earlier one of the same batch
has founded or changed. The cosines are computed as matrix products, block by block: against the
tier as it was, and, for every item that the batch writes, against what is left of the block.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ecs_plugins.memory.store.index import VectorIndex
from ecs_plugins.memory.types import Matrix, Vector

TIE: Final = 1e-6
"""Cosines closer than this are equal: the order of the sums behind them decides no more."""

_BLOCK = 64
_FEW = 4  # candidates of the tier that are looked at before it is searched for more


class Nearest:
    """The nearest row of a tier for each message of a batch, in their order.

    Args:
        index: The tier at the beginning of the transaction.
        vectors: Of the messages ``[messages, dimension]``.
        floor: Least cosine of interest.
    """

    def __init__(self, index: VectorIndex, vectors: Matrix, floor: float) -> None:
        self._index = index
        self._vectors = vectors
        self._floor = floor - TIE
        self._gone: set[int] = set()
        # What this batch wrote: row numbers in ascending order, vectors, and which are gone again.
        self._rows: list[int] = []
        self._own: Matrix = np.empty((16, vectors.shape[1]), dtype=np.float32)
        self._place: dict[int, int] = {}
        self._dead: set[int] = set()
        # The block: its first message, its candidates in the tier, its cosines to what was written.
        self._start = self._stop = 0
        self._known: list[list[tuple[int, float]]] = []
        self._cosines: Matrix = np.empty((0, 0), dtype=np.float32)

    def find(self, at: int) -> int | None:
        """The row nearest to message number ``at``, the oldest among equals; None if none is near.

        Messages are asked for in their order.
        """
        if at >= self._stop:
            self._open_block(at)
        own = self._cosines[at - self._start, : len(self._rows)]
        nearest = float(own.max()) if len(own) else -np.inf
        known = self._alive(at)
        best = max(nearest, known[0][1]) if known else nearest
        if best < self._floor:
            return None
        older = [row for row, score in known if score >= best - TIE]
        if older:
            return min(older)
        return self._rows[int(np.argmax(own >= best - TIE))]

    def add(self, row: int, vector: Vector, at: int) -> None:
        """Message number ``at`` has written a row, of a number above all before."""
        place = len(self._rows)
        if place == len(self._own):
            self._own = np.concatenate([self._own, np.empty_like(self._own)])
        self._own[place] = vector
        self._rows.append(row)
        self._place[row] = place
        left = self._vectors[at + 1 : self._stop]
        self._cosines[at + 1 - self._start :, place] = left @ vector

    def remove(self, row: int) -> None:
        """A row is no longer there."""
        place = self._place.get(row)
        if place is None:
            self._gone.add(row)
        else:
            self._cosines[:, place] = -np.inf
            self._dead.add(place)

    def _open_block(self, at: int) -> None:
        self._start, self._stop = at, min(at + _BLOCK, len(self._vectors))
        self._drop_dead()
        block = self._vectors[self._start : self._stop]
        self._known = self._index.near(block, _FEW, self._floor)
        self._cosines = np.empty((len(block), len(self._rows) + len(block)), dtype=np.float32)
        self._cosines[:, : len(self._rows)] = block @ self._own[: len(self._rows)].T

    def _drop_dead(self) -> None:
        if self._dead:
            kept = [place for place in range(len(self._rows)) if place not in self._dead]
            self._own = self._own[kept] if kept else self._own[:1]
            self._rows = [self._rows[place] for place in kept]
            self._place = {row: place for place, row in enumerate(self._rows)}
            self._dead.clear()

    def _alive(self, at: int) -> list[tuple[int, float]]:
        """The candidates of the tier that are still there, best first."""
        known = self._known[at - self._start]
        if not self._gone or not known:
            return known
        alive = [pair for pair in known if pair[0] not in self._gone]
        if alive or len(known) < _FEW:
            return alive
        found = self._index.near(self._vectors[at : at + 1], _FEW + len(self._gone), self._floor)
        return [pair for pair in found[0] if pair[0] not in self._gone]
