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
from functools import lru_cache
from typing import Any

import numpy as np

from ecs_plugins.memory.store.seam import Rows
from ecs_plugins.memory.types import Matrix, Vector

LARGE = 5000
"""Vectors from which on a graph is linked in the background, and its links are kept: it takes some
tens of milliseconds per thousand."""

SMALL = 1000
"""Linked vectors below which all are compared: that takes less than a search of their graph. Where
some are dead there must be more: the graph is then searched as much wider, and passes by them."""

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


def _new_graph(dimension: int) -> Any:
    """An empty graph over vectors of one dimension."""
    faiss = _faiss()
    graph = faiss.IndexHNSWFlat(dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = _EF_CONSTRUCTION
    return graph


def search_width(linked: int) -> int:
    """An ``efSearch`` that keeps recall@3 at .99 as a graph grows (measured up to 100k)."""
    width = 1.2 * linked**0.5
    return int(min(512, max(64, width)))


@lru_cache(maxsize=64)
def _wide(width: int) -> Any:
    """Parameters of a search for all that is linked: making them takes as long as a small one."""
    return _faiss().SearchParametersHNSW(efSearch=width)


class VectorIndex:
    """Row numbers and their unit vectors of one dimension. Thread-safe."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._lock = threading.RLock()
        self._graph = _new_graph(dimension)
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
        linked = vector + 8 * _LINKS + 128
        return self.linked * linked + len(self._tail) * vector

    def rows(self) -> Rows:
        """The live rows."""
        with self._lock:
            live = [*self._places, *self._tail]
        return np.array(live, dtype=np.int64)

    def _tail_vectors(self) -> Matrix:
        """The vectors of the tail ``[waiting, dimension]``."""
        if self._waiting is None:
            vectors = [*self._tail.values()]
            matrix = np.array(vectors, dtype=np.float32)
            self._waiting = matrix.reshape(-1, self.dimension)
        return self._waiting

    # Changing

    def add(self, rows: Rows, vectors: Matrix) -> None:
        """Add rows that are not there yet; ``vectors`` is ``[rows, dimension]``."""
        with self._lock:
            own = np.array(vectors, dtype=np.float32)
            self._waiting = np.concatenate([self._tail_vectors(), own])
            self._tail.update(zip(rows.tolist(), own, strict=True))
            if self._is_linked_now():
                self._link()

    def _is_linked_now(self) -> bool:
        """Whether the tail is full, and so little that nobody minds waiting for its links."""
        waiting = len(self._tail)
        if waiting <= _TAIL:
            return False
        return len(self) < LARGE or waiting <= 2 * _TAIL

    def _link(self) -> None:
        """Put the rows of the tail into the graph."""
        start = self.linked
        with _one_thread():
            self._graph.add(self._tail_vectors())
        places = range(start, self.linked)
        self._rows = np.concatenate([self._rows, numbers(self._tail)])
        self._places.update(zip(self._tail, places, strict=True))
        self._tail = {}
        self._waiting = None

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        with self._lock:
            for row in rows.tolist():
                if row in self._tail:
                    del self._tail[row]
                    self._waiting = None
                if row in self._places:
                    place = self._places.pop(row)
                    self._rows[place] = -1

    # Searching

    def search(self, query: Vector, k: int, *, allowed: Rows | None = None) -> tuple[Rows, Vector]:
        """The ``k`` live rows of the largest inner product with ``query``, and these, best first.

        Fewer come back if fewer are there. Of ``allowed`` rows, all are compared one by one.
        """
        with self._lock:
            waiting = numbers(self._tail)
            waiting_scores = self._tail_vectors() @ query
            if allowed is None:
                linked, linked_scores = self._search_linked(query, k)
            else:
                is_allowed = np.isin(waiting, allowed)
                waiting = waiting[is_allowed]
                waiting_scores = waiting_scores[is_allowed]
                linked, linked_scores = self._compare(query, allowed)
            rows = np.concatenate([waiting, linked])
            scores = np.concatenate([waiting_scores, linked_scores])
        best = np.argsort(-scores, kind="stable")[:k]
        return rows[best], scores[best]

    def _search_linked(self, query: Vector, k: int) -> tuple[Rows, Vector]:
        """At least the ``k`` best of the linked rows, by the graph where that takes less."""
        live_count = len(self._places)
        is_large = live_count**2 >= SMALL * len(self._rows) and 2 * k < live_count
        found = self._search_graph(query, k) if is_large else None
        if found is not None:
            return found
        live = self._rows >= 0
        scores = self._linked_vectors() @ query
        return self._rows[live], scores[live]

    def _compare(self, query: Vector, rows: Rows) -> tuple[Rows, Vector]:
        """Those of some rows that are linked, and their scores."""
        known = [row for row in rows.tolist() if row in self._places]
        places = numbers([self._places[row] for row in known])
        vectors = self._linked_vectors()[places]
        return self._rows[places], vectors @ query

    def _search_graph(self, query: Vector, k: int) -> tuple[Rows, Vector] | None:
        """``k`` rows and their scores; None if the graph does not reach so many."""
        linked = len(self._rows)
        live = len(self._places)
        width = max(search_width(linked), 2 * k)
        width = int(width * linked / live)
        parameters = _wide(width)
        if live < linked:
            faiss = _faiss()
            living = np.packbits(self._rows >= 0, bitorder="little")
            selector = faiss.IDSelectorBitmap(linked, faiss.swig_ptr(living))
            parameters = faiss.SearchParametersHNSW(efSearch=width, sel=selector)
        queries = np.ascontiguousarray(query[None], dtype=np.float32)
        with _one_thread():
            scores, places = self._graph.search(queries, k, params=parameters)
        if (places < 0).any():
            return None
        return self._rows[places[0]], scores[0]

    def _linked_vectors(self) -> Matrix:
        """The vectors in the graph by position, as a view ``[linked, dimension]``."""
        linked = self.linked
        if not linked:
            return np.empty((0, self.dimension), dtype=np.float32)
        faiss = _faiss()
        storage = faiss.downcast_index(self._graph.storage)
        flat: Matrix = faiss.rev_swig_ptr(storage.get_xb(), linked * self.dimension)
        return flat.reshape(linked, self.dimension)

    def _vectors(self, rows: Rows) -> Matrix:
        """The vectors of live rows."""
        linked = self._linked_vectors()
        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        for at, row in enumerate(rows.tolist()):
            waiting = self._tail.get(row)
            vectors[at] = linked[self._places[row]] if waiting is None else waiting
        return vectors

    def scores(self, rows: Rows, query: Vector) -> Vector:
        """The inner products of live rows with ``query``; those of rows that left are -1."""
        with self._lock:
            place_of = self._places.get
            places = np.array([place_of(row, -1) for row in rows.tolist()], dtype=np.int64)
            linked = places >= 0
            scores = np.full(len(rows), -1.0, dtype=np.float32)
            with _one_thread():
                vectors = self._graph.reconstruct_batch(places[linked])
            scores[linked] = vectors @ query
            for at in np.flatnonzero(~linked).tolist():
                waiting = self._tail.get(int(rows[at]))
                if waiting is not None:
                    scores[at] = waiting @ query
            return scores

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
                fresh._take_graph(self)
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
            self._follow(fresh, rows)

    def _take_graph(self, other: VectorIndex) -> None:
        """Begin with the graph of another index."""
        self._graph = _faiss().clone_index(other._graph)
        self._rows = other._rows.copy()
        self._places = {**other._places}
        self.kept = other.kept

    def _follow(self, fresh: VectorIndex, rows: Rows) -> None:
        """Become an index that was built of these rows, as others came and went meanwhile."""
        present = self.rows()
        late = np.setdiff1d(present, rows)
        if len(late):
            fresh.add(late, self._vectors(late))
        fresh.remove(np.setdiff1d(rows, present))
        self._graph = fresh._graph
        self._rows = fresh._rows
        self._places = fresh._places
        self._tail = fresh._tail
        self._waiting = None
        self.kept = fresh.kept

    def links(self) -> tuple[bytes, bytes]:
        """By position the row, -1 for a tombstone; and FAISS' graph without its vectors."""
        faiss = _faiss()
        with self._lock:
            links = faiss.serialize_index(self._graph, faiss.IO_FLAG_SKIP_STORAGE)
            rows = self._rows.astype("<i8")
        return rows.tobytes(), links.tobytes()

    def restore(self, rows: Rows, links: bytes, vectors: dict[int, Vector]) -> None:
        """Take what `links` returned, and out of ``vectors`` those of its rows."""
        faiss = _faiss()
        graph = faiss.deserialize_index(np.frombuffer(links, dtype=np.uint8))
        if graph.d != self.dimension or graph.ntotal != len(rows):
            raise ValueError("it does not fit its rows")
        places = {}
        linked = np.zeros((len(rows), self.dimension), dtype=np.float32)
        for place, row in enumerate(rows.tolist()):
            if row in vectors:
                places[row] = place
                linked[place] = vectors.pop(row)
        storage = faiss.IndexFlatIP(self.dimension)
        storage.add(linked)
        storage.this.disown()  # the graph frees it
        graph.storage = storage
        graph.own_fields = True
        is_live = np.isin(rows, numbers(places))
        with self._lock:
            self._graph = graph
            self._places = places
            self._rows = np.where(is_live, rows, -1)
            self.kept = len(rows)
