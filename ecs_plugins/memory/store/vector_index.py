"""An HNSW graph (FAISS) over row numbers, and how vectors get into it and out of it.

New rows wait in a tail that is compared one by one, which for some hundred rows costs less than
linking them one at a time; a full tail is linked as a whole. FAISS cannot remove a vector. A linked
row that is removed stays in the graph as a tombstone: a selector keeps it out of the results, a
larger ``efSearch`` pays for it, and once half of the graph is dead it is built anew. FAISS crashes
when one thread adds while another searches, so a lock admits one at a time.

Rows that a filter leaves are compared one by one: a graph searched through a narrow filter loses
recall, and reading the metadata has cost more by then.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ecs_plugins.memory.store.seam import Rows
from ecs_plugins.memory.types import Matrix, Vector

LARGE = 5000
"""Vectors from which on a graph is linked in the background, and its links are kept: it takes some
tens of milliseconds per thousand."""

SMALL = 1000
"""Linked vectors below which all are compared: that takes less than a search of their graph."""

_TAIL = 256
"""Rows that may wait to be linked."""

_LINKS = 16
"""Of a vector, in each layer of the graph (HNSW's M)."""

_EF_CONSTRUCTION = 40
"""Candidates that are looked at to link a vector."""

_CHUNK = 1024
"""Vectors linked at a time; a closing memory can stop in between."""

_MIN_DEAD = 256
"""Tombstones that are always tolerated."""


def _faiss() -> Any:
    """FAISS, loaded on first use, as ``Any``: its stubs leave out half of what is used here."""
    import faiss

    return faiss


@contextmanager
def _one_thread() -> Iterator[None]:
    # Linking is reproducible on one thread only, and OpenMP's threads do not survive a fork. The
    # setting belongs to the calling thread, so the application's own is put back.
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def numbers(values: Collection[int]) -> Rows:
    """Row numbers as an array."""
    return np.fromiter(values, dtype=np.int64, count=len(values))


def search_width(linked: int) -> int:
    """An ``efSearch`` that keeps recall@3 at .99 as a graph grows (measured up to 100k)."""
    return int(min(512, max(64, 1.2 * linked**0.5)))


class VectorIndex:
    """Row numbers and their unit vectors of one dimension. Thread-safe."""

    def __init__(self, dimension: int) -> None:
        faiss = _faiss()
        self.dimension = dimension
        self._lock = threading.RLock()
        self._graph = faiss.IndexHNSWFlat(self.dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction = _EF_CONSTRUCTION
        # By position in the graph: the row, -1 for a tombstone.
        self._rows: Rows = np.empty(0, dtype=np.int64)
        self._places: dict[int, int] = {}
        self._tail: dict[int, Vector] = {}
        self._waiting: Matrix | None = None  # the vectors of the tail
        self.kept = 0  # vectors whose links are in the database

    def __len__(self) -> int:
        return len(self._places) + len(self._tail)

    @property
    def linked(self) -> int:
        """Vectors in the graph, tombstones included."""
        return int(self._graph.ntotal)

    @property
    def dead(self) -> int:
        """Tombstones in the graph."""
        return self.linked - len(self._places)

    @property
    def size(self) -> int:
        """Bytes held, about."""
        vector = 4 * self.dimension
        return self.linked * (vector + 8 * _LINKS + 128) + len(self._tail) * vector

    def rows(self) -> Rows:
        """The live rows."""
        with self._lock:
            return np.array([*self._places, *self._tail], dtype=np.int64)

    def _tail_vectors(self) -> Matrix:
        """The vectors of the tail ``[waiting, dimension]``."""
        if self._waiting is None:
            found = np.array([*self._tail.values()], dtype=np.float32)
            self._waiting = found.reshape(-1, self.dimension)
        return self._waiting

    # Changing

    def add(self, rows: Rows, vectors: Matrix) -> None:
        """Add rows that are not there yet; ``vectors`` is ``[rows, dimension]``."""
        with self._lock:
            own = np.array(vectors, dtype=np.float32)
            self._waiting = np.concatenate([self._tail_vectors(), own])
            self._tail.update(zip(rows.tolist(), own, strict=True))
            if len(self._tail) > _TAIL and (len(self) < LARGE or len(self._tail) <= 2 * _TAIL):
                self._link()

    def _link(self) -> None:
        """Put the rows of the tail into the graph."""
        start = self.linked
        with _one_thread():
            self._graph.add(self._tail_vectors())
        self._rows = np.concatenate([self._rows, numbers(self._tail)])
        self._places.update(zip(self._tail, range(start, self.linked), strict=True))
        self._tail, self._waiting = {}, None

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        with self._lock:
            for row in rows.tolist():
                if self._tail.pop(row, None) is not None:
                    self._waiting = None
                if row in self._places:
                    self._rows[self._places.pop(row)] = -1

    # Searching

    def search(self, query: Vector, k: int, *, allowed: Rows | None = None) -> tuple[Rows, Vector]:
        """The ``k`` live rows of the largest inner product with ``query``, and these, best first.

        Fewer come back if fewer are there. Of ``allowed`` rows, all are compared one by one.
        """
        with self._lock:
            rows = numbers(self._tail)
            scores = self._tail_vectors() @ query
            if allowed is None:
                linked_rows, linked_scores = self._search_linked(query, k)
            else:
                is_allowed = np.isin(rows, allowed)
                rows = rows[is_allowed]
                scores = scores[is_allowed]
                linked_rows, linked_scores = self._compare(query, allowed)
            rows = np.concatenate([rows, linked_rows])
            scores = np.concatenate([scores, linked_scores])
        best = np.argsort(-scores, kind="stable")[:k]
        return rows[best], scores[best]

    def _search_linked(self, query: Vector, k: int) -> tuple[Rows, Vector]:
        """At least the ``k`` best of the linked rows, by the graph where that takes less."""
        if self.linked >= SMALL and 2 * k < len(self._places):
            found = self._search_graph(query, k)
            if found is not None:
                return found
        live = self._rows >= 0
        scores = self._linked_vectors() @ query
        return self._rows[live], scores[live]

    def _compare(self, query: Vector, rows: Rows) -> tuple[Rows, Vector]:
        """Those of some rows that are linked, and their scores."""
        places = [self._places[row] for row in rows.tolist() if row in self._places]
        chosen = numbers(places)
        return self._rows[chosen], self._linked_vectors()[chosen] @ query

    def _search_graph(self, query: Vector, k: int) -> tuple[Rows, Vector] | None:
        """``k`` rows and their scores; None if the graph does not reach so many."""
        faiss, linked = _faiss(), self.linked
        ef = max(search_width(linked), 2 * k) * linked / len(self._places)
        wanted = bits = None
        if self.dead:
            bits = np.packbits(self._rows >= 0, bitorder="little")
            wanted = faiss.IDSelectorBitmap(linked, faiss.swig_ptr(bits))
        parameters = faiss.SearchParametersHNSW(efSearch=int(ef), sel=wanted)
        with _one_thread():
            scores, places = self._graph.search(
                np.ascontiguousarray(query[None], dtype=np.float32), k, params=parameters
            )
        return None if (places < 0).any() else (self._rows[places[0]], scores[0])

    def _linked_vectors(self) -> Matrix:
        """The vectors in the graph by position, as a view ``[linked, dimension]``."""
        faiss, linked = _faiss(), self.linked
        if not linked:
            return np.empty((0, self.dimension), dtype=np.float32)
        storage = faiss.downcast_index(self._graph.storage)
        flat: Matrix = faiss.rev_swig_ptr(storage.get_xb(), linked * self.dimension)
        return flat.reshape(linked, self.dimension)

    def _vectors(self, rows: Rows) -> Matrix:
        """The vectors of live rows."""
        linked, tail = self._linked_vectors(), self._tail
        found = [tail[row] if row in tail else linked[self._places[row]] for row in rows.tolist()]
        return np.array(found, dtype=np.float32).reshape(len(rows), self.dimension)

    def scores(self, rows: Rows, query: Vector) -> Vector:
        """The inner products of live rows with ``query``; those of rows that left are -1."""
        with self._lock:
            places = np.array([self._places.get(row, -1) for row in rows.tolist()], dtype=np.int64)
            linked = places >= 0
            out = np.full(len(rows), -1.0, dtype=np.float32)
            with _one_thread():
                out[linked] = self._graph.reconstruct_batch(places[linked]) @ query
            for at in np.flatnonzero(~linked).tolist():
                if (vector := self._tail.get(int(rows[at]))) is not None:
                    out[at] = vector @ query
            return out

    # Upkeep

    @property
    def is_worn(self) -> bool:
        """Whether the tail should be linked, or the graph built anew."""
        return self._is_dead or len(self._tail) > _TAIL

    @property
    def _is_dead(self) -> bool:
        return self.dead > max(len(self._places), _MIN_DEAD)

    def rebuild(self, stop: threading.Event | None = None) -> None:
        """Link the tail, or build a graph anew of which half is dead; others go on meanwhile."""
        fresh = VectorIndex(self.dimension)
        with self._lock:
            rows = self.rows()
            if not self._is_dead:
                fresh._graph = _faiss().clone_index(self._graph)
                fresh._rows, fresh._places = self._rows.copy(), {**self._places}
                fresh.kept = self.kept
            waiting = np.setdiff1d(rows, fresh.rows())
            vectors = self._vectors(waiting)
        for start in range(0, len(waiting), _CHUNK):
            if stop is not None and stop.is_set():
                return
            chunk = slice(start, start + _CHUNK)
            fresh._tail = dict(zip(waiting[chunk].tolist(), vectors[chunk], strict=True))
            fresh._waiting = vectors[chunk]
            fresh._link()
        with self._lock:
            late = np.setdiff1d(self.rows(), rows)
            if len(late):
                fresh.add(late, self._vectors(late))
            fresh.remove(np.setdiff1d(rows, self.rows()))
            self._graph, self._rows, self._places = fresh._graph, fresh._rows, fresh._places
            self._tail, self._waiting, self.kept = fresh._tail, None, fresh.kept

    def links(self) -> tuple[bytes, bytes]:
        """By position the row, -1 for a tombstone; and FAISS' graph without its vectors."""
        faiss = _faiss()
        with self._lock:
            links = faiss.serialize_index(self._graph, faiss.IO_FLAG_SKIP_STORAGE)
            return self._rows.astype("<i8").tobytes(), links.tobytes()

    def restore(self, rows: Rows, links: bytes, vectors: dict[int, Vector]) -> None:
        """Take what `links` returned, and out of ``vectors`` those of its rows."""
        faiss = _faiss()
        graph = faiss.deserialize_index(np.frombuffer(links, dtype=np.uint8))
        if (graph.d, graph.ntotal) != (self.dimension, len(rows)):
            raise ValueError("it does not fit its rows")
        places = {row: at for at, row in enumerate(rows.tolist()) if row in vectors}
        linked = np.zeros((len(rows), self.dimension), dtype=np.float32)
        linked[numbers(places.values())] = np.stack([vectors.pop(row) for row in places])
        storage = faiss.IndexFlatIP(self.dimension)
        storage.add(linked)
        storage.this.disown()  # the graph frees it
        graph.storage, graph.own_fields = storage, True
        with self._lock:
            self._graph, self._places, self.kept = graph, places, len(rows)
            self._rows = np.where(np.isin(rows, numbers(places)), rows, -1)
