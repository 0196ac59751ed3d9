"""Graphs on disk: files beside the database, so that opening it need not build them again.

A file is written aside, flushed, renamed, and only then named in the database together with its
SHA-256. So a file that the database does not name, or that does not hash to what it says, is
never read, and whatever happens to these files costs time, not memories. A snapshot holds
vectors: erasing a message removes the snapshots of its namespace.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.store import spaces
from ecs_plugins.memory.store.database import Database
from ecs_plugins.memory.store.index import Entries, VectorIndex
from ecs_plugins.memory.types import Tier

logger = logging.getLogger(__name__)

_MAGIC = b"ecs-plugins index 1\n"


class SnapshotStore:
    """The snapshot files of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.directory = Path(database.path + ".index")
        self.failures = 0
        """Snapshots that could not be written; the graph is built anew at the next opening."""

    def save(
        self, index: VectorIndex, space: int, tier: Tier, *, generation: int, epoch: int, now: float
    ) -> bool:
        """Write the graph of an index; a failure is logged and counted, not raised.

        Returns:
            Whether it was written.
        """
        if self._database.in_memory or index.holds_erased:
            return False
        content = index.graph_bytes()
        if content is None:
            return False
        name = f"{space}-{tier}-{secrets.token_hex(6)}.hnsw"
        try:
            digest, size = self._write(name, *content)
            if self._register(
                space, tier, name, digest, size, generation=generation, epoch=epoch, now=now
            ):
                self._remove_files(f"{space}-{tier}-", keep=name)
                return True
            (self.directory / name).unlink(missing_ok=True)
        except (OSError, StorageError) as error:
            self.failures += 1
            logger.warning(
                "the index snapshot %s could not be written (%s); "
                "nothing is lost, the graph is built anew when the memory is next opened",
                name,
                error,
            )
            self._discard(name)
        return False

    def _discard(self, name: str) -> None:
        for leftover in (self.directory / name, self.directory / f".{name}"):
            try:
                leftover.unlink(missing_ok=True)
            except OSError:
                logger.warning("the file %s could not be removed; delete it", leftover)

    def _write(self, name: str, graph: npt.NDArray[np.uint8], entries: Entries) -> tuple[str, int]:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        header = json.dumps({"entries": len(entries), "graph": int(graph.nbytes)}).encode() + b"\n"
        parts = (_MAGIC, header, entries.astype("<i8").tobytes(), graph.data)
        digest = hashlib.sha256()
        aside = self.directory / f".{name}"
        descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                digest.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        aside.replace(self.directory / name)
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return digest.hexdigest(), size

    def _register(
        self,
        space: int,
        tier: Tier,
        name: str,
        digest: str,
        size: int,
        *,
        generation: int,
        epoch: int,
        now: float,
    ) -> bool:
        with self._database.write() as connection:
            current = spaces.by_id(connection, space)
            # What was removed after the copy was taken may have been erased: do not keep it.
            if (
                current is None
                or current.tier(tier).rewritten > generation
                or current.epoch != epoch
            ):
                return False
            connection.execute(
                "INSERT OR REPLACE INTO snapshots"
                " (namespace, tier, epoch, file, sha256, size, created) VALUES (?,?,?,?,?,?,?)",
                (space, tier, epoch, name, digest, size, now),
            )
        return True

    def load(
        self, connection: sqlite3.Connection, index: VectorIndex, space: int, tier: Tier, epoch: int
    ) -> bool:
        """Restore the graph of an empty index, if there is a snapshot and it is whole."""
        row = connection.execute(
            "SELECT file, sha256, epoch FROM snapshots WHERE namespace = ? AND tier = ?",
            (space, tier),
        ).fetchone()
        if row is None or row[2] != epoch:
            return False
        name, digest = str(row[0]), str(row[1])
        try:
            content = (self.directory / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError("its SHA-256 is not the one that was recorded")
            if not content.startswith(_MAGIC):
                raise ValueError("it is of another format")
            end = content.index(b"\n", len(_MAGIC)) + 1
            header = json.loads(content[len(_MAGIC) : end])
            split = end + 8 * int(header["entries"])
            entries = np.frombuffer(content[end:split], dtype="<i8")
            graph = np.frombuffer(content[split:], dtype=np.uint8)
            index.restore(graph, entries.astype(np.int64))
        except (OSError, ValueError, RuntimeError) as error:
            logger.warning(
                "the index snapshot %s cannot be used (%s); the graph is built anew", name, error
            )
            return False
        return True

    def check(self, connection: sqlite3.Connection) -> list[str]:
        """What is wrong with the recorded snapshots; each of them would be rebuilt."""
        problems = []
        for name, digest in connection.execute("SELECT file, sha256 FROM snapshots"):
            try:
                content = (self.directory / name).read_bytes()
            except OSError as error:
                problems.append(f"index snapshot {name} cannot be read: {error}")
                continue
            if hashlib.sha256(content).hexdigest() != digest:
                problems.append(f"index snapshot {name} does not match its SHA-256")
        return problems

    def remove(self, connection: sqlite3.Connection, space: int) -> int:
        """Take a namespace's snapshots out of the database; `remove_files` follows the commit."""
        cursor = connection.execute("DELETE FROM snapshots WHERE namespace = ?", (space,))
        return cursor.rowcount

    def remove_files(self, space: int) -> None:
        """Delete every snapshot file of a namespace, finished or not.

        Raises:
            StorageError: A file could not be deleted.
        """
        try:
            self._remove_files(f"{space}-")
        except OSError as error:
            raise StorageError(
                f"a snapshot of erased memories could not be deleted: {error}; "
                f"delete the folder {self.directory}"
            ) from error

    def remove_unknown(self, known: Collection[str]) -> None:
        """Delete files that the database does not name; a writer that is at it writes anew."""
        if self.directory.is_dir():
            for file in self.directory.iterdir():
                if file.name not in known:
                    file.unlink(missing_ok=True)

    def _remove_files(self, stem: str, *, keep: str = "") -> None:
        if not self.directory.is_dir():
            return
        for file in self.directory.iterdir():
            if file.name.lstrip(".").startswith(stem) and file.name != keep:
                file.unlink(missing_ok=True)

    def size(self) -> int:
        """Bytes of all snapshot files."""
        if not self.directory.is_dir():
            return 0
        return sum(file.stat().st_size for file in self.directory.iterdir() if file.is_file())
