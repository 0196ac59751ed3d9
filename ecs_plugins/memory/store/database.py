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
import random
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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

_BIRTH = 2.0  # seconds that a new file may be empty
_RETRY = 0.0002, 0.002  # seconds between attempts to get the write lock
_TABLE_LEAF = 13  # the first byte of such a page
_PART = 16  # bytes of erased content that count as found
_LARGEST_SCAN = 1 << 30  # bytes of a file that is looked through
_LARGEST_SEARCH = 1 << 33  # bytes of slack times bytes of erased content
_CACHE_KIB = 16384  # per connection, so that a recall finds the upper levels of every tree


@dataclass(slots=True)
class Transaction:
    """What a thread has begun; `ends` are called when it is over, with whether it was committed."""

    connection: sqlite3.Connection
    writes: bool
    committed: bool = False
    ends: list[Callable[[bool], object]] = field(default_factory=list)


class Database:
    """A memory file and its connections; see `StoreConfig`. Thread-safe; safe over ``fork``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "full",
        busy_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self.read_only = read_only
        self.in_memory = self.path == MEMORY
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._here = threading.local()
        if read_only or not (self.in_memory or sqlite.create_private(self.path)):
            self._refuse_empty()
        self._pool = ConnectionPool(self.path, self._connect)
        with translated(self.path):
            self._migrate()

    def _refuse_empty(self) -> None:
        """Refuse a file of no bytes: it was cut off, unless somebody else is making it now."""
        deadline = time.monotonic() + min(self._busy_timeout, _BIRTH)
        try:
            while Path(self.path).stat().st_size == 0:
                if time.monotonic() >= deadline:
                    raise StorageError(
                        f"{self.path} is empty, which no memory ever is: it was cut off. Restore a "
                        "backup, or delete it to begin a new memory"
                    )
                time.sleep(0.01)
        except FileNotFoundError as error:
            raise StorageError(f"there is no memory file {self.path}; check the path") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{Path(self.path).absolute().as_uri()}?mode=ro" if self.read_only else self.path,
            uri=self.read_only,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            if not (self.in_memory or self.read_only):
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
            version = self._version(connection)
        if version == schema.VERSION:
            return
        if self.read_only:
            raise StorageError(
                f"{self.path} has schema {version}, not {schema.VERSION}; open it once for "
                "writing, which upgrades it"
            )
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
        """A connection inside one read transaction: a single, consistent view of the file.

        Within a transaction of the same thread it is that one.
        """
        if self._open is not None:
            yield self._open.connection
            return
        with translated(self.path), self._pool.connection() as connection:
            connection.execute("BEGIN")
            self._here.transaction = Transaction(connection, writes=False)
            try:
                yield connection
            finally:
                self._here.transaction = None
                connection.execute("ROLLBACK")

    @contextmanager
    def write(self, *, wait: bool = True) -> Iterator[sqlite3.Connection]:
        """A connection inside one immediate transaction; committed unless the block raises.

        Compute before, write inside: other writers wait meanwhile. Within a write transaction of
        the same thread it is that one, which is committed or rolled back as a whole.

        Args:
            wait: Whether to wait for other writers, up to ``busy_timeout``.
        """
        if self.is_writing:
            yield self._here.transaction.connection
            return
        if self.read_only:
            raise StorageError(f"{self.path} is open for reading only; nothing was written")
        pool, outer = self._pool, self._open
        patience = self._busy_timeout if wait else 0.0
        if not pool.writer.acquire(timeout=patience):
            raise StorageError(
                f"{self.path}: another thread writes for more than {patience} s; retry, "
                "or raise busy_timeout"
            )
        done: Transaction | None = None
        try:
            with translated(self.path), pool.connection() as connection:
                self._begin_writing(connection, patience)
                done = Transaction(connection, writes=True)
                self._here.transaction = done
                try:
                    yield connection
                    connection.execute("COMMIT")
                    done.committed = True
                finally:
                    self._here.transaction = outer
                    # SQLite has rolled back by itself after some errors (full disk).
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        finally:
            pool.writer.release()
            if done is not None:
                for end in done.ends:
                    end(done.committed)

    def _begin_writing(self, connection: sqlite3.Connection, patience: float) -> None:
        """Take the file's write lock.

        SQLite itself would wait longer after every refusal, and so prefer whoever came last.
        """
        deadline = time.monotonic() + patience
        connection.execute("PRAGMA busy_timeout=0")
        try:
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() >= deadline:
                        raise
                time.sleep(random.uniform(*_RETRY))
        finally:
            connection.execute(f"PRAGMA busy_timeout={round(1000 * self._busy_timeout)}")

    @property
    def _open(self) -> Transaction | None:
        """The transaction of this thread."""
        return getattr(self._here, "transaction", None)

    @property
    def is_writing(self) -> bool:
        """Whether this thread is inside a write transaction."""
        return self._open is not None and self._open.writes

    def on_end(self, end: Callable[[bool], object]) -> None:
        """Call a function once the write transaction of this thread is over, or now without one.

        It gets whether the transaction was committed.
        """
        if self.is_writing:
            self._here.transaction.ends.append(end)
        else:
            end(True)

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

    def backup(self, target: Path) -> None:
        """Write a copy as of now, while others read and write: whole, or not there at all."""
        aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        sqlite.create_private(str(aside))
        try:
            with translated(self.path), self._pool.connection() as connection:
                connection.execute("VACUUM INTO ?", (str(aside),))
            with aside.open("rb+") as copy:  # SQLite does not flush it to disk
                os.fsync(copy.fileno())
            os.link(aside, target)  # which replaces nothing
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(f"cannot write {target}: {reason}; name a new file") from error
        finally:
            aside.unlink(missing_ok=True)

    def has_slack(self, erased: Sequence[bytes]) -> bool:
        """Whether parts of what was erased stand between the cells of a page.

        SQLite overwrites a cell that is deleted, but not the copy that stays behind when a tree is
        balanced and the cell moves to another page. What cannot be looked through counts as True.
        """
        if self.in_memory:
            return False
        if self.size() > _LARGEST_SCAN:
            return True
        with self.read() as connection:
            gaps = b"".join(_gaps(connection.serialize(), _page_size(connection)))
        if len(gaps) * sum(map(len, erased)) > _LARGEST_SEARCH:
            return True
        return any(
            data[at : at + _PART] in gaps
            for data in erased
            for at in range(0, max(1, len(data) - _PART + 1), _PART)
            if data
        )

    def integrity(self, connection: sqlite3.Connection) -> Sequence[str]:
        """What SQLite's own checks find; empty when all is well."""
        with translated(self.path):
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


def _page_size(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_size").fetchone()[0])


def _gaps(file: bytes, size: int) -> Iterator[bytes]:
    """What is not zero between the pointers and the cells of each leaf of a table."""
    for page in range(0, len(file), size):
        head = page + (100 if page == 0 else 0)
        if file[head] == _TABLE_LEAF:
            start = head + 8 + 2 * int.from_bytes(file[head + 3 : head + 5])
            gap = file[start : page + int.from_bytes(file[head + 5 : head + 7])]
            if stale := gap.strip(b"\0"):
                yield stale + b"\0"


_TYPE = np.dtype("<f4")


def pack(vector: Vector | Matrix) -> bytes:
    """The bytes of a vector."""
    return np.ascontiguousarray(vector, dtype=_TYPE).tobytes()


def packed(vector: Vector) -> tuple[bytes, int]:
    """The bytes of a vector, and their checksum."""
    data = pack(vector)
    return data, crc(data)


def unpack(data: bytes, checksum: int, dimension: int, what: str) -> Vector:
    """The vector behind bytes, if they are those that were written; else a `StorageError`."""
    if len(data) != _TYPE.itemsize * dimension or zlib.crc32(data) != checksum:
        raise damaged(what, "vector", "reembed() computes it anew from the text")
    return np.frombuffer(data, dtype=_TYPE)


def checked_text(text: str, checksum: int, what: str, asked: str = "") -> str:
    """A stored text, whose checksum is that of the question that it replies to and of itself."""
    if crc(asked + text) != checksum:
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
