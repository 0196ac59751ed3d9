"""The indexes that are in memory: loaded on demand, kept current, closed under a byte budget.

An index is brought up to date from the database alone, inside the reader's own transaction: when
the tier has only grown, by the rows that follow the last one known; else by comparing row
numbers. It makes no difference whether this process, another thread or another process wrote.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from ecs_plugins.memory.store.database import Database
from ecs_plugins.memory.store.hot_items import LIVE_ROWS, LIVE_VECTORS
from ecs_plugins.memory.store.index import Entries, Progress, VectorIndex
from ecs_plugins.memory.store.index_config import IndexConfig
from ecs_plugins.memory.store.snapshots import SnapshotStore
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import unpack
from ecs_plugins.memory.types import TIERS, Matrix, Tier, Vector

_ROWS = {
    "hot": LIVE_ROWS,
    "cold": "SELECT row FROM memories WHERE namespace = ? AND live = 1",
}
_VECTORS = {
    "hot": LIVE_VECTORS,
    "cold": "SELECT row, vector, vector_crc, id FROM memories"
    " WHERE namespace = ? AND live = 1 AND row > ? ORDER BY row",
}


@dataclass(slots=True)
class _Open:
    index: VectorIndex
    epoch: int
    erasures: int
    generation: int = -1
    last_row: int = 0
    saved: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class TierChange:
    """What a transaction did to a tier, for the index that knows the state before it.

    Attributes:
        generation: Of the tier before.
        rows: Row numbers of the new items, ascending.
        vectors: Of the new items.
        gone: Row numbers of items that are there no more, perhaps of new ones.
    """

    generation: int
    rows: list[int] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)


class OpenIndexes:
    """The indexes of one open memory. Thread-safe.

    Args:
        database: The truth.
        dimension: Length of the vectors.
        config: How to search, and the budget.
    """

    def __init__(self, database: Database, dimension: int, config: IndexConfig) -> None:
        self._database = database
        self._dimension = dimension
        self._config = config
        self.snapshots = SnapshotStore(database)
        self._open: OrderedDict[tuple[int, Tier], _Open] = OrderedDict()
        self._evicted: list[tuple[tuple[int, Tier], _Open]] = []
        self._lock = threading.Lock()

    def current(self, connection: sqlite3.Connection, space: Space, tier: Tier) -> VectorIndex:
        """The index of a tier, as of the transaction of ``connection`` or later."""
        key = (space.id, tier)
        with self._lock:
            opened = self._open.get(key)
            if opened is None or opened.epoch != space.epoch:
                opened = self._open[key] = _Open(
                    VectorIndex(self._dimension, self._config), space.epoch, space.erasures
                )
            self._open.move_to_end(key)
        if opened.generation < space.tier(tier).generation:
            with opened.lock:
                self._refresh(connection, space, tier, opened)
            self._enforce_budget(keep=key)
        return opened.index

    def follow(self, space: Space, tier: Tier, change: TierChange) -> None:
        """Take over what a committed transaction did to a tier, so that it need not be read again.

        Left to the next refresh where the index is not that of the state before.
        """
        with self._lock:
            opened = self._open.get((space.id, tier))
        if opened is None or opened.epoch != space.epoch:
            return
        rows, vectors = np.asarray(change.rows, dtype=np.int64), np.asarray(change.vectors)
        gone = np.asarray(change.gone, dtype=np.int64)
        if len(gone):
            staying = ~np.isin(rows, gone)
            rows, vectors = rows[staying], vectors[staying]
        with opened.lock:
            if opened.generation != change.generation:
                return
            opened.index.replace(gone, rows, vectors)
            if change.rows:
                opened.last_row = max(opened.last_row, change.rows[-1])
            opened.generation = space.tier(tier).generation
        self._enforce_budget(keep=(space.id, tier))

    def _refresh(
        self, connection: sqlite3.Connection, space: Space, tier: Tier, opened: _Open
    ) -> None:
        state = space.tier(tier)
        if opened.generation >= state.generation:
            return
        if opened.generation < 0 and self.snapshots.load(
            connection, opened.index, space.id, tier, space.epoch
        ):
            opened.saved = opened.index.version
        if opened.generation < state.rewritten:
            wanted = np.fromiter(
                (row[0] for row in connection.execute(_ROWS[tier], (space.id,))), dtype=np.int64
            )
            known = opened.index.entries()
            gone = known[~np.isin(known, wanted)]
            opened.index.remove(gone, erased=opened.erasures < space.erasures)
            missing = wanted[~np.isin(wanted, known)]
            after = int(missing.min()) - 1 if len(missing) else opened.last_row
            self._load(connection, space, tier, opened, after, set(missing.tolist()))
            opened.last_row = int(wanted.max(initial=0))
        else:
            self._load(connection, space, tier, opened, opened.last_row, None)
        opened.erasures = max(opened.erasures, space.erasures)
        opened.generation = state.generation

    def _load(
        self,
        connection: sqlite3.Connection,
        space: Space,
        tier: Tier,
        opened: _Open,
        after: int,
        wanted: set[int] | None,
    ) -> None:
        if wanted is not None and not wanted:
            return
        rows: list[int] = []
        vectors: list[np.ndarray] = []
        for row, vector, checksum, name in connection.execute(_VECTORS[tier], (space.id, after)):
            if wanted is None or row in wanted:
                rows.append(row)
                vectors.append(unpack(vector or b"", checksum or 0, self._dimension, f"{name}"))
        if rows:
            matrix: Matrix = np.stack(vectors)
            opened.index.add(np.asarray(rows, dtype=np.int64), matrix)
            opened.last_row = max(opened.last_row, rows[-1])

    # Upkeep

    def due(self) -> list[VectorIndex]:
        """The indexes whose graph wants building or linking."""
        with self._lock:
            indexes = [opened.index for opened in self._open.values()]
        return [index for index in indexes if index.needs_build or index.needs_link]

    def maintain(
        self,
        *,
        everything: bool = False,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Build and link what is due in every open index."""
        with self._lock:
            indexes = [opened.index for opened in self._open.values()]
        for index in indexes:
            if stop is None or not stop.is_set():
                index.maintain(everything=everything, stop=stop, progress=progress)

    def save_evicted(self) -> None:
        """Write the graphs of indexes that gave way to others; not inside a transaction."""
        while self._evicted:
            with self._lock:
                if not self._evicted:
                    return
                key, opened = self._evicted.pop()
            self._save(key, opened)

    def save(self) -> None:
        """Write the graphs that changed since they were last written."""
        self.save_evicted()
        with self._lock:
            opened = list(self._open.items())
        for key, each in opened:
            self._save(key, each)

    def _save(self, key: tuple[int, Tier], opened: _Open) -> None:
        # Without `opened.lock`, which a writer may want while it holds the database. The graph
        # may then be newer than `generation`; loading compares it with the database anyway.
        generation, version = opened.generation, opened.index.version
        if not opened.index.linked or version == opened.saved:
            return
        if self.snapshots.save(
            opened.index, *key, generation=generation, epoch=opened.epoch, now=time.time()
        ):
            opened.saved = version

    def _enforce_budget(self, keep: tuple[int, Tier]) -> None:
        while True:
            with self._lock:
                total = sum(opened.index.size for opened in self._open.values())
                victim = next((key for key in self._open if key != keep), None)
                if total <= self._config.budget_bytes or victim is None:
                    return
                self._evicted.append((victim, self._open.pop(victim)))

    def drop(self, space: int) -> None:
        """Close the indexes of a namespace without saving them."""
        with self._lock:
            for tier in TIERS:
                self._open.pop((space, tier), None)

    def reset(self) -> None:
        """Close every index without saving it."""
        with self._lock:
            self._open.clear()
            self._evicted.clear()

    def entries(self, connection: sqlite3.Connection, space: Space, tier: Tier) -> Entries:
        """The live entries of a tier's index, for checks."""
        return self.current(connection, space, tier).entries()

    def statistics(self) -> dict[str, int]:
        """Open indexes, their bytes, their linked vectors and tombstones."""
        with self._lock:
            indexes = [opened.index for opened in self._open.values()]
        return {
            "open": len(indexes),
            "bytes": sum(index.size for index in indexes),
            "linked": sum(index.linked for index in indexes),
            "tombstones": sum(index.dead for index in indexes),
            "snapshot_bytes": self.snapshots.size(),
            "snapshot_failures": self.snapshots.failures,
        }
