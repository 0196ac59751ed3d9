"""Vectors in one block of memory that grows at its end and shrinks at its front."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ecs_plugins.memory.store.screening import Screened, short_width, shortened
from ecs_plugins.memory.types import Matrix


class Tail:
    """A window of a buffer that doubles, so that adding one by one stays linear.

    The short forms that `screening` compares are made when they are first asked for.

    Args:
        dimension: Length of every vector.
    """

    def __init__(self, dimension: int) -> None:
        self._buffer: Matrix = np.empty((0, dimension), dtype=np.float32)
        self._start = self._stop = 0
        self._short: Matrix = np.empty((0, short_width(dimension)), dtype=np.float32)
        self._shortened = 0  # vectors before this one have their short form

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._buffer.nbytes + self._short.nbytes

    @property
    def vectors(self) -> Matrix:
        """The vectors; not a copy."""
        return self._buffer[self._start : self._stop]

    def append(self, vectors: Matrix) -> None:
        """Add vectors at the end."""
        stop = self._stop + len(vectors)
        if stop > len(self._buffer):
            self._move(max(2 * (len(self) + len(vectors)), 64))
            stop = self._stop + len(vectors)
        self._buffer[self._stop : stop] = vectors
        self._stop = stop

    def _move(self, capacity: int) -> None:
        kept = self.vectors
        self._buffer = np.empty((capacity, kept.shape[1]), dtype=np.float32)
        self._buffer[: len(kept)] = kept
        self._start, self._stop, self._shortened = 0, len(kept), 0

    def put(self, places: npt.NDArray[np.intp], vectors: Matrix) -> None:
        """Replace the vectors at some places."""
        at = self._start + places
        self._buffer[at] = vectors
        known = at < self._shortened
        self._short[at[known]] = shortened(vectors[known])

    def set(self, vectors: Matrix) -> None:
        """Hold these vectors and no others."""
        self._buffer = np.ascontiguousarray(vectors, dtype=np.float32)
        self._start, self._stop, self._shortened = 0, len(vectors), 0

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Hold only the marked ones."""
        self.set(self.vectors[which])

    def drop(self, count: int) -> None:
        """Let go of the first ones; their memory stays until the next `compact`."""
        self._start += count

    def compact(self) -> None:
        """Give back the memory of what was dropped."""
        self.set(self.vectors.copy())

    def screened(self) -> Screened:
        """The vectors with their short forms; not a copy."""
        if len(self._short) != len(self._buffer):
            self._short = np.empty((len(self._buffer), self._short.shape[1]), dtype=np.float32)
            self._shortened = 0
        if self._shortened < self._stop:
            new = slice(max(self._shortened, self._start), self._stop)
            self._short[new] = shortened(self._buffer[new])
            self._shortened = self._stop
        return Screened(self.vectors, self._short[self._start : self._stop])
