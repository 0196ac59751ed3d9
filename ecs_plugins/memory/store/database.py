"""The truth: one SQLite file, its connections, its transactions, its upgrades, its checksums.

What is guaranteed: a transaction that returned is on disk (``synchronous="full"``) and whole;
one that raised left nothing. Readers never wait for the writer (write-ahead log); writers of
this process queue on a lock, those of other processes on SQLite's, up to ``busy_timeout``.
Connections are pooled, one user at a time each, and idle ones are closed before a ``fork``.
Deleted content is overwritten (``secure_delete``), and `Database.scrub` takes it out of the
write-ahead log too.

A process holds POSIX locks per file, and closing any descriptor of the file drops all of them. So
while a memory is open, nothing but SQLite may open its files: see `refuse_open_database`.

Vectors are stored as little-endian float32 bytes. A CRC-32 beside each vector and each text tells
a flipped bit from a stored value, which neither SQLite nor FAISS would notice.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ecs_plugins.common import sqlite
from ecs_plugins.common.sqlite import MEMORY as MEMORY
from ecs_plugins.common.sqlite import ConnectionPool, translated
from ecs_plugins.common.sqlite import refuse_open_database as refuse_open_database
from ecs_plugins.errors import StorageError
from ecs_plugins.memory.config import Synchronous
from ecs_plugins.memory.store import schema
from ecs_plugins.memory.types import Matrix, Vector

_CACHE_KIB = 16384  # per connection, so that a recall finds the upper levels of every tree


class Database:
    """A memory file and its connections. Thread-safe; safe over ``fork``.

    Args:
        path: The file, or ``":memory:"`` for a database that lives and dies with this object.
        synchronous: ``"full"`` (every commit survives a power cut) or ``"normal"`` (a power cut
            may lose the last commits, never the file).
        busy_timeout: Seconds to wait for another writer.

    Raises:
        StorageError: The file cannot be opened, is not a memory file, or is of a newer version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "full",
        busy_timeout: float = 30.0,
    ) -> None:
        self.path = os.fspath(path)
        self.in_memory = self.path == MEMORY
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        if not self.in_memory:
            sqlite.create_private(self.path)
        self._pool = ConnectionPool(self.path, self._connect)
        with translated(self.path):
            self._migrate()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            if not self.in_memory:
                connection.execute("PRAGMA journal_mode=WAL").fetchone()
            connection.execute(f"PRAGMA synchronous={self._synchronous.upper()}")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA secure_delete=ON").fetchone()
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            connection.execute("PRAGMA trusted_schema=OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self) -> None:
        # Looking first keeps a file that needs nothing open to readers while others write.
        with self.read() as connection:
            if self._version(connection) == schema.VERSION:
                return
        with self.write() as connection:
            version = self._version(connection)
            if version < schema.VERSION:
                schema.upgrade(connection, version)

    def _version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        if application != schema.APPLICATION_ID and (application or version or tables):
            raise StorageError(
                f"{self.path} is an SQLite database of something else; choose another path"
            )
        if version > schema.VERSION:
            raise StorageError(
                f"{self.path} was written by a newer version of this package (schema {version}, "
                f"this version knows {schema.VERSION}); upgrade ecs-plugins"
            )
        return version

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: a single, consistent view of the file."""
        with translated(self.path), self._pool.connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one immediate transaction; committed unless the block raises.

        Compute before, write inside: other writers wait meanwhile.
        """
        pool = self._pool
        if not pool.writer.acquire(timeout=self._busy_timeout):
            raise StorageError(
                f"{self.path}: another thread writes for more than "
                f"{self._busy_timeout} s; retry, or raise busy_timeout"
            )
        try:
            with translated(self.path), pool.connection() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    # SQLite has rolled back by itself after some errors (full disk).
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        finally:
            pool.writer.release()

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted content out of the write-ahead log, and with ``vacuum`` out of every page.

        Returns:
            Whether the log is empty now; False if a reader in another process still needs it, in
            which case a later checkpoint empties it.
        """
        if self.in_memory:
            return True
        with translated(self.path), self._pool.writer, self._pool.connection() as connection:
            if vacuum:
                connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not busy

    def integrity(self) -> Sequence[str]:
        """What SQLite's own checks find; empty when all is well."""
        with translated(self.path), self._pool.connection() as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            broken = [
                f"foreign key of {row[0]} row {row[1]} points nowhere in {row[2]}"
                for row in connection.execute("PRAGMA foreign_key_check")
            ]
        return [line for line in found if line != "ok"] + broken

    def size(self) -> int:
        """Bytes of the database, its log included."""
        if self.in_memory:
            with self.read() as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])
        files = (Path(self.path + suffix) for suffix in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Close every connection; those in use close when their user is done."""
        self._pool.close()


_TYPE = np.dtype("<f4")


def pack(vector: Vector | Matrix) -> bytes:
    """The bytes of a vector."""
    return np.ascontiguousarray(vector, dtype=_TYPE).tobytes()


def unpack(data: bytes, checksum: int, dimension: int, what: str) -> Vector:
    """The vector behind bytes.

    Raises:
        StorageError: The bytes are not those that were written.
    """
    if len(data) != _TYPE.itemsize * dimension or zlib.crc32(data) != checksum:
        raise damaged(what, "vector", "reembed() computes it anew from the text")
    return np.frombuffer(data, dtype=_TYPE)


def checked_text(text: str, checksum: int, what: str) -> str:
    """A stored text.

    Raises:
        StorageError: It is not the one that was written.
    """
    if crc(text) != checksum:
        raise damaged(what, "text", "restore a backup, or delete it")
    return text


def damaged(what: str, part: str, remedy: str) -> StorageError:
    """The error for stored content that does not match its checksum."""
    return StorageError(f"the stored {part} of {what} does not match its checksum; {remedy}")


def crc(content: bytes | str) -> int:
    """CRC-32 of bytes, or of a text's UTF-8."""
    return zlib.crc32(content.encode() if isinstance(content, str) else content)


dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Compact JSON."""
