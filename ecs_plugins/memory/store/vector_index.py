"""Nearest neighbours by inner product: an HNSW graph (FAISS) over row numbers of the database.

FAISS knows vectors by the order in which they were added and cannot remove one. A removed row
stays in the graph as a tombstone: a selector keeps it out of the results, a larger ``efSearch``
pays for it, and once half of the graph is dead it is built anew. FAISS crashes when one thread adds
while another searches, so a lock admits one at a time.

Rows that a filter leaves are compared one by one: a graph searched through a narrow filter loses
recall, and reading the metadata has cost more by then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ecs_plugins.memory.types import Matrix, Vector

Rows = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_LINKS = 16
_EF_CONSTRUCTION = 40
_CHUNK = 1024  # vectors linked at a time, between which a closing memory can stop
_MIN_DEAD = 256  # tombstones that are always tolerated
_ERASED_SHARE = 0.05  # of the graph, blanked: beyond it, searches lose their way


def _faiss() -> Any:
    """FAISS, loaded on first use, as ``Any``: its stubs leave out half of what is used here."""
    import faiss

    return faiss


@contextmanager
def _one_thread() -> Iterator[None]:
    # Linking is reproducible on one thread only. The setting belongs to the calling thread, so the
    # application's own is put back.
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def search_width(linked: int) -> int:
    """An ``efSearch`` that keeps recall@3 at .99 as a graph grows (measured up to 100k)."""
    return int(min(512, max(64, 1.2 * linked**0.5)))


class VectorIndex:
    """Row numbers and their unit vectors. Thread-safe.

    Args:
        dimension: Length of every vector.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        faiss = _faiss()
        self._graph = faiss.IndexHNSWFlat(self.dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction = _EF_CONSTRUCTION
        # By position in the graph: the row, -1 for a tombstone; and a bit, 1 if it is live.
        self._rows: Rows = np.empty(0, dtype=np.int64)
        self._bits: Bytes = np.empty(0, dtype=np.uint8)
        self._places: dict[int, int] = {}
        self._blank = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def linked(self) -> int:
        """Vectors in the graph, tombstones included."""
        return int(self._graph.ntotal)

    @property
    def dead(self) -> int:
        """Tombstones in the graph."""
        return self.linked - len(self)

    @property
    def size(self) -> int:
        """Bytes held, about."""
        return self.linked * (4 * self.dimension + 8 * _LINKS + 128)

    def rows(self) -> Rows:
        """The live rows."""
        with self._lock:
            return np.fromiter(self._places, dtype=np.int64, count=len(self))

    # Changing

    def add(self, rows: Rows, vectors: Matrix) -> None:
        """Add rows that are not there yet; ``vectors`` is ``[rows, dimension]``."""
        with self._lock, _one_thread():
            start, stop = self.linked, self.linked + len(rows)
            if stop > len(self._rows):
                room = max(2 * stop, 256) - len(self._rows)
                self._rows = np.concatenate([self._rows, np.full(room, -1, dtype=np.int64)])
                bits = np.zeros(len(self._rows) // 8 + 1, dtype=np.uint8)
                bits[: len(self._bits)] = self._bits
                self._bits = bits
            self._graph.add(np.ascontiguousarray(vectors, dtype=np.float32))
            self._rows[start:stop] = rows
            for place, row in enumerate(rows.tolist(), start=start):
                self._places[row] = place
                self._bits[place >> 3] |= np.uint8(1 << (place & 7))

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        with self._lock:
            for row in rows.tolist():
                place = self._places.pop(row, None)
                if place is not None:
                    self._rows[place] = -1
                    self._bits[place >> 3] &= np.uint8(255 ^ (1 << (place & 7)))

    def blank(self) -> None:
        """Overwrite the vectors of all tombstones: what was erased must not reach a file."""
        with self._lock:
            dead = np.flatnonzero(self._rows[: self.linked] < 0)
            self._vectors()[dead] = 0.0
            self._blank = len(dead)

    # Searching

    def search(
        self, query: Vector, k: int, *, allowed: Rows | None = None, exact: bool = False
    ) -> tuple[Rows, Vector]:
        """The ``k`` live rows of the largest inner product with ``query``, best first.

        Args:
            query: ``[dimension]``.
            k: How many; fewer come back if fewer are there.
            allowed: Only these rows, compared one by one.
            exact: Compare all, whatever the graph (the reference path of tests).

        Returns:
            Rows and their scores.
        """
        with self._lock:
            if allowed is not None:
                known = [
                    place for row in allowed.tolist() if (place := self._places.get(row, -1)) >= 0
                ]
                return self._scan(query, k, np.array(known, dtype=np.int64))
            if not exact and 2 * k < len(self):
                found = self._search_graph(query, k)
                if found is not None:
                    return found
            places = np.fromiter(self._places.values(), dtype=np.int64, count=len(self))
            return self._scan(query, k, places)

    def _search_graph(self, query: Vector, k: int) -> tuple[Rows, Vector] | None:
        """What the graph finds; None if it does not reach as many as there are."""
        faiss, linked = _faiss(), self.linked
        ef = max(search_width(linked), 2 * k) * linked / len(self)
        wanted = None
        if self.dead:
            wanted = faiss.IDSelectorBitmap(linked, faiss.swig_ptr(self._bits))
        parameters = faiss.SearchParametersHNSW(efSearch=int(ef), sel=wanted)
        scores, places = self._graph.search(
            np.ascontiguousarray(query[None], dtype=np.float32), k, params=parameters
        )
        if places[0, -1] < 0:
            return None
        return self._rows[places[0]], scores[0]

    def _scan(self, query: Vector, k: int, places: Rows) -> tuple[Rows, Vector]:
        if not len(places):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        scores = self._vectors()[places] @ query
        best = np.argsort(-scores, kind="stable")[:k]
        return self._rows[places[best]], scores[best]

    def _vectors(self) -> Matrix:
        """All vectors by position, as a view ``[linked, dimension]``."""
        faiss, linked = _faiss(), self.linked
        if not linked:
            return np.empty((0, self.dimension), dtype=np.float32)
        storage = faiss.downcast_index(self._graph.storage)
        flat: Matrix = faiss.rev_swig_ptr(storage.get_xb(), linked * self.dimension)
        return flat.reshape(linked, self.dimension)

    # Upkeep

    @property
    def is_worn(self) -> bool:
        """Whether the graph should be built anew."""
        most = max(len(self), _MIN_DEAD)
        return self.dead > most or self._blank > max(_ERASED_SHARE * self.linked, _MIN_DEAD)

    def rebuild(self, stop: threading.Event | None = None) -> None:
        """Build the graph anew without its tombstones; searches and changes go on meanwhile."""
        with self._lock:
            rows = self.rows()
            vectors = self._vectors()[[self._places[row] for row in rows.tolist()]]
        fresh = VectorIndex(self.dimension)
        for start in range(0, len(rows), _CHUNK):
            if stop is not None and stop.is_set():
                return
            fresh.add(rows[start : start + _CHUNK], vectors[start : start + _CHUNK])
        with self._lock:
            late = np.setdiff1d(self.rows(), rows)
            if len(late):
                fresh.add(late, self._vectors()[[self._places[row] for row in late.tolist()]])
            fresh.remove(np.setdiff1d(rows, self.rows()))
            self._graph, self._rows, self._bits = fresh._graph, fresh._rows, fresh._bits
            self._places, self._blank = fresh._places, 0
            if self.dead:  # since the vectors were copied, perhaps erased
                self.blank()

    def to_bytes(self) -> tuple[Rows, Bytes]:
        """The row of each vector (-1 for a tombstone), and the graph as FAISS serialises it."""
        with self._lock:
            return self._rows[: self.linked].copy(), _faiss().serialize_index(self._graph)

    def restore(self, rows: Rows, graph: Bytes) -> None:
        """Take what `to_bytes` returned.

        Raises:
            ValueError: The graph is not of this dimension or not of these rows.
        """
        restored = _faiss().deserialize_index(graph)
        if restored.d != self.dimension or restored.ntotal != len(rows):
            raise ValueError("the graph does not belong to these rows")
        with self._lock:
            self._clear()
            self._graph, self._rows = restored, rows.copy()
            self._bits = np.packbits(rows >= 0, bitorder="little")
            self._places = {row: at for at, row in enumerate(rows.tolist()) if row >= 0}
            self._blank = int((rows < 0).sum())
