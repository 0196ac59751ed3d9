"""The indexes of a memory file: vectors and words of each namespace, over both tiers, in memory.

An index is a cache. It is brought up to date from the database inside the reader's own
transaction: rows are only ever added at the end or removed, so new rows are those above the last
one known, and something was removed if the counts then differ. It makes no difference whether
this process, another thread or another process wrote.

What a large namespace holds when it is opened, or gets at once, waits in the tail of its graph
until the background thread has linked it. The links of a large graph are kept in the database,
without the vectors, which `tiers` has. When the namespace is opened, its graph is put together of
both: what left since is a tombstone of zeros, what came since waits in the tail. Links that are
damaged or of another epoch are built anew.

The words of a namespace are read with its vectors, and follow the database in the same way. They
never see a transaction that is not on disk, and are never written to a file.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.memory.store import vector_index
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import Candidates, Rows, SpaceIndexes
from ecs_plugins.memory.store.values import crc, damaged, unpack
from ecs_plugins.memory.store.vector_index import VectorIndex, numbers
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.storage.base import Connection, SqlDatabase

logger = logging.getLogger(__name__)

_BUDGET = 1 << 30
"""Bytes of all open indexes; the least recently used ones are closed beyond it."""

_GROWN = 5
"""A graph is kept again once it grew by one part in so many."""


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
            own = {word for word in words if index.has(word)}
            possessive = {word for word in words if index.has(f"{word}'s")}
        return own | possessive

    def expect(self, vectors: Matrix, k: int) -> None:
        """Nothing: it is looked up at once."""

    def add(self, row: int, vector: Vector) -> None:
        """Add a row that a transaction has written and not committed."""
        rows = np.array([row])
        self.index.add(rows, vector[None])
        self.last_row = row

    def take_back(self, row: int) -> None:
        """Forget a row that a transaction has written and replaced: nobody else knows of it."""
        self.index.remove(np.array([row]))

    def remove(self, rows: Rows) -> None:
        """Remove rows; unknown ones are ignored."""
        self.index.remove(rows)
        for row in rows.tolist():
            unread = self._said.pop(row, None)
            if unread is None:
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


_ENTRIES = """
    SELECT row, vector, vector_crc, id, asked, text FROM tiers
    WHERE namespace = ? AND live = 1 AND
"""
_LATER = f"{_ENTRIES} row > ?"
_AMONG = f"{_ENTRIES} row IN (SELECT value FROM json_each(?))"
_KEPT = """
    SELECT places, links, crc FROM graphs
    WHERE namespace = ? AND epoch = ?
"""
_KEEP = """
    INSERT OR REPLACE INTO graphs
    SELECT id, epoch, ?, ?, ? FROM namespaces
    WHERE id = ? AND epoch = ?
"""


def _kept(connection: Connection, space: Space) -> tuple[Rows, bytes] | None:
    """What is kept of the graph of a namespace; a `StorageError` if it is damaged."""
    kept = connection.execute(_KEPT, (space.id, space.epoch)).fetchone()
    if kept is None:
        return None
    places, links, checksum = kept
    if crc(places + links) != checksum:
        raise damaged(str(space.namespace), "graph", "it is built anew")
    return np.frombuffer(places, dtype="<i8"), links


def _restore(
    connection: Connection, space: Space, index: VectorIndex, vectors: dict[int, Vector]
) -> None:
    """Take the graph that is kept of a namespace, and out of ``vectors`` those of its rows."""
    try:
        kept = _kept(connection, space)
        if kept is not None:
            rows, links = kept
            index.restore(rows, links, vectors)
    except Exception as error:  # whatever is wrong with a cache costs time, nothing else
        logger.warning("the graph of %s is built anew: %s", space.namespace, error)


def _live_rows(connection: Connection, space: Space) -> list[int]:
    """The numbers of the rows in a namespace's tiers."""
    rows = connection.execute("SELECT row FROM tiers WHERE namespace = ? AND live = 1", (space.id,))
    return [row for (row,) in rows]


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
        self, connection: Connection, space: Space, opened: OpenIndex, sql: str, value: object
    ) -> None:
        """Put the rows that a statement finds into an index, into its graph if that is kept."""
        vectors = {}
        texts = {}
        for row, data, checksum, name, asked, text in connection.execute(sql, (space.id, value)):
            vectors[row] = unpack(data, checksum, self._dimension, str(name))
            texts[row] = f"{asked} {text}"
        opened.say(texts)
        opened.last_row = max(opened.last_row, *vectors, 0)
        is_first = opened.revision < 0 and not opened.index.linked
        if is_first and space.items >= vector_index.LARGE:
            _restore(connection, space, opened.index, vectors)
        if vectors:
            matrix = np.stack([*vectors.values()])
            opened.index.add(numbers(vectors), matrix)

    def _tidy(self, opened: OpenIndex) -> None:
        index = opened.index
        if not index.is_worn:
            return
        if len(index) < vector_index.LARGE:
            index.rebuild()
        else:
            self._worn.append(index)

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
            if space.gone:
                opened.remove(numbers(space.gone))
            self._tidy(opened)
            was_current = opened.revision == space.revision - 1
            if was_current and len(opened.index) == space.items:
                opened.revision = space.revision

    def rolled_back(self, space: Space, revision: int) -> None:
        """Take back the rows of a transaction that failed and began at a revision.

        Their numbers will come again.
        """
        opened = self._open.get(space.id)
        if opened is None:
            return
        if opened.revision > revision:  # brought up to what is not there
            self.drop(space.id)
        elif space.written:
            with opened.lock:
                opened.index.remove(numbers(space.written))
                opened.last_row = min(space.written) - 1

    def _enforce_budget(self, keep: int) -> None:
        while self._size > _BUDGET:
            others = [number for number in self._open if number != keep]
            if not others:
                return
            del self._open[others[0]]

    @property
    def _size(self) -> int:
        """Bytes of all open indexes, about."""
        return sum(opened.size for opened in self._open.values())

    def drop(self, space: int) -> None:
        """Close the index of a namespace."""
        with self._lock:
            self._open.pop(space, None)

    def problems(self, connection: Connection, space: Space) -> Iterator[str]:
        """Whether the index of a namespace is out of step with the file."""
        known = self.current(connection, space).index.rows()
        live = _live_rows(connection, space)
        if sorted(known.tolist()) != sorted(live):
            yield f"{space.namespace}: the index is out of step"
        _kept(connection, space)

    def save(self, database: SqlDatabase, *, closing: bool = False) -> None:
        """Write the links of the large graphs that grew by a fifth, or at all when closing.

        A failure is logged. Who closes does not wait for other writers.
        """
        if database.in_memory or database.read_only:
            return
        with self._lock:
            opened = [*self._open.items()]
        for number, each in opened:
            index = each.index
            changed = abs(index.linked - index.kept)
            if len(index) < vector_index.LARGE or not changed:
                continue
            if closing or changed * _GROWN >= index.linked:
                self._save(database, number, each, wait=not closing)

    def _save(self, database: SqlDatabase, number: int, opened: OpenIndex, *, wait: bool) -> None:
        """Write the links of the graph of a namespace."""
        places, links = opened.index.links()
        values = (places, links, crc(places + links), number, opened.epoch)
        try:
            with database.write(wait=wait) as connection:
                connection.execute(_KEEP, values)
        except EcsPluginsError as error:
            logger.warning("the links of a graph could not be written: %s", error)
            return
        opened.index.kept = len(places) // 8

    def take_worn(self) -> set[VectorIndex]:
        """The large indexes that should be built anew, each handed out once."""
        worn = self._worn
        self._worn = []
        return {index for index in worn if index.is_worn}

    def statistics(self) -> dict[str, int]:
        """Open indexes, their bytes, their linked vectors and tombstones."""
        with self._lock:
            indexes = [opened.index for opened in self._open.values()]
            size = self._size
        return {
            "open": len(indexes),
            "bytes": size,
            "linked": sum(index.linked for index in indexes),
            "tombstones": sum(index.dead for index in indexes),
        }
