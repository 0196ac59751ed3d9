"""Index over the rows of a memory: their vectors, and the words of their texts.

`VectorIndex` holds row numbers and their vectors. Few vectors are compared one by one. From `LARGE`
ones on, an HNSW graph (FAISS) finds them; the latest ones wait, and are compared one by one, until
the background thread has linked them. FAISS cannot remove a vector. A linked row that is removed
stays in the graph as a tombstone: a selector keeps it out of the results, and a larger ``efSearch``
pays for it. Once half of the rows are dead the graph is built anew. FAISS crashes when one thread
adds while another searches, so a lock admits one at a time. Rows that pass a filter are compared
one by one: a graph that is searched through a narrow filter loses recall.

`RowIndex` adds the words. It is a cache: a reader brings it up to date from the database inside its
own transaction. Rows are only ever added or removed, so new rows are those above the last known
number, and rows were removed if the counts then differ. It does not matter which process wrote.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import Candidates, Rows, SpaceIndexes
from ecs_plugins.memory.store.values import unpack
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.storage.base import Connection

LARGE = 5000
"""Vectors from which on a graph finds them in less time than a comparison with all."""

_TAIL = 512
"""Rows that may wait to be linked."""

_SLOTS = 16
"""Rows for which an index has room at first."""

_REMOVED = np.iinfo(np.int64).min
"""The row of a place whose row was removed; provisional rows are negative."""

_LINKS = 16
"""Links of a vector in each layer of the graph (M of HNSW)."""

_EF_CONSTRUCTION = 40
"""Candidates that are compared to link a vector."""

_CHUNK = 1024
"""Vectors linked at a time; a closing memory can stop in between."""

_NARROW = 64
"""``efSearch`` that finds the vectors that repeat a query, which lie very near."""

_MIN_DEAD = 256
"""Removed rows that are always tolerated."""

_BUDGET = 1 << 30
"""Bytes of all open indexes; the least recently used ones are closed beyond it."""

_ENTRIES = """
    SELECT row, vector, vector_crc, id, asked, text FROM tiers
    WHERE namespace = ? AND live = 1 AND
"""
_LATER = f"{_ENTRIES} row > ?"
_AMONG = f"{_ENTRIES} row IN (SELECT value FROM json_each(?))"
_LIVE = "SELECT row FROM tiers WHERE namespace = ? AND live = 1"


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


def best_places(scores: Vector, k: int) -> Rows:
    """Return the places of the ``k`` highest scores, best first; ties keep their order."""
    places = np.arange(len(scores))
    if 4 * k < len(scores):
        least = np.partition(scores, -k)[-k]
        places = np.flatnonzero(scores >= least)
    return places[np.argsort(-scores[places], kind="stable")[:k]]


# Vectors


class VectorIndex:
    """Row numbers and their unit vectors of one dimension. Thread-safe."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._lock = threading.RLock()
        # By place: the row, or `_REMOVED`.
        self._rows: Rows = np.empty(_SLOTS, dtype=np.int64)
        self._vectors: Matrix = np.empty((_SLOTS, dimension), dtype=np.float32)
        self._used = 0
        self._places: dict[int, int] = {}
        self._graph: Any = None  # of the vectors in the first places
        self._selected: tuple[Any, ...] = ()  # a selector of the live rows of the graph
        self._generation = 0  # counts the times that places changed

    def __len__(self) -> int:
        return len(self._places)

    @property
    def linked(self) -> int:
        """Number of vectors in the graph, removed ones included."""
        return 0 if self._graph is None else int(self._graph.ntotal)

    @property
    def dead(self) -> int:
        """Number of removed rows that still occupy a place."""
        return self._used - len(self._places)

    @property
    def size(self) -> int:
        """Approximate bytes in memory."""
        link = 2 * self.dimension + 8 * _LINKS + 128
        return self._used * 4 * self.dimension + self.linked * link

    def rows(self) -> Rows:
        """Return the live rows."""
        with self._lock:
            return numbers(self._places)

    # Changing

    def add(self, rows: Rows, vectors: Matrix) -> None:
        """Add new rows; ``vectors`` is ``[rows, dimension]``."""
        with self._lock:
            start = self._used
            end = start + len(rows)
            if end > len(self._rows):
                self._vectors = np.concatenate(
                    [self._vectors[:start], np.empty((end, self.dimension), dtype=np.float32)]
                )
                self._rows = np.resize(self._rows, start + end)
            self._rows[start:end] = rows
            self._vectors[start:end] = vectors
            self._places.update(zip(rows.tolist(), range(start, end), strict=True))
            self._used = end

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        with self._lock:
            for row in rows.tolist():
                place = self._places.pop(row, None)
                if place is not None:
                    self._rows[place] = _REMOVED
                    self._selected = ()

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
                rows, scores = self._near(query, k, narrow)
            else:
                rows = numbers([row for row in allowed.tolist() if row in self._places])
                scores = self.scores(rows, query)
        best = best_places(scores, k)
        return rows[best], scores[best]

    def _near(self, query: Vector, k: int, narrow: bool) -> tuple[Rows, Vector]:
        """Return at least the ``k`` best live rows, by the graph where there is one."""
        near = self._search_graph(query, k, narrow)
        start = self.linked if len(near) else 0
        rows = self._rows[start : self._used]
        scores = self._vectors[start : self._used] @ query
        if self.dead:
            is_live = rows != _REMOVED
            rows, scores = rows[is_live], scores[is_live]
        if not len(near):
            return rows, scores
        linked_scores = self._vectors[near] @ query
        return np.append(self._rows[near], rows), np.append(linked_scores, scores)

    def _search_graph(self, query: Vector, k: int, narrow: bool) -> Rows:
        """Return the places of ``k`` live rows; none if the graph finds fewer."""
        none = np.empty(0, dtype=np.int64)
        linked = self.linked
        live = linked - self.dead
        if 2 * k >= live:
            return none
        width = max(_NARROW if narrow else search_width(linked), 2 * k)
        width = int(width * linked / live)
        queries = np.ascontiguousarray(query[None], dtype=np.float32)
        with _one_thread():
            _, places = self._graph.search(queries, k, params=self._parameters(width))
        return none if (places < 0).any() else places[0]

    def _parameters(self, width: int) -> Any:
        """Return the parameters of a search that leaves tombstones out."""
        if not self.dead:
            return _wide(width)
        faiss = _faiss()
        if not self._selected:
            bits = np.packbits(self._rows[: self.linked] != _REMOVED, bitorder="little")
            selector = faiss.IDSelectorBitmap(self.linked, faiss.swig_ptr(bits))
            self._selected = (selector, bits)
        return faiss.SearchParametersHNSW(efSearch=width, sel=self._selected[0])

    def scores(self, rows: Rows, query: Vector) -> Vector:
        """Return the inner products of live rows with a query; -1 for other rows."""
        with self._lock:
            place_of = self._places.get
            places = np.array([place_of(row, -1) for row in rows.tolist()], dtype=np.int64)
            is_live = places >= 0
            scores = np.full(len(rows), -1.0, dtype=np.float32)
            scores[is_live] = self._vectors[places[is_live]] @ query
            return scores

    # Upkeep

    @property
    def is_worn(self) -> bool:
        """Return True if rows wait to be linked, or half of the places hold removed rows."""
        waits = len(self) >= LARGE and self._used - self.linked > _TAIL
        return waits or self._is_dead

    @property
    def _is_dead(self) -> bool:
        return self.dead > max(len(self), _MIN_DEAD)

    def rebuild(self, stop: threading.Event | None = None) -> None:
        """Link the rows that wait; take places from removed rows if these are half of all.

        Other threads go on meanwhile.
        """
        with self._lock:
            if self._is_dead:
                self._compact()
            if len(self) < LARGE:
                return
            generation = self._generation
            vectors = self._vectors[: self._used]
            faiss = _faiss()
            if self._graph is None:
                half = faiss.ScalarQuantizer.QT_fp16
                inner = faiss.METRIC_INNER_PRODUCT
                graph = faiss.IndexHNSWSQ(self.dimension, half, _LINKS, inner)
                graph.hnsw.efConstruction = _EF_CONSTRUCTION
            else:
                graph = faiss.clone_index(self._graph)
        for start in range(graph.ntotal, len(vectors), _CHUNK):
            if stop is not None and stop.is_set():
                return
            with _one_thread():
                graph.add(vectors[start : start + _CHUNK])
        with self._lock:
            if generation == self._generation:
                self._graph = graph
                self._selected = ()

    def _compact(self) -> None:
        """Close the gaps of removed rows, and drop the graph."""
        live = np.flatnonzero(self._rows[: self._used] != _REMOVED)
        self._rows = self._rows[live]
        self._vectors = self._vectors[live]
        self._used = len(live)
        self._places = dict(zip(self._rows.tolist(), range(self._used), strict=True))
        self._graph = None
        self._selected = ()
        self._generation += 1


@lru_cache(maxsize=64)
def _wide(width: int) -> Any:
    """Return the parameters of a search without tombstones; creating them is slow."""
    return _faiss().SearchParametersHNSW(efSearch=width)


# Vectors and words


@dataclass(slots=True)
class RowIndex:
    """Vectors and words of some rows, and the database revision that they were read at."""

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
        """Add the rows that a statement finds."""
        vectors = {}
        texts = {}
        for row, data, checksum, name, asked, text in connection.execute(sql, (space.id, value)):
            vectors[row] = unpack(data, checksum, self._dimension, str(name))
            texts[row] = f"{asked} {text}"
        opened.last_row = max(opened.last_row, *vectors, 0)
        opened.insert(vectors, texts)

    def _tidy(self, opened: RowIndex) -> None:
        index = opened.index
        if not index.is_worn:
            return
        if len(index) < LARGE:
            index.rebuild()
        else:
            self._worn.append(index)

    def settle(self, connection: Connection, space: Space | None = None) -> None:
        """Do nothing: an index follows when it is read next."""

    def committed(self, space: Space) -> None:
        """Follow a committed transaction of this process."""
        opened = self._open.find(space.id)
        if opened is None or opened.epoch != space.epoch:
            return
        with opened.lock:
            was_current = opened.revision == space.revision - 1
            if was_current and space.written:
                texts = {row: text for row, (text, _) in space.written.items()}
                opened.insert({row: own for row, (_, own) in space.written.items()}, texts)
                opened.last_row = max(space.written)
            if space.gone:
                opened.remove(numbers(space.gone))
            self._tidy(opened)
            if was_current and len(opened.index) == space.items:
                opened.revision = space.revision

    def rolled_back(self, space: Space, revision: int) -> None:
        """Drop an index that follows the rows of a failed transaction."""
        opened = self._open.find(space.id)
        if opened is not None and opened.revision > revision:
            self.drop(space.id)

    def drop(self, space: int) -> None:
        """Close the index of a namespace."""
        self._open.drop(space)

    def take_worn(self) -> set[VectorIndex]:
        """Return the large indexes that should be built anew, each once."""
        worn = self._worn
        self._worn = []
        return {index for index in worn if index.is_worn}

    def statistics(self) -> dict[str, int]:
        """Return the number of open indexes, their bytes, and their linked and removed vectors."""
        indexes = [opened.index for _, opened in self._open.items()]
        return {
            "open": len(indexes),
            "bytes": self._open.size,
            "linked": sum(index.linked for index in indexes),
            "tombstones": sum(index.dead for index in indexes),
        }
