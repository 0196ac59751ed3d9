"""The indexes of a memory file: vectors and words of each namespace, over both tiers, in memory.

An index is a cache. It is brought up to date from the database inside the reader's own
transaction: rows are only ever added at the end or removed, so new rows are those above the last
one known, and something was removed if the counts then differ. It makes no difference whether
this process, another thread or another process wrote.

An index is an HNSW graph (FAISS) over row numbers. New rows wait in a tail that is compared one by
one, which for some hundred rows costs less than linking them one at a time; a full tail is linked
as a whole. What a large namespace holds when it is opened, or gets at once, waits there too, until
the background thread has linked it. FAISS cannot remove a vector. A linked row that is removed
stays in the graph as a tombstone: a selector keeps it out of the results, a larger ``efSearch``
pays for it, and once half of the graph is dead it is built anew. FAISS crashes when one thread adds
while another searches, so a lock admits one at a time.

The links of a large graph are kept in the database, without the vectors, which `tiers` has. When
the namespace is opened, its graph is put together of both: what left since is a tombstone of zeros,
what came since waits in the tail. Links that are damaged or of another epoch are built anew.

Rows that a filter leaves are compared one by one: a graph searched through a narrow filter loses
recall, and reading the metadata has cost more by then.

The words of a namespace are read with its vectors, and follow the database in the same way. They
never see a transaction that is not on disk, and are never written to a file.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.memory.store.seam import Candidates, Rows, SpaceIndexes
from ecs_plugins.memory.store.tiers import Space, crc, damaged, unpack
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.storage.base import Connection, SqlDatabase

logger = logging.getLogger(__name__)

_LARGE = 5000
"""Vectors from which on a graph is linked in the background, and its links are kept: it takes some
tens of milliseconds per thousand."""

_BUDGET = 1 << 30  # bytes; the least recently used indexes are closed beyond it
_GROWN = 5  # a graph is kept again once it grew by one part in so many
_TAIL = 256  # rows that may wait to be linked
_LINKS = 16
_EF_CONSTRUCTION = 40
_CHUNK = 1024  # vectors linked at a time; a closing memory can stop in between
_MIN_DEAD = 256  # tombstones that are always tolerated


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


def _numbers(values: Collection[int]) -> Rows:
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
            if len(self._tail) > _TAIL and (len(self) < _LARGE or len(self._tail) <= 2 * _TAIL):
                self._link()

    def _link(self) -> None:
        """Put the rows of the tail into the graph."""
        start = self.linked
        with _one_thread():
            self._graph.add(self._tail_vectors())
        self._rows = np.concatenate([self._rows, _numbers(self._tail)])
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
            places = self._places
            rows, scores = _numbers(self._tail), self._tail_vectors() @ query
            if allowed is not None:
                near = np.isin(rows, allowed)
                rows, scores = rows[near], scores[near]
                places = {row: places[row] for row in allowed.tolist() if row in places}
            if places:
                linked = None
                if allowed is None and 2 * k < len(places):
                    linked = self._search_graph(query, k)
                if linked is None:
                    at = _numbers(places.values())
                    linked = self._rows[at], self._linked_vectors()[at] @ query
                rows = np.concatenate([rows, linked[0]])
                scores = np.concatenate([scores, linked[1]])
        best = np.argsort(-scores, kind="stable")[:k]
        return rows[best], scores[best]

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
        linked[_numbers(places.values())] = np.stack([vectors.pop(row) for row in places])
        storage = faiss.IndexFlatIP(self.dimension)
        storage.add(linked)
        storage.this.disown()  # the graph frees it
        graph.storage, graph.own_fields = storage, True
        with self._lock:
            self._graph, self._places, self.kept = graph, places, len(rows)
            self._rows = np.where(np.isin(rows, _numbers(places)), rows, -1)


@dataclass(slots=True)
class OpenIndex:
    """An index and the state of the namespace that it stands for."""

    index: VectorIndex
    epoch: int
    revision: int = -1
    last_row: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    words: CoverageIndex = field(default_factory=CoverageIndex)
    _said: dict[int, str | None] = field(default_factory=dict)  # what `words` has not read; or gone

    @property
    def size(self) -> int:
        """Bytes held, about."""
        return self.index.size + self.words.size

    def nearest(self, query: Vector, k: int, *, allowed: Rows | None = None) -> tuple[Rows, Vector]:
        """The ``k`` rows of the largest cosine, and these; see `VectorIndex.search`."""
        return self.index.search(query, k, allowed=allowed)

    def candidates(
        self, query: str, vector: Vector, count: int, *, allowed: Rows | None = None
    ) -> Candidates:
        """See `SpaceIndex.candidates`."""
        if allowed is not None:
            with self.lock:
                coverage = self._read().coverage(query, allowed)
            return Candidates(allowed, self.index.scores(allowed, vector), coverage, None)
        rows, near = self.nearest(vector, count)
        with self.lock:
            rows, coverage, least = self._read().nearest(query, count, rows)
        rest = (float(near[-1]), least) if len(near) == count else None
        cosines = np.append(near, self.index.scores(rows[len(near) :], vector))
        return Candidates(rows, cosines, coverage, rest)

    def expect(self, vectors: Matrix, k: int) -> None:
        """Nothing: it is looked up at once."""

    def add(self, row: int, vector: Vector) -> None:
        """Add a row that a transaction has written and not committed."""
        self.index.add(np.array([row]), vector[None])
        self.last_row = row

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        self.index.remove(rows)
        for row in rows.tolist():
            if self._said.pop(row, None) is None:
                self._said[row] = None

    def say(self, texts: Mapping[int, str]) -> None:
        """Take the words of rows, which are read by the next recall."""
        self._said |= texts

    def _read(self) -> CoverageIndex:
        for row, text in sorted(self._said.items()):
            if text is None:
                self.words.discard(row)
            else:
                self.words.add(row, text)
        self._said.clear()
        return self.words


_LIVE, _AMONG = "namespace = ? AND live = 1", "row IN (SELECT value FROM json_each(?))"


def _kept(connection: Connection, space: Space) -> tuple[Rows, bytes] | None:
    """What is kept of the graph of a namespace; a `StorageError` if it is damaged."""
    found = connection.execute(
        "SELECT places, links, crc FROM graphs WHERE namespace = ? AND epoch = ?",
        (space.id, space.epoch),
    ).fetchone()
    if found is None:
        return None
    places, links, checksum = found
    if crc(places + links) != checksum:
        raise damaged(str(space.namespace), "graph", "it is built anew")
    return np.frombuffer(places, dtype="<i8"), links


def _restore(
    connection: Connection, space: Space, index: VectorIndex, vectors: dict[int, Vector]
) -> None:
    """Take the graph that is kept of a namespace, and out of ``vectors`` those of its rows."""
    try:
        if kept := _kept(connection, space):
            index.restore(*kept, vectors)
    except Exception as error:  # whatever is wrong with a cache costs time, nothing else
        logger.warning("the graph of %s is built anew: %s", space.namespace, error)


def _live_rows(connection: Connection, space: Space) -> list[int]:
    """The numbers of the rows in a namespace's tiers."""
    found = connection.execute(f"SELECT row FROM tiers WHERE {_LIVE}", (space.id,))
    return [row for (row,) in found]


class Indexes(SpaceIndexes):
    """The indexes of one open memory. Thread-safe."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._open: OrderedDict[int, OpenIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._worn: list[VectorIndex] = []

    def current(self, connection: Connection, space: Space) -> OpenIndex:
        """The index of a namespace, as of the transaction of ``connection`` or later."""
        with self._lock:
            opened = self._open.get(space.id)
            if opened is None or opened.epoch != space.epoch:
                opened = OpenIndex(VectorIndex(self._dimension), space.epoch)
                self._open[space.id] = opened
                self._enforce_budget(space.id)
            self._open.move_to_end(space.id)
        if opened.revision < space.revision:
            with opened.lock:
                self._refresh(connection, space, opened)
        return opened

    def _refresh(self, connection: Connection, space: Space, opened: OpenIndex) -> None:
        if opened.revision >= space.revision:
            return
        index = opened.index

        def load(where: str, value: object) -> None:
            sql = "SELECT row, vector, vector_crc, id, asked, text FROM tiers WHERE"
            rows = connection.execute(f"{sql} {_LIVE} AND {where}", (space.id, value))
            found = {}
            for row, vector, check, name, asked, text in rows:
                found[row] = unpack(vector, check, self._dimension, str(name))
                opened.say({row: f"{asked} {text}"})
            opened.last_row = max(opened.last_row, *found, 0)
            if opened.revision < 0 and space.items >= _LARGE and not index.linked:
                _restore(connection, space, index, found)
            if found:
                index.add(_numbers(found), np.stack([*found.values()]))

        load("row > ?", opened.last_row)
        if len(index) != space.items:
            wanted = _numbers(_live_rows(connection, space))
            opened.remove(np.setdiff1d(index.rows(), wanted))
            missing = np.setdiff1d(wanted, index.rows())
            if len(missing):
                load(_AMONG, json.dumps(missing.tolist()))
        opened.revision = space.revision
        self._tidy(opened)

    def _tidy(self, opened: OpenIndex) -> None:
        if opened.index.is_worn and len(opened.index) < _LARGE:
            opened.index.rebuild()
        elif opened.index.is_worn:
            self._worn.append(opened.index)

    def clear(self, connection: Connection, space: int | None = None) -> None:
        """Delete the graphs of all; that of a namespace follows it."""
        if space is None:
            connection.execute("DELETE FROM graphs")

    def settle(self, connection: Connection, space: Space | None = None) -> None:
        """Nothing: an index follows when it is read next."""

    def committed(self, space: Space) -> None:
        """Follow a transaction of this process that is on disk."""
        opened = self._open.get(space.id)
        if opened is None or opened.epoch != space.epoch:
            return
        with opened.lock:
            opened.say(space.written)
            opened.remove(_numbers(space.gone))
            if opened.revision == space.revision - 1 and len(opened.index) == space.items:
                opened.revision = space.revision
            self._tidy(opened)

    def rolled_back(self, space: Space, revision: int) -> None:
        """Take back the rows of a transaction that failed and began at a revision.

        Their numbers will come again.
        """
        opened = self._open.get(space.id)
        if opened is not None and opened.revision > revision:  # brought up to what is not there
            self.drop(space.id)
        elif opened is not None and space.written:
            with opened.lock:
                opened.index.remove(_numbers(space.written))
                opened.last_row = min(space.written) - 1

    def _enforce_budget(self, keep: int) -> None:
        while sum(each.size for each in self._open.values()) > _BUDGET:
            victim = next((number for number in self._open if number != keep), None)
            if victim is None:
                return
            del self._open[victim]

    def drop(self, space: int) -> None:
        """Close the index of a namespace."""
        with self._lock:
            self._open.pop(space, None)

    def problems(self, connection: Connection, space: Space) -> Iterator[str]:
        """Whether the index of a namespace is out of step with the file."""
        known = self.current(connection, space).index.rows()
        if not np.array_equal(np.sort(known), np.sort(_live_rows(connection, space))):
            yield f"{space.namespace}: the index is out of step"
        _kept(connection, space)

    def save(self, database: SqlDatabase, *, closing: bool = False) -> None:
        """Write the links of the large graphs that grew by a fifth, or at all when closing.

        A failure is logged. Who closes does not wait for other writers.
        """
        if database.in_memory or database.read_only:
            return
        with self._lock:
            large = [each for each in self._open.items() if len(each[1].index) >= _LARGE]
        for number, opened in large:
            index, changed = opened.index, abs(opened.index.linked - opened.index.kept)
            if not changed or (changed * _GROWN < index.linked and not closing):
                continue
            places, links = index.links()
            try:
                with database.write(wait=not closing) as connection:
                    connection.execute(
                        "INSERT OR REPLACE INTO graphs SELECT id, epoch, ?, ?, ? FROM namespaces"
                        " WHERE id = ? AND epoch = ?",
                        (places, links, crc(places + links), number, opened.epoch),
                    )
                index.kept = len(places) // 8
            except EcsPluginsError as error:
                logger.warning("the links of a graph could not be written: %s", error)

    def take_worn(self) -> set[VectorIndex]:
        """The large indexes that should be built anew, each handed out once."""
        worn, self._worn = self._worn, []
        return {index for index in worn if index.is_worn}

    def statistics(self) -> dict[str, int]:
        """Open indexes, their bytes, their linked vectors and tombstones."""
        with self._lock:
            indexes = [opened.index for opened in self._open.values()]
            size = sum(opened.size for opened in self._open.values())
        return {
            "open": len(indexes),
            "bytes": size,
            "linked": sum(index.linked for index in indexes),
            "tombstones": sum(index.dead for index in indexes),
        }
