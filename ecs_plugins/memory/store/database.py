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

import contextlib
import json
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.config import Synchronous
from ecs_plugins.memory.store import schema
from ecs_plugins.memory.types import Matrix, Vector

MEMORY = ":memory:"

_CACHE_KIB = 16384  # per connection, so that a recall finds the upper levels of every tree

_ADVICE = {
    "SQLITE_BUSY": "another process holds the write lock; retry, or raise busy_timeout",
    "SQLITE_LOCKED": "another connection holds the write lock; retry, or raise busy_timeout",
    "SQLITE_FULL": "the disk (or the page limit) is full; free space and retry",
    "SQLITE_READONLY": "the file or its directory is read-only; make both writable",
    "SQLITE_CANTOPEN": "make sure that the directory exists and is writable",
    "SQLITE_NOTADB": "choose another path",
    "SQLITE_CORRUPT": "the file is damaged; restore a backup or an export",
    "SQLITE_IOERR": "the disk failed or is full; check it and retry",
}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's operational errors into `StorageError` with what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if not isinstance(error, sqlite3.OperationalError) and type(error) is not (
            sqlite3.DatabaseError
        ):
            raise  # a violated constraint or a wrong statement is a bug, not a failing disk
        name = getattr(error, "sqlite_errorname", None) or ""
        advice = next((_ADVICE[each] for each in _ADVICE if name.startswith(each)), None)
        raise StorageError(f"{path}: {error}; {advice or 'nothing was written'}") from error


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
        self._real_path = os.path.realpath(self.path)
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._closed = False
        self._reset()
        if not self.in_memory:
            self._create_file()
        _open_databases.add(self)
        with translated(self.path):
            self._migrate()

    def _reset(self) -> None:
        self._pool: list[sqlite3.Connection] = []
        self._pool_lock = threading.Condition()
        self._writer = threading.Lock()
        self._lent = 0
        self._pid = os.getpid()

    def _create_file(self) -> None:
        # Created here and not by SQLite so that what an agent remembers is private from birth;
        # SQLite gives the log and its index the same mode.
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            # Only a file that is new may be opened and closed here: closing a descriptor of an
            # existing one would drop the locks that other connections of this process hold on it.
            # The lock keeps a second opening away until the new file's descriptor is closed.
            with _creating, contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise StorageError(
                f"cannot open {self.path}: {error}; make its directory writable"
            ) from error

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

    def _borrow(self) -> sqlite3.Connection:
        with self._pool_lock:
            if self._closed:
                raise StorageError(f"{self.path} is closed; open it again")
            if self._real_path in _unusable:
                raise StorageError(
                    f"{self.path} was in use in another thread when this process was forked; "
                    "fork before the memory is used, or start processes with 'spawn'"
                )
            # A private in-memory database exists only inside its one connection.
            while self.in_memory and self._lent and not self._pool:
                self._pool_lock.wait()
            self._lent += 1
            if self._pool:
                return self._pool.pop()
        try:
            return self._connect()
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, connection: sqlite3.Connection | None) -> None:
        with self._pool_lock:
            self._lent -= 1
            if connection is not None:
                if self._closed:
                    connection.close()
                else:
                    self._pool.append(connection)
            self._pool_lock.notify_all()

    def _close_idle(self) -> None:
        # With the lock of the pool held, so that nothing is lent meanwhile.
        self._pool_lock.wait_for(lambda: not self._lent, _FORK_WAIT)
        while self._pool:
            self._pool.pop().close()

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = self._borrow()
        try:
            yield connection
        finally:
            self._give_back(connection)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: a single, consistent view of the file."""
        with translated(self.path), self._connection() as connection:
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
        if not self._writer.acquire(timeout=self._busy_timeout):
            raise StorageError(
                f"{self.path}: another thread writes for more than "
                f"{self._busy_timeout} s; retry, or raise busy_timeout"
            )
        try:
            with translated(self.path), self._connection() as connection:
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
            self._writer.release()

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted content out of the write-ahead log, and with ``vacuum`` out of every page.

        Returns:
            Whether the log is empty now; False if a reader in another process still needs it, in
            which case a later checkpoint empties it.
        """
        if self.in_memory:
            return True
        with translated(self.path), self._writer, self._connection() as connection:
            if vacuum:
                connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not busy

    def integrity(self) -> Sequence[str]:
        """What SQLite's own checks find; empty when all is well."""
        with translated(self.path), self._connection() as connection:
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
        with self._pool_lock:
            self._closed = True
            pool, self._pool = self._pool, []
        for connection in pool:
            connection.close()


def refuse_open_database(path: str | os.PathLike[str]) -> None:
    """Refuse to touch a file that an open memory of this process stands in.

    Raises:
        StorageError: ``path`` is a file of an open memory, or its log.
    """
    if not Path(path).exists():
        return
    for database in list(_open_databases):
        if database.in_memory or database._closed:
            continue
        for file in (Path(database.path + suffix) for suffix in ("", "-wal", "-shm")):
            if file.exists() and file.samefile(path):
                raise StorageError(
                    f"{path} belongs to a memory that is open; close it first, or name another file"
                )


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_creating = threading.Lock()
_forking = threading.Lock()
_held: list[Database] = []
_unusable: set[str] = set()  # files whose connections were in use while this child was forked

_FORK_WAIT = 5.0  # seconds to wait for connections that other threads use


def _before_fork() -> None:
    # SQLite remembers in the process which locks it holds, and a child inherits that memory
    # without the locks: what it then writes is lost as soon as the parent closes. So no connection
    # to a file crosses a fork: idle ones are closed, and a file of which one is in use is closed
    # to the child (`_borrow`). Both sides connect anew when they next need to.
    _forking.acquire()
    _creating.acquire()
    for database in list(_open_databases):
        database._pool_lock.acquire()
        _held.append(database)
        if not database.in_memory:
            database._close_idle()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop()._pool_lock.release()
    _creating.release()
    _forking.release()


def _after_fork_in_child() -> None:
    global _creating, _forking
    _creating, _forking = threading.Lock(), threading.Lock()
    while _held:
        database = _held.pop()
        pool, lent, closed = database._pool, database._lent, database._closed
        database._reset()
        database._closed = closed
        if database.in_memory:
            database._pool = pool
        elif lent:
            _unusable.add(database._real_path)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


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
