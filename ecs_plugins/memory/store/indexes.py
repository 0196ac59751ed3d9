"""The vector indexes of a memory file: one per namespace over both tiers, and their snapshot.

An index is a cache. It is brought up to date from the database inside the reader's own
transaction: rows are only ever added at the end or removed, so new rows are those above the last
one known, and something was removed if the counts then differ. It makes no difference whether
this process, another thread or another process wrote.

Building an index takes some tens of milliseconds per thousand vectors. The graphs of large
namespaces are therefore kept in one file beside the database when the memory closes. It is read
only if its SHA-256 is the one in the database, so whatever happens to it costs time, not memories.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ecs_plugins.errors import EcsPluginsError, StorageError
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.database import Database, unpack
from ecs_plugins.memory.store.tiers import KnownCold, Space
from ecs_plugins.memory.store.vector_index import VectorIndex

logger = logging.getLogger(__name__)

KEPT_FROM = 5000
"""Vectors from which on a graph is saved, and built anew in the background."""

_BUDGET = 1 << 30  # bytes; the least recently used indexes are closed beyond it
_CHUNK = 1024
_MAGIC = b"ecs-plugins index 2\n"
_KEY = "snapshot"  # in `meta`: the SHA-256 of the snapshot


_Stored = dict[int, tuple[int, np.ndarray, np.ndarray]]


@dataclass(slots=True)
class OpenIndex:
    """An index and the state of the namespace that it stands for."""

    index: VectorIndex
    epoch: int
    erasures: int
    revision: int = -1
    last_row: int = 0
    cold: KnownCold = field(default_factory=dict)  # as the latest sleep phase read it
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, row: int, vector: np.ndarray) -> None:
        """Add a row that a transaction has written and not committed."""
        self.index.add(np.array([row]), vector[None])
        self.last_row = row


class Indexes:
    """The indexes of one open memory. Thread-safe.

    Args:
        database: The truth.
        dimension: Length of the vectors.
    """

    def __init__(self, database: Database, dimension: int) -> None:
        self._database = database
        self._dimension = dimension
        self._file = Path(database.path + ".hnsw")
        self._open: OrderedDict[int, OpenIndex] = OrderedDict()
        self._lock = threading.Lock()
        self.snapshot_failures = 0
        self._worn: list[VectorIndex] = []
        if not database.in_memory:
            _remove_old_snapshots(Path(database.path + ".index"))

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

    def _refresh(self, connection: sqlite3.Connection, space: Space, opened: OpenIndex) -> None:
        if opened.revision >= space.revision:
            return
        if opened.revision < 0:
            self._restore(connection, space, opened)
        index = opened.index
        self._load(connection, space, opened, "row > ?", opened.last_row)
        if len(index) != space.items or opened.erasures != space.erasures:
            wanted = np.fromiter(
                (
                    row
                    for (row,) in connection.execute(
                        "SELECT row FROM tiers WHERE namespace = ? AND live = 1", (space.id,)
                    )
                ),
                dtype=np.int64,
            )
            index.remove(np.setdiff1d(index.rows(), wanted))
            missing = np.setdiff1d(wanted, index.rows())
            if len(missing):
                rows = json.dumps(missing.tolist())
                self._load(
                    connection, space, opened, "row IN (SELECT value FROM json_each(?))", rows
                )
        if opened.erasures != space.erasures:
            index.blank()
            opened.erasures = space.erasures
        opened.revision = space.revision
        self._tidy(opened)

    def _load(
        self,
        connection: sqlite3.Connection,
        space: Space,
        opened: OpenIndex,
        where: str,
        value: object,
    ) -> None:
        found = connection.execute(
            "SELECT row, vector, vector_crc, id FROM tiers"
            f" WHERE namespace = ? AND live = 1 AND {where} ORDER BY row",
            (space.id, value),
        )
        while rows := found.fetchmany(_CHUNK):
            vectors = [
                unpack(vector, check, self._dimension, str(name)) for _, vector, check, name in rows
            ]
            opened.index.add(np.array([row[0] for row in rows]), np.stack(vectors))
            opened.last_row = max(opened.last_row, rows[-1][0])

    def _tidy(self, opened: OpenIndex) -> None:
        if not opened.index.is_worn:
            return
        if len(opened.index) < KEPT_FROM:
            opened.index.rebuild()
        else:
            self._worn.append(opened.index)

    def committed(self, space: Space) -> None:
        """Follow a transaction of this process that is on disk and whose namespace was saved."""
        opened = self._open.get(space.id)
        if opened is None or opened.epoch != space.epoch:
            return
        with opened.lock:
            opened.index.remove(np.array(space.gone, dtype=np.int64))
            for row in space.gone:
                opened.cold.pop(row, None)
            if opened.erasures != space.erasures:
                opened.index.blank()
            if opened.revision == space.revision - 1 and len(opened.index) == space.items:
                opened.revision, opened.erasures = space.revision, space.erasures
            self._tidy(opened)

    def rolled_back(self, space: Space) -> None:
        """Take back the rows of a transaction that failed; their numbers will come again."""
        opened = self._open.get(space.id)
        if opened is not None and space.written:
            with opened.lock:
                opened.index.remove(np.array(space.written, dtype=np.int64))
                opened.last_row = min(space.written) - 1

    def _enforce_budget(self, keep: int) -> None:
        while sum(each.index.size for each in self._open.values()) > _BUDGET:
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
        return {
            "open": len(indexes),
            "bytes": sum(index.size for index in indexes),
            "linked": sum(index.linked for index in indexes),
            "tombstones": sum(index.dead for index in indexes),
            "snapshot_bytes": self._file.stat().st_size if self._file.exists() else 0,
            "snapshot_failures": self.snapshot_failures,
        }

    # The snapshot

    def save(self) -> None:
        """Write the graphs of large namespaces into one file; a failure is logged, not raised.

        Under the write lock of the database: what is erased meanwhile must not get into it.
        """
        if self._database.in_memory:
            return
        with self._lock:
            large = {
                number: each
                for number, each in self._open.items()
                if len(each.index) >= KEPT_FROM and each.revision >= 0
            }
        if not large:
            return
        try:
            with self._database.write() as connection:
                digest = self._write(connection, large)
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, digest))
        except (OSError, EcsPluginsError) as error:
            self.snapshot_failures += 1
            logger.warning("the index snapshot %s could not be written: %s", self._file, error)

    def _write(self, connection: sqlite3.Connection, large: dict[int, OpenIndex]) -> str:
        entries, parts = [], []
        known = {space.id: space for space in tiers.list_spaces(connection)}
        for number, opened in large.items():
            space = known.get(number)
            if space is None or (space.epoch, space.erasures) != (opened.epoch, opened.erasures):
                continue
            rows, graph = opened.index.to_bytes()
            entries.append([number, opened.epoch, len(rows), len(graph)])
            parts += [rows.astype("<i8").tobytes(), graph.tobytes()]
        content = b"".join([_MAGIC, json.dumps(entries).encode(), b"\n", *parts])
        aside = self._file.with_name(f".{self._file.name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self._file)
        finally:
            aside.unlink(missing_ok=True)
        return hashlib.sha256(content).hexdigest()

    def _restore(self, connection: sqlite3.Connection, space: Space, opened: OpenIndex) -> None:
        if space.items < KEPT_FROM:
            return
        try:
            found = self._read(connection).get(space.id)
            if found is None or found[0] != space.epoch:
                return
            _, rows, graph = found
            opened.index.restore(rows, graph)
            opened.last_row = int(rows.max(initial=0))
        except (OSError, ValueError, RuntimeError) as error:
            logger.warning("%s cannot be used (%s); the graph is built anew", self._file, error)

    def _read(self, connection: sqlite3.Connection) -> _Stored:
        """Epoch, rows and graph of each namespace in the snapshot."""
        digest = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
        if digest is None:
            return {}
        content = self._file.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest[0] or not content.startswith(_MAGIC):
            raise ValueError("its SHA-256 is not the one that was recorded")
        start = content.index(b"\n", len(_MAGIC)) + 1
        out = {}
        for number, epoch, count, size in json.loads(content[len(_MAGIC) : start]):
            middle = start + 8 * count
            rows = np.frombuffer(content[start:middle], dtype="<i8").astype(np.int64)
            out[number] = epoch, rows, np.frombuffer(content[middle : middle + size], np.uint8)
            start = middle + size
        return out

    def problems(self, connection: sqlite3.Connection) -> list[str]:
        """What is wrong with the snapshot; it would be built anew."""
        try:
            self._read(connection)
        except (OSError, ValueError) as error:
            return [f"the index snapshot {self._file.name} cannot be used: {error}"]
        return []

    def forget_snapshot(self, connection: sqlite3.Connection) -> bool:
        """Take the snapshot out of the database; `remove_file` follows the commit."""
        return bool(connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,)).rowcount)

    def remove_file(self) -> None:
        """Delete the snapshot, finished or not.

        Raises:
            StorageError: It could not be deleted.
        """
        if self._database.in_memory:
            return
        try:
            for file in self._file.parent.iterdir():
                if file.name.lstrip(".").startswith(self._file.name):
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"the snapshot of erased memories could not be deleted: {error}; "
                f"delete {self._file}"
            ) from error


def _remove_old_snapshots(folder: Path) -> None:
    """Delete the snapshots that version 0.1.0 kept in a folder: they hold vectors."""
    if folder.is_dir():
        for file in folder.glob("*.hnsw*"):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # of somebody else's files
            folder.rmdir()
