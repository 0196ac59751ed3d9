"""Whom each message of a batch repeats, while the batch itself changes the tier.

Messages are admitted one after the other: one may repeat what an earlier one of the same batch
has founded or changed. Who is near is found by matrix products, block by block: with the tier
as it was, with what the blocks before wrote, and among the messages of the block. Only an item
that a message changed has a direction of its own, and is compared with what is left of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ecs_plugins.memory.store.index import VectorIndex
from ecs_plugins.memory.store.screening import Screened, near_pairs
from ecs_plugins.memory.store.tail import Tail
from ecs_plugins.memory.types import Vector

TIE: Final = 1e-6
"""Cosines closer than this are equal: the order of the sums behind them decides no more."""

_BLOCK = 128
_FEW = 4  # candidates of the tier that are looked at before it is searched for more


class Nearest:
    """The nearest row of a tier for each message of a batch, in their order.

    Args:
        index: The tier at the beginning of the transaction; None if nothing is in it.
        messages: Their vectors.
        floor: Least cosine of interest.
    """

    def __init__(self, index: VectorIndex | None, messages: Screened, floor: float) -> None:
        self._index = index
        self._messages = messages
        self._vectors = messages.vectors
        self._floor = floor - TIE
        self._gone: set[int] = set()
        # What this batch wrote: row numbers in ascending order, and vectors; those of the block at
        # hand are put to the others when it ends.
        self._rows: list[int] = []
        self._own = Tail(self._vectors.shape[1])
        self._latest: list[Vector] = []
        # The block: for each message what is near in the tier and of this batch, as rows and
        # cosines, and which messages of the block are near to it.
        self._start = self._stop = 0
        self._known: list[list[tuple[int, float]]] = []
        self._near: list[list[tuple[int, float]]] = []
        self._others: list[list[tuple[int, float]]] | None = None

    def find(self, at: int) -> int | None:
        """The row nearest to message number ``at``, the oldest among equals; None if none is near.

        Messages are asked for in their order.
        """
        if at >= self._stop:
            self._open_block(at)
        known, near = self._known[at - self._start], self._near[at - self._start]
        if not known and not near:
            return None
        there = self._there(at, known)
        there += [pair for pair in near if pair[0] not in self._gone]
        if not there:
            return None
        best = max(score for _, score in there)
        return min(row for row, score in there if score >= best - TIE)

    def founded(self, row: int, at: int) -> None:
        """Message number ``at`` is a row of its own, of a number above all before."""
        if at + 1 == len(self._vectors):
            return  # nobody is left who could be near to it
        self._append(row, self._vectors[at])
        if self._others is None:
            block = self._messages.part(self._start, self._stop)
            self._others = self._pairs(block, block, range(len(block)))
        for other, score in self._others[at - self._start]:
            self._near[other].append((row, score))

    def changed(self, old: int, row: int, vector: Vector, at: int) -> None:
        """Message number ``at`` has turned a row into another, of a number above all before."""
        self._gone.add(old)
        self._append(row, vector)
        first = at + 1 - self._start
        scores = self._vectors[at + 1 : self._stop] @ vector
        for other in np.flatnonzero(scores >= self._floor).tolist():
            self._near[first + other].append((row, float(scores[other])))

    def _append(self, row: int, vector: Vector) -> None:
        self._latest.append(vector)
        self._rows.append(row)

    def _open_block(self, at: int) -> None:
        self._start, self._stop = at, min(at + _BLOCK, len(self._vectors))
        if self._latest:
            self._own.append(np.asarray(self._latest))
            self._latest.clear()
        self._drop_gone()
        block = self._messages.part(self._start, self._stop)
        if self._index is None:
            self._known = [[] for _ in range(len(block))]
        else:
            self._known = self._index.near(block, _FEW, self._floor)
        if self._rows:
            self._near = self._pairs(block, self._own.screened(), self._rows)
        else:
            self._near = [[] for _ in range(len(block))]
        self._others = None  # computed when a first message founds a row

    def _pairs(
        self, block: Screened, others: Screened, names: Sequence[int]
    ) -> list[list[tuple[int, float]]]:
        """What is near to each message of the block."""
        pairs: list[list[tuple[int, float]]] = [[] for _ in range(len(block))]
        for message, other, cosine in near_pairs(block, others, self._floor):
            pairs[message].append((names[other], cosine))
        return pairs

    def _drop_gone(self) -> None:
        if self._gone.isdisjoint(self._rows):
            return
        self._own.keep(np.array([row not in self._gone for row in self._rows]))
        self._rows = [row for row in self._rows if row not in self._gone]

    def _there(self, at: int, known: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """The candidates of the tier that are still there."""
        there = [pair for pair in known if pair[0] not in self._gone]
        if there or len(known) < _FEW:
            return there
        assert self._index is not None
        message = self._messages.part(at, at + 1)
        found = self._index.near(message, _FEW + len(self._gone), self._floor)
        return [pair for pair in found[0] if pair[0] not in self._gone]
