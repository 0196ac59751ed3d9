"""Index over the rows of a memory: an HNSW graph (FAISS) of vectors, and the words of texts.

`VectorIndex` holds row numbers and their vectors. New rows wait in a tail that is compared one by
one, which for some hundred rows costs less than linking them one at a time; a full tail is linked
as a whole. FAISS cannot remove a vector. A linked row that is removed stays in the graph as a
tombstone: a selector keeps it out of the results, a larger ``efSearch`` pays for it, and once half
of the graph is dead it is built anew. FAISS crashes when one thread adds while another searches, so
a lock admits one at a time. Rows that pass a filter are compared one by one: a graph that is
searched through a narrow filter loses recall.

`RowIndex` adds the words. It is a cache: a reader brings it up to date from the database inside its
own transaction. Rows are only ever added or removed, so new rows are those above the last known
number, and rows were removed if the counts then differ. It does not matter which process wrote.

`Indexes` keeps one `RowIndex` for each namespace. The rows of a large namespace wait in the tail
until the background thread has linked them. The links of a large graph are stored in the database
without the vectors, which `tiers` has; damaged or outdated links are built anew.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import Candidates, Rows, SpaceIndexes
from ecs_plugins.memory.store.values import crc, damaged, unpack
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.storage.base import Connection, SqlDatabase

logger = logging.getLogger(__name__)

LARGE = 5000
"""Vectors from which on a graph is linked in the background, and its links are stored.

Linking takes some tens of milliseconds per thousand.
"""

SMALL = 1000
"""Linked vectors below which all are compared, which is faster than a search of their graph. With
tombstones there must be more, because the graph is then searched as much wider."""

_TAIL = 256
"""Rows that may wait to be linked."""

_SLOTS = 16
"""Rows for which a tail has room at first."""

_LINKS = 16
"""Links of a vector in each layer of the graph (M of HNSW)."""

_EF_CONSTRUCTION = 40
"""Candidates that are compared to link a vector."""

_CHUNK = 1024
"""Vectors linked at a time; a closing memory can stop in between."""

_NARROW = 64
"""``efSearch`` that finds the vectors that repeat a query, which lie very near."""

_MIN_DEAD = 256
"""Tombstones that are always tolerated."""

_BUDGET = 1 << 30
"""Bytes of all open indexes; the least recently used ones are closed beyond it."""

_GROWN = 5
"""A graph is stored again once it grew by one part in so many."""

_ENTRIES = """
    SELECT row, vector, vector_crc, id, asked, text FROM tiers
    WHERE namespace = ? AND live = 1 AND
"""
_LATER = f"{_ENTRIES} row > ?"
_AMONG = f"{_ENTRIES} row IN (SELECT value FROM json_each(?))"
_LIVE = "SELECT row FROM tiers WHERE namespace = ? AND live = 1"
_STORED = """
    SELECT places, links, crc FROM graphs
    WHERE namespace = ? AND epoch = ?
"""
_STORE = """
    INSERT OR REPLACE INTO graphs
    SELECT id, epoch, ?, ?, ? FROM namespaces
    WHERE id = ? AND epoch = ?
"""


def _faiss() -> Any:
    """Load FAISS on first use, as ``Any`` because its stubs lack half of the names used here."""
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
    """Return row numbers as an array."""
    return np.fromiter(values, dtype=np.int64, count=len(values))


def search_width(linked: int) -> int:
    """Return the ``efSearch`` that keeps recall@3 at .99 as a graph grows (measured up to 100k)."""
    width = 1.2 * linked**0.5
    return int(min(512, max(64, width)))


@lru_cache(maxsize=64)
def _wide(width: int) -> Any:
    """Return the parameters of a search without tombstones; creating them is slow."""
    return _faiss().SearchParametersHNSW(efSearch=width)


def best_places(scores: Vector, k: int) -> Rows:
    """Return the places of the ``k`` highest scores, best first; ties keep their order."""
    places = np.arange(len(scores))
    if 4 * k < len(scores):
        least = np.partition(scores, -k)[-k]
        places = np.flatnonzero(scores >= least)
    return places[np.argsort(-scores[places], kind="stable")[:k]]


# Vectors


class _Tail:
    """Rows that wait to be linked, and their vectors in one buffer.

    Attributes:
        slots: The place of each row in the buffer.
    """

    def __init__(self, dimension: int) -> None:
        self.slots: dict[int, int] = {}
        self._used = 0
        self._rows: Rows = np.empty(_SLOTS, dtype=np.int64)  # -1 for a removed one
        self._vectors: Matrix = np.empty((_SLOTS, dimension), dtype=np.float32)

    def add(self, rows: Rows, vectors: Matrix) -> None:
        """Add rows with their vectors ``[rows, dimension]``."""
        end = self._used + len(rows)
        if end > len(self._rows):
            self._grow(len(rows))
            end = self._used + len(rows)
        self._rows[self._used : end] = rows
        self._vectors[self._used : end] = vectors
        self.slots.update(zip(rows.tolist(), range(self._used, end), strict=True))
        self._used = end

    def _grow(self, count: int) -> None:
        """Make room for so many rows, and close the gaps of removed ones."""
        rows, vectors = self.content()
        self._used = len(rows)
        size = 2 * (self._used + count)
        self._rows = np.resize(rows, size)
        self._vectors = np.concatenate(
            [vectors, np.empty((size - self._used, vectors.shape[1]), dtype=np.float32)]
        )
        self.slots = dict(zip(rows.tolist(), range(self._used), strict=True))

    def remove(self, row: int) -> None:
        """Remove a row if it waits."""
        slot = self.slots.pop(row, None)
        if slot is not None:
            self._rows[slot] = -1

    def content(self) -> tuple[Rows, Matrix]:
        """Return the rows and their vectors."""
        rows = self._rows[: self._used]
        is_live = rows >= 0
        return rows[is_live], self._vectors[: self._used][is_live]

    def scores(self, query: Vector) -> tuple[Rows, Vector]:
        """Return the rows and their inner products with a query."""
        rows = self._rows[: self._used]
        scores = self._vectors[: self._used] @ query
        if len(self.slots) == self._used:
            return rows, scores
        is_live = rows >= 0
        return rows[is_live], scores[is_live]

    def vector(self, row: int) -> Vector:
        """Return the vector of a row that waits."""
        vector: Vector = self._vectors[self.slots[row]]
        return vector


class VectorIndex:
    """Row numbers and their unit vectors of one dimension. Thread-safe.

    Attributes:
        stored: Number of vectors whose links are in the database.
    """

    def __init__(self, dimension: int) -> None:
        faiss = _faiss()
        self.dimension = dimension
        self.stored = 0
        self._lock = threading.RLock()
        self._graph = faiss.IndexHNSWFlat(dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction = _EF_CONSTRUCTION
        # By position in the graph: the row, -1 for a tombstone.
        self._rows: Rows = np.empty(0, dtype=np.int64)
        self._places: dict[int, int] = {}
        self._tail = _Tail(dimension)
        self._living: dict[int, tuple[Any, ...]] = {}  # by width, parameters without tombstones

    def __len__(self) -> int:
        return len(self._places) + len(self._tail.slots)

    def __contains__(self, row: int) -> bool:
        return row in self._places or row in self._tail.slots

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
        """Approximate bytes in memory."""
        vector = 4 * self.dimension
        linked = vector + 8 * _LINKS + 128
        return self.linked * linked + len(self._tail.slots) * vector

    def rows(self) -> Rows:
        """Return the live rows."""
        with self._lock:
            live = [*self._places, *self._tail.slots]
        return np.array(live, dtype=np.int64)

    # Changing

    def add(self, rows: Rows, vectors: Matrix) -> None:
        """Add new rows; ``vectors`` is ``[rows, dimension]``."""
        with self._lock:
            self._tail.add(rows, vectors)
            if self._is_linked_now():
                self._link()

    def _is_linked_now(self) -> bool:
        """Return True if the tail is full, and small enough to be linked at once."""
        waiting = len(self._tail.slots)
        if waiting <= _TAIL:
            return False
        return len(self) < LARGE or waiting <= 2 * _TAIL

    def _link(self) -> None:
        """Link the rows of the tail."""
        start = self.linked
        rows, vectors = self._tail.content()
        with _one_thread():
            self._graph.add(vectors)
        self._rows = np.concatenate([self._rows, rows])
        self._living = {}
        self._places.update(zip(rows.tolist(), range(start, self.linked), strict=True))
        self._tail = _Tail(self.dimension)

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        with self._lock:
            for row in rows.tolist():
                self._tail.remove(row)
                if row in self._places:
                    place = self._places.pop(row)
                    self._rows[place] = -1
                    self._living = {}

    # Searching

    def search(
        self, query: Vector, k: int, *, allowed: Rows | None = None, narrow: bool = False
    ) -> tuple[Rows, Vector]:
        """Return the ``k`` live rows nearest to a query and their inner products, best first.

        If ``allowed`` is given, only these rows are compared, one by one. A ``narrow`` search is
        faster and finds the rows that repeat the query.
        """
        with self._lock:
            if allowed is None:
                linked, linked_scores = self._search_linked(query, k, narrow)
                waiting, waiting_scores = self._tail.scores(query)
                rows = np.concatenate([waiting, linked])
                scores = np.concatenate([waiting_scores, linked_scores])
            else:
                rows = numbers([row for row in allowed.tolist() if row in self])
                scores = self.scores(rows, query)
        best = best_places(scores, k)
        return rows[best], scores[best]

    def _search_linked(self, query: Vector, k: int, narrow: bool) -> tuple[Rows, Vector]:
        """Return at least the ``k`` best linked rows, by the graph where that is faster."""
        live_count = len(self._places)
        is_large = live_count**2 >= SMALL * len(self._rows) and 2 * k < live_count
        found = self._search_graph(query, k, narrow) if is_large else None
        if found is not None:
            return found
        scores = self._linked_vectors() @ query
        if live_count == len(self._rows):
            return self._rows, scores
        live = self._rows >= 0
        return self._rows[live], scores[live]

    def _search_graph(self, query: Vector, k: int, narrow: bool) -> tuple[Rows, Vector] | None:
        """Return ``k`` rows and their scores; None if the graph does not reach so many."""
        linked = len(self._rows)
        live = len(self._places)
        width = max(_NARROW if narrow else search_width(linked), 2 * k)
        width = int(width * linked / live)
        parameters = _wide(width) if live == linked else self._without_tombstones(width)
        queries = np.ascontiguousarray(query[None], dtype=np.float32)
        with _one_thread():
            scores, places = self._graph.search(queries, k, params=parameters)
        if (places < 0).any():
            return None
        return self._rows[places[0]], scores[0]

    def _without_tombstones(self, width: int) -> Any:
        """Return the parameters of a search that leaves tombstones out."""
        if width not in self._living:
            faiss = _faiss()
            bits = np.packbits(self._rows >= 0, bitorder="little")
            selector = faiss.IDSelectorBitmap(len(self._rows), faiss.swig_ptr(bits))
            parameters = faiss.SearchParametersHNSW(efSearch=width, sel=selector)
            self._living = {width: (parameters, selector, bits)}
        return self._living[width][0]

    def _linked_vectors(self) -> Matrix:
        """Return the vectors in the graph by position, as a view ``[linked, dimension]``."""
        linked = self.linked
        if not linked:
            return np.empty((0, self.dimension), dtype=np.float32)
        faiss = _faiss()
        storage = faiss.downcast_index(self._graph.storage)
        flat: Matrix = faiss.rev_swig_ptr(storage.get_xb(), linked * self.dimension)
        return flat.reshape(linked, self.dimension)

    def _vectors(self, rows: Rows) -> Matrix:
        """Return the vectors of live rows."""
        linked = self._linked_vectors()
        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        for at, row in enumerate(rows.tolist()):
            place = self._places.get(row)
            vectors[at] = self._tail.vector(row) if place is None else linked[place]
        return vectors

    def scores(self, rows: Rows, query: Vector) -> Vector:
        """Return the inner products of live rows with a query; -1 for other rows."""
        with self._lock:
            place_of = self._places.get
            places = np.array([place_of(row, -1) for row in rows.tolist()], dtype=np.int64)
            is_linked = places >= 0
            scores = np.full(len(rows), -1.0, dtype=np.float32)
            scores[is_linked] = self._linked_vectors()[places[is_linked]] @ query
            for at in np.flatnonzero(~is_linked).tolist():
                row = int(rows[at])
                if row in self._tail.slots:
                    scores[at] = self._tail.vector(row) @ query
            return scores

    # Upkeep

    @property
    def is_worn(self) -> bool:
        """Return True if the tail should be linked or the graph built anew."""
        return self._is_dead or len(self._tail.slots) > _TAIL

    @property
    def _is_dead(self) -> bool:
        return self.dead > max(len(self._places), _MIN_DEAD)

    def rebuild(self, stop: threading.Event | None = None) -> None:
        """Link the tail, or build a half dead graph anew; other threads go on meanwhile."""
        fresh = VectorIndex(self.dimension)
        with self._lock:
            rows = self.rows()
            if not self._is_dead:
                fresh._take(self)
                fresh._graph = _faiss().clone_index(self._graph)
                fresh._tail = _Tail(self.dimension)
            waiting = np.setdiff1d(rows, fresh.rows())
            vectors = self._vectors(waiting)
        for start in range(0, len(waiting), _CHUNK):
            if stop is not None and stop.is_set():
                return
            chunk = slice(start, start + _CHUNK)
            fresh._tail.add(waiting[chunk], vectors[chunk])
            fresh._link()
        with self._lock:
            present = self.rows()
            late = np.setdiff1d(present, rows)
            if len(late):
                fresh.add(late, self._vectors(late))
            fresh.remove(np.setdiff1d(rows, present))
            self._take(fresh)

    def _take(self, other: VectorIndex) -> None:
        """Take over the content of another index."""
        self._graph = other._graph
        self._rows = other._rows.copy()
        self._places = {**other._places}
        self._tail = other._tail
        self._living = {}
        self.stored = other.stored

    def links(self) -> tuple[bytes, bytes]:
        """Return the row of each position, -1 for a tombstone, and the graph without vectors."""
        faiss = _faiss()
        with self._lock:
            links = faiss.serialize_index(self._graph, faiss.IO_FLAG_SKIP_STORAGE)
            rows = self._rows.astype("<i8")
        return rows.tobytes(), links.tobytes()

    def restore(self, rows: Rows, links: bytes, vectors: dict[int, Vector]) -> None:
        """Restore the result of `links`, and remove the vectors of its rows from ``vectors``."""
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
            self._living = {}
            self.stored = len(rows)


# Vectors and words


@dataclass(slots=True)
class RowIndex:
    """Vectors and words of some rows, and the state of the database that they stand for."""

    index: VectorIndex
    epoch: int
    revision: int = -1
    last_row: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    words: CoverageIndex = field(default_factory=CoverageIndex)
    _unread: dict[int, str | None] = field(default_factory=dict)  # None: to be removed

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        return self.index.size + self.words.size

    def nearest(
        self, query: Vector, k: int, *, allowed: Rows | None = None, narrow: bool = False
    ) -> tuple[Rows, Vector]:
        """Return the ``k`` rows of the largest cosine; see `VectorIndex.search`."""
        return self.index.search(query, k, allowed=allowed, narrow=narrow)

    def candidates(
        self, query: str, vector: Vector, count: int, *, allowed: Rows | None = None
    ) -> Candidates:
        """See `SpaceIndex.candidates`."""
        if allowed is not None:
            with self.lock:
                coverage = self._read().coverage(query, allowed)
            return Candidates(allowed, self.index.scores(allowed, vector), coverage, None)
        near_rows, near = self.nearest(vector, count)
        with self.lock:
            rows, coverage, least = self._read().nearest(query, count, near_rows)
        rest = None
        if len(near) == count:
            rest = (float(near[-1]), least)
        covering = rows[len(near) :]
        cosines = np.append(near, self.index.scores(covering, vector))
        return Candidates(rows, cosines, coverage, rest)

    def known(self, words: Sequence[str]) -> set[str]:
        """See `SpaceIndex.known`."""
        with self.lock:
            index = self._read()
            return {word for word in words if index.has(word) or index.has(f"{word}'s")}

    def expect(self, vectors: Matrix, k: int) -> None:
        """Do nothing: lookups are local."""

    def add(self, row: int, vector: Vector) -> None:
        """Add a row of a transaction that is not committed yet."""
        self.index.add(np.array([row]), vector[None])
        self.last_row = row

    def take_back(self, row: int) -> None:
        """Forget a row that its own transaction has replaced."""
        self.index.remove(np.array([row]))

    def insert(self, vectors: Mapping[int, Vector], texts: Mapping[int, str]) -> None:
        """Add rows of the database with their texts."""
        self.say(texts)
        if vectors:
            self.index.add(numbers(vectors), np.stack([*vectors.values()]))

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        self.index.remove(rows)
        for row in rows.tolist():
            if self._unread.pop(row, None) is None:
                self._unread[row] = None

    def say(self, texts: Mapping[int, str]) -> None:
        """Take the texts of rows; the next recall reads their words."""
        self._unread |= texts

    def _read(self) -> CoverageIndex:
        for row, text in sorted(self._unread.items()):
            if text is None:
                self.words.discard(row)
            else:
                self.words.add(row, text)
        self._unread.clear()
        return self.words


class Sized(Protocol):
    """Index of a known size."""

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        ...


K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Sized)


class IndexCache(Generic[K, T]):
    """The open indexes by key, least recently used first, within a budget of bytes. Thread-safe."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._open: OrderedDict[K, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], T], is_valid: Callable[[T], bool]) -> T:
        """Return the index of a key; make it if it is missing or not valid."""
        with self._lock:
            opened = self._open.get(key)
            if opened is None or not is_valid(opened):
                opened = self._open[key] = make()
            self._open.move_to_end(key)
            while len(self._open) > 1 and self.size > self._budget:
                self._open.popitem(last=False)
        return opened

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        return sum(opened.size for opened in self._open.values())

    def find(self, key: K) -> T | None:
        """Return the index of a key if it is open."""
        return self._open.get(key)

    def drop(self, key: K) -> None:
        """Close the index of a key."""
        with self._lock:
            self._open.pop(key, None)

    def items(self) -> list[tuple[K, T]]:
        """Return the open indexes with their keys."""
        with self._lock:
            return [*self._open.items()]


# The indexes of a memory


def _stored_links(connection: Connection, space: Space) -> tuple[Rows, bytes] | None:
    """Return the stored graph of a namespace.

    Raises:
        StorageError: It is damaged.
    """
    stored = connection.execute(_STORED, (space.id, space.epoch)).fetchone()
    if stored is None:
        return None
    places, links, checksum = stored
    if crc(places + links) != checksum:
        raise damaged(str(space.namespace), "graph", "it is built anew")
    return np.frombuffer(places, dtype="<i8"), links


def _restore(
    connection: Connection, space: Space, index: VectorIndex, vectors: dict[int, Vector]
) -> None:
    """Restore the stored graph of a namespace, and remove its rows from ``vectors``."""
    try:
        stored = _stored_links(connection, space)
        if stored is not None:
            index.restore(*stored, vectors)
    except Exception as error:  # a broken cache costs time, nothing else
        logger.warning("the graph of %s is built anew: %s", space.namespace, error)


def _live_rows(connection: Connection, space: Space) -> list[int]:
    return [row for (row,) in connection.execute(_LIVE, (space.id,))]


class Indexes(SpaceIndexes):
    """The indexes of the namespaces of one open memory. Thread-safe."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._open: IndexCache[int, RowIndex] = IndexCache(_BUDGET)
        self._worn: list[VectorIndex] = []

    def current(self, connection: Connection, space: Space) -> RowIndex:
        """Return the index of a namespace, as of the transaction of ``connection`` or later."""
        opened = self._open.get(
            space.id,
            lambda: RowIndex(VectorIndex(self._dimension), space.epoch),
            lambda index: index.epoch == space.epoch,
        )
        if opened.revision < space.revision:
            with opened.lock:
                self._follow(connection, space, opened)
        return opened

    def _follow(self, connection: Connection, space: Space, opened: RowIndex) -> None:
        if opened.revision >= space.revision:
            return
        index = opened.index
        self._load(connection, space, opened, _LATER, opened.last_row)
        if len(index) != space.items:
            wanted = numbers(_live_rows(connection, space))
            opened.remove(np.setdiff1d(index.rows(), wanted))
            missing = np.setdiff1d(wanted, index.rows())
            if len(missing):
                self._load(connection, space, opened, _AMONG, json.dumps(missing.tolist()))
        opened.revision = space.revision
        self._tidy(opened)

    def _load(
        self, connection: Connection, space: Space, opened: RowIndex, sql: str, value: object
    ) -> None:
        """Add the rows that a statement finds, by the stored graph where there is one."""
        vectors = {}
        texts = {}
        for row, data, checksum, name, asked, text in connection.execute(sql, (space.id, value)):
            vectors[row] = unpack(data, checksum, self._dimension, str(name))
            texts[row] = f"{asked} {text}"
        opened.last_row = max(opened.last_row, *vectors, 0)
        is_first = opened.revision < 0 and not opened.index.linked
        if is_first and space.items >= LARGE:
            _restore(connection, space, opened.index, vectors)
        opened.insert(vectors, texts)

    def _tidy(self, opened: RowIndex) -> None:
        index = opened.index
        if not index.is_worn:
            return
        if len(index) < LARGE:
            index.rebuild()
        else:
            self._worn.append(index)

    def clear(self, connection: Connection, space: int | None = None) -> None:
        """Delete all stored graphs; that of one namespace is deleted with it."""
        if space is None:
            connection.execute("DELETE FROM graphs")

    def settle(self, connection: Connection, space: Space | None = None) -> None:
        """Do nothing: an index follows when it is read next."""

    def committed(self, space: Space) -> None:
        """Follow a committed transaction of this process."""
        opened = self._open.find(space.id)
        if opened is None or opened.epoch != space.epoch:
            return
        with opened.lock:
            opened.say(space.written)
            if space.gone:
                opened.remove(numbers(space.gone))
            self._tidy(opened)
            was_current = opened.revision == space.revision - 1
            if was_current and len(opened.index) == space.items:
                opened.revision = space.revision

    def rolled_back(self, space: Space, revision: int) -> None:
        """Take back the rows of a failed transaction that began at a revision.

        Their numbers will come again.
        """
        opened = self._open.find(space.id)
        if opened is None:
            return
        if opened.revision > revision:  # it follows rows that do not exist
            self.drop(space.id)
        elif space.written:
            with opened.lock:
                opened.index.remove(numbers(space.written))
                opened.last_row = min(space.written) - 1

    def drop(self, space: int) -> None:
        """Close the index of a namespace."""
        self._open.drop(space)

    def problems(self, connection: Connection, space: Space) -> Iterator[str]:
        """Report an index that does not match the file."""
        known = self.current(connection, space).index.rows()
        live = _live_rows(connection, space)
        if sorted(known.tolist()) != sorted(live):
            yield f"{space.namespace}: the index is out of step"
        _stored_links(connection, space)

    def save(self, database: SqlDatabase, *, closing: bool = False) -> None:
        """Write the links of the large graphs that grew by a fifth, or at all when closing.

        A failure is logged. A closing memory does not wait for other writers.
        """
        if database.in_memory or database.read_only:
            return
        for number, opened in self._open.items():
            index = opened.index
            changed = abs(index.linked - index.stored)
            if len(index) < LARGE or not changed:
                continue
            if closing or changed * _GROWN >= index.linked:
                self._save(database, number, opened, wait=not closing)

    def _save(self, database: SqlDatabase, number: int, opened: RowIndex, *, wait: bool) -> None:
        """Write the links of the graph of a namespace."""
        places, links = opened.index.links()
        values = (places, links, crc(places + links), number, opened.epoch)
        try:
            with database.write(wait=wait) as connection:
                connection.execute(_STORE, values)
        except EcsPluginsError as error:
            logger.warning("the links of a graph could not be written: %s", error)
            return
        opened.index.stored = len(places) // 8

    def take_worn(self) -> set[VectorIndex]:
        """Return the large indexes that should be built anew, each once."""
        worn = self._worn
        self._worn = []
        return {index for index in worn if index.is_worn}

    def statistics(self) -> dict[str, int]:
        """Count open indexes, their bytes, linked vectors and tombstones."""
        indexes = [opened.index for _, opened in self._open.items()]
        return {
            "open": len(indexes),
            "bytes": self._open.size,
            "linked": sum(index.linked for index in indexes),
            "tombstones": sum(index.dead for index in indexes),
        }
