"""The indexes of a memory file: vectors and words of each namespace, over both tiers, in memory.

An index is a cache. It is brought up to date from the database inside the reader's own
transaction: rows are only ever added at the end or removed, so new rows are those above the last
one known, and something was removed if the counts then differ. It makes no difference whether
this process, another thread or another process wrote.

An index is an HNSW graph (FAISS) over row numbers. New rows wait in a tail that is compared one by
one, which for some hundred rows costs less than linking them one at a time; a full tail is linked
as a whole. FAISS cannot remove a vector. A linked row that is removed stays in the graph as a
tombstone: a selector keeps it out of the results, a larger ``efSearch`` pays for it, and once half
of the graph is dead it is built anew. FAISS crashes when one thread adds while another searches,
so a lock admits one at a time.

Rows that a filter leaves are compared one by one: a graph searched through a narrow filter loses
recall, and reading the metadata has cost more by then.

The words of a namespace are read from its texts at its first recall, and follow the database in
the same way. They never see a transaction that is not on disk, and are never written to a file.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ecs_plugins.common.sqlite import Database
from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.memory.store.snapshot import Snapshot
from ecs_plugins.memory.store.tiers import Space, list_spaces, unpack
from ecs_plugins.memory.types import ColdMemory, Matrix, Vector
from ecs_plugins.ranking.coverage import CoverageIndex

logger = logging.getLogger(__name__)

Rows = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
KnownCold = dict[int, tuple[ColdMemory, str, int]]
"""Cold memories by row number, with their evidence and pin as stored."""

KEPT_FROM = 5000
"""Vectors from which on a graph is saved, and built anew in the background: building takes some
tens of milliseconds per thousand."""

_BUDGET = 1 << 30  # bytes; the least recently used indexes are closed beyond it
_SAVE_EVERY = 60.0  # seconds at least between two snapshots that nobody asked for
_GROWN = 5  # a graph is saved again once it grew by one part in so many
_TAIL = 256  # rows that may wait to be linked
_LINKS = 16
_EF_CONSTRUCTION = 40
_CHUNK = 1024  # vectors read or linked at a time; a closing memory can stop in between
_MIN_DEAD = 256  # tombstones that are always tolerated
_ERASED_SHARE = 0.05  # of the graph, blanked: beyond it, searches lose their way


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
        self.dimension = dimension
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        faiss = _faiss()
        self._graph = faiss.IndexHNSWFlat(self.dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction = _EF_CONSTRUCTION
        # By position in the graph: the row, -1 for a tombstone.
        self._rows: Rows = np.empty(0, dtype=np.int64)
        self._places: dict[int, int] = {}
        self._blank = 0
        self._tail: dict[int, Vector] = {}

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

    def _waiting(self) -> Matrix:
        """The vectors of the tail ``[waiting, dimension]``."""
        return np.array([*self._tail.values()], dtype=np.float32).reshape(-1, self.dimension)

    # Changing

    def add(self, rows: Rows, vectors: Matrix) -> None:
        """Add rows that are not there yet; ``vectors`` is ``[rows, dimension]``."""
        with self._lock:
            own = np.array(vectors, dtype=np.float32)
            self._tail.update(zip(rows.tolist(), own, strict=True))
            if len(self._tail) > _TAIL:
                self._link()

    def _link(self) -> None:
        """Put the rows of the tail into the graph."""
        start = self.linked
        with _one_thread():
            self._graph.add(self._waiting())
        self._rows = np.concatenate([self._rows, _numbers(self._tail)])
        self._places.update(zip(self._tail, range(start, self.linked), strict=True))
        self._tail = {}

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        with self._lock:
            for row in rows.tolist():
                self._tail.pop(row, None)
                if row in self._places:
                    self._rows[self._places.pop(row)] = -1

    def blank(self) -> None:
        """Overwrite the vectors of all tombstones: what was erased must not reach a file."""
        with self._lock:
            dead = np.flatnonzero(self._rows < 0)
            self._linked_vectors()[dead] = 0.0
            self._blank = len(dead)

    # Searching

    def search(self, query: Vector, k: int, *, allowed: Rows | None = None) -> tuple[Rows, Vector]:
        """The ``k`` live rows of the largest inner product with ``query``, and these, best first.

        Fewer come back if fewer are there. Of ``allowed`` rows, all are compared one by one.
        """
        with self._lock:
            places = self._places
            rows, scores = _numbers(self._tail), self._waiting() @ query
            if allowed is not None:
                near = np.isin(rows, allowed)
                rows, scores = rows[near], scores[near]
                places = {row: places[row] for row in allowed.tolist() if row in places}
            if places:
                linked = None
                if allowed is None and 2 * k < len(places):
                    linked = self._search_graph(query[None], k)
                if linked is None:
                    at = _numbers(places.values())
                    linked = self._rows[at][None], self._linked_vectors()[at] @ query[None].T
                rows = np.concatenate([rows, linked[0].ravel()])
                scores = np.concatenate([scores, linked[1].ravel()])
        best = np.argsort(-scores, kind="stable")[:k]
        return rows[best], scores[best]

    def highest(self, vectors: Matrix) -> Vector:
        """For each vector the score of the row nearest to it; -1 where there is none."""
        with self._lock:
            out = np.full(len(vectors), -1.0, dtype=np.float32)
            if self._tail:
                out = (vectors @ self._waiting().T).max(axis=1)
            if self._places:
                found = self._search_graph(vectors, 1)
                if found is None:
                    at = _numbers(self._places.values())
                    linked = (vectors @ self._linked_vectors()[at].T).max(axis=1)
                else:
                    linked = found[1][:, 0]
                out = np.maximum(out, linked)
            return out

    def _search_graph(self, queries: Matrix, k: int) -> tuple[Rows, Matrix] | None:
        """``k`` rows and scores for each query; None if the graph does not reach so many."""
        faiss, linked = _faiss(), self.linked
        ef = max(search_width(linked), 2 * k) * linked / len(self._places)
        wanted = bits = None
        if self.dead:
            bits = np.packbits(self._rows >= 0, bitorder="little")
            wanted = faiss.IDSelectorBitmap(linked, faiss.swig_ptr(bits))
        parameters = faiss.SearchParametersHNSW(efSearch=int(ef), sel=wanted)
        with _one_thread():
            scores, places = self._graph.search(
                np.ascontiguousarray(queries, dtype=np.float32), k, params=parameters
            )
        return None if (places < 0).any() else (self._rows[places], scores)

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
            known, tail = self._places, self._tail
            there = np.array([row in known or row in tail for row in rows.tolist()], dtype=bool)
            out = np.full(len(rows), -1.0, dtype=np.float32)
            if there.any():
                out[there] = self._vectors(rows[there]) @ query
            return out

    # Upkeep

    @property
    def is_worn(self) -> bool:
        """Whether the graph should be built anew."""
        most = max(len(self._places), _MIN_DEAD)
        return self.dead > most or self._blank > max(_ERASED_SHARE * self.linked, _MIN_DEAD)

    def rebuild(self, stop: threading.Event | None = None) -> None:
        """Build the graph anew without its tombstones; searches and changes go on meanwhile."""
        with self._lock:
            rows = self.rows()
            vectors = self._vectors(rows)
        fresh = VectorIndex(self.dimension)
        for start in range(0, len(rows), _CHUNK):
            if stop is not None and stop.is_set():
                return
            fresh.add(rows[start : start + _CHUNK], vectors[start : start + _CHUNK])
        with self._lock:
            late = np.setdiff1d(self.rows(), rows)
            if len(late):
                fresh.add(late, self._vectors(late))
            fresh.remove(np.setdiff1d(rows, self.rows()))
            self._graph, self._rows, self._places = fresh._graph, fresh._rows, fresh._places
            self._tail, self._blank = fresh._tail, 0
            if self.dead:  # since the vectors were copied, perhaps erased
                self.blank()

    def to_bytes(self) -> tuple[Rows, Bytes]:
        """The row of each vector (-1 for a tombstone), and the graph as FAISS serialises it."""
        with self._lock:
            if self._tail:
                self._link()
            return self._rows.copy(), _faiss().serialize_index(self._graph)

    def restore(self, rows: Rows, graph: Bytes) -> None:
        """Take what `to_bytes` returned; a ValueError if it is of another dimension."""
        restored = _faiss().deserialize_index(graph)
        if restored.d != self.dimension or restored.ntotal != len(rows):
            raise ValueError("the graph does not belong to these rows")
        with self._lock:
            self._clear()
            self._graph, self._rows = restored, rows.copy()
            self._places = {row: at for at, row in enumerate(rows.tolist()) if row >= 0}
            self._blank = int((rows < 0).sum())


@dataclass(slots=True)
class OpenIndex:
    """An index and the state of the namespace that it stands for."""

    index: VectorIndex
    epoch: int
    erasures: int
    revision: int = -1
    saved: int = 0  # vectors that the graph had in the present snapshot
    last_row: int = 0
    cold: KnownCold = field(default_factory=dict)  # as the latest sleep phase read it
    lock: threading.RLock = field(default_factory=threading.RLock)
    words: CoverageIndex = field(default_factory=CoverageIndex)
    words_revision: int = -1
    words_row: int = 0

    @property
    def size(self) -> int:
        """Bytes held, about."""
        return self.index.size + self.words.size

    def add(self, row: int, vector: np.ndarray) -> None:
        """Add a row that a transaction has written and not committed."""
        self.index.add(np.array([row]), vector[None])
        self.last_row = row


_LIVE, _AMONG = "namespace = ? AND live = 1", "row IN (SELECT value FROM json_each(?))"


def live_rows(connection: sqlite3.Connection, space: Space) -> list[int]:
    """The numbers of the rows in a namespace's tiers."""
    found = connection.execute(f"SELECT row FROM tiers WHERE {_LIVE}", (space.id,))
    return [row for (row,) in found]


class Indexes:
    """The indexes of one open memory. Thread-safe."""

    def __init__(self, database: Database, dimension: int) -> None:
        self._database = database
        self._dimension = dimension
        self.snapshot = Snapshot(database)
        self._open: OrderedDict[int, OpenIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._save_due = 0.0
        self._worn: list[VectorIndex] = []

    def current(self, connection: sqlite3.Connection, space: Space) -> OpenIndex:
        """The index of a namespace, as of the transaction of ``connection`` or later."""
        with self._lock:
            opened = self._open.get(space.id)
            if opened is None or opened.epoch != space.epoch:
                opened = OpenIndex(VectorIndex(self._dimension), space.epoch, space.erasures)
                self._open[space.id] = opened
                self._enforce_budget(space.id)
            self._open.move_to_end(space.id)
        if opened.revision < space.revision:
            with opened.lock:
                self._refresh(connection, space, opened)
        return opened

    def worded(self, connection: sqlite3.Connection, space: Space) -> OpenIndex:
        """`current`, with the words of the namespace as of the same transaction or later."""
        opened = self.current(connection, space)
        if opened.words_revision < space.revision:
            with opened.lock:
                self._refresh_words(connection, space, opened)
        return opened

    def _refresh_words(
        self, connection: sqlite3.Connection, space: Space, opened: OpenIndex
    ) -> None:
        if opened.words_revision >= space.revision:
            return

        def load(where: str, value: object) -> None:
            sql = f"SELECT row, text, asked FROM tiers WHERE {_LIVE} AND {where} ORDER BY row"
            for row, text, asked in connection.execute(sql, (space.id, value)):
                opened.words.add(row, f"{asked} {text}")
                opened.words_row = max(opened.words_row, row)

        load("row > ?", opened.words_row)
        words = opened.words
        if len(words) != space.items:
            wanted = set(live_rows(connection, space))
            for row in words.numbers() - wanted:
                words.discard(row)
            load(_AMONG, json.dumps(sorted(wanted - words.numbers())))
        opened.words_revision = space.revision

    def _refresh(self, connection: sqlite3.Connection, space: Space, opened: OpenIndex) -> None:
        if opened.revision >= space.revision:
            return
        if opened.revision < 0:
            self._restore(connection, space, opened)
        index = opened.index

        def load(where: str, value: object) -> None:
            sql = f"SELECT row, vector, vector_crc, id FROM tiers WHERE {_LIVE} AND {where}"
            found = connection.execute(f"{sql} ORDER BY row", (space.id, value))
            while rows := found.fetchmany(_CHUNK):
                vectors = [
                    unpack(vector, check, self._dimension, str(name))
                    for _, vector, check, name in rows
                ]
                index.add(np.array([row[0] for row in rows]), np.stack(vectors))
                opened.last_row = max(opened.last_row, rows[-1][0])

        load("row > ?", opened.last_row)
        if len(index) != space.items or opened.erasures != space.erasures:
            wanted = _numbers(live_rows(connection, space))
            index.remove(np.setdiff1d(index.rows(), wanted))
            missing = np.setdiff1d(wanted, index.rows())
            if len(missing):
                load(_AMONG, json.dumps(missing.tolist()))
        if opened.erasures != space.erasures:
            index.blank()
            opened.erasures, opened.saved = space.erasures, 0
        opened.revision = space.revision
        self._tidy(opened)

    def _tidy(self, opened: OpenIndex) -> None:
        if not opened.index.is_worn:
            return
        if len(opened.index) < KEPT_FROM:
            opened.index.rebuild()
        else:
            self._worn.append(opened.index)

    def committed(self, space: Space) -> None:
        """Follow a transaction of this process that is on disk."""
        opened = self._open.get(space.id)
        if opened is None or opened.epoch != space.epoch:
            return
        with opened.lock:
            opened.index.remove(np.array(space.gone, dtype=np.int64))
            for row in space.gone:
                opened.cold.pop(row, None)
                opened.words.discard(row)
            if opened.erasures != space.erasures:
                opened.index.blank()
                opened.saved = 0
            if opened.revision == space.revision - 1 and len(opened.index) == space.items:
                opened.revision, opened.erasures = space.revision, space.erasures
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
                opened.index.remove(np.array(space.written, dtype=np.int64))
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

    # Upkeep

    def take_worn(self) -> set[VectorIndex]:
        """The large indexes that should be built anew, each handed out once."""
        worn, self._worn = self._worn, []
        return {index for index in worn if index.is_worn}

    def statistics(self) -> dict[str, int]:
        """Open indexes, their bytes, their linked vectors and tombstones; the snapshot."""
        with self._lock:
            indexes = [opened.index for opened in self._open.values()]
            size = sum(opened.size for opened in self._open.values())
        return {
            "open": len(indexes),
            "bytes": size,
            "linked": sum(index.linked for index in indexes),
            "tombstones": sum(index.dead for index in indexes),
            "snapshot_bytes": self.snapshot.size,
            "snapshot_failures": self.snapshot.failures,
        }

    # The snapshot

    def are_to_be_saved(self) -> bool:
        """Whether a graph has changed so much that building it anew would take long."""
        return time.monotonic() >= self._save_due and any(
            0 < each.index.linked <= abs(each.index.linked - each.saved) * _GROWN
            for each in self._large().values()
        )

    def _large(self) -> dict[int, OpenIndex]:
        """The indexes of which a snapshot is kept, if the memory may have one."""
        if self._database.in_memory or self._database.read_only:
            return {}
        with self._lock:
            return {
                number: each
                for number, each in self._open.items()
                if len(each.index) >= KEPT_FROM and each.revision >= 0
            }

    def save(self) -> None:
        """Write the snapshot under the write lock; a failure is logged, not raised."""
        large = self._large()
        if not large:
            return
        self._save_due = time.monotonic() + _SAVE_EVERY
        try:
            with self._database.write() as connection:
                now = {space.id: (space.epoch, space.erasures) for space in list_spaces(connection)}
                graphs = {
                    number: (each.epoch, *each.index.to_bytes())
                    for number, each in large.items()
                    if now.get(number) == (each.epoch, each.erasures)
                }
                self.snapshot.write(connection, graphs)
            for number in graphs:
                large[number].saved = large[number].index.linked
        except (OSError, EcsPluginsError) as error:
            self.snapshot.failures += 1
            logger.warning("the index snapshot could not be written: %s", error)

    def _restore(self, connection: sqlite3.Connection, space: Space, opened: OpenIndex) -> None:
        if space.items < KEPT_FROM:
            return
        try:
            epoch, rows, graph = self.snapshot.read(connection).get(space.id, (None, None, None))
            if rows is not None and graph is not None and epoch == space.epoch:
                opened.index.restore(rows, graph)
                opened.last_row, opened.saved = int(rows.max(initial=0)), len(rows)
        except (OSError, ValueError, RuntimeError) as error:
            logger.warning("the index snapshot cannot be used (%s); it is built anew", error)
