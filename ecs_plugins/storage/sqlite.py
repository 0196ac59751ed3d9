"""SQLite files.

What is guaranteed: a transaction that returned is on disk (``synchronous="full"``) and whole;
one that raised left nothing. Readers never wait for the writer (write-ahead log); writers of
this process queue on a lock, those of other processes on SQLite's, up to ``busy_timeout``.
Deleted content is overwritten (``secure_delete``), and `Database.scrub` takes it out of the
write-ahead log too.

Two rules of POSIX locks hold for every database file of the package:

* No connection to a file crosses a fork: see `ecs_plugins.storage.base`.
* A process holds its locks per file, and closing any descriptor of the file drops all of them.
  So nothing but SQLite may open a file while it is open here: see
  `ecs_plugins.common.files.refuse_open_database`.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ecs_plugins.common import files
from ecs_plugins.errors import StorageError
from ecs_plugins.storage import places
from ecs_plugins.storage.base import (
    Connection,
    DiskFullError,
    Schema,
    Scope,
    SqlDatabase,
    Synchronous,
    register,
)

MEMORY = ":memory:"

_SUFFIXES = ("", "-wal", "-shm")
"""Behind the path of a database: itself, its log, the index of its log."""

_FORK_WAIT = 5.0
"""Seconds that a fork waits for connections that other threads use."""

_READERS_WAIT = 1.0
"""Seconds that a checkpoint waits for readers of an older state."""

_RETRY = (0.0002, 0.002)
"""Seconds between attempts to get the write lock: at least, at most."""

_CACHE_KIB = 16384
"""Cache of a connection, so that the upper levels of every tree are found there."""

_opening = threading.Lock()
"""Held while a file that nobody in this process has open is looked at."""

_unusable: set[str] = set()
"""Files whose connections were in use while this child was forked."""

_FULL = ("SQLITE_FULL", "SQLITE_IOERR")
_BUSY = "another connection holds the write lock; retry, or raise busy_timeout where there is one"
_ADVICE = {
    "SQLITE_BUSY": _BUSY,
    "SQLITE_LOCKED": _BUSY,
    "SQLITE_FULL": "the disk (or the page limit) is full; free space and retry",
    "SQLITE_READONLY": "the file or its directory is read-only; make both writable",
    "SQLITE_CANTOPEN": "make sure that the directory exists and is writable",
    "SQLITE_NOTADB": "choose another path",
    "SQLITE_CORRUPT": "the file is damaged; restore a backup or an export",
    "SQLITE_IOERR": "the disk failed or is full; check it and retry",
}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's operational errors into `StorageError` with advice."""
    try:
        yield
    except UnicodeDecodeError as error:  # of a damaged name in a message of SQLite
        raise StorageError(f"{path}: {error}; {_ADVICE['SQLITE_CORRUPT']}") from error
    except sqlite3.DatabaseError as error:
        if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
            raise  # a violated constraint or a wrong statement is a bug, not a failing disk
        name = getattr(error, "sqlite_errorname", None) or ""
        kind = DiskFullError if name.startswith(_FULL) else StorageError
        raise kind(f"{path}: {error}; {_advice(error)}") from error


def _advice(error: sqlite3.DatabaseError) -> str:
    """Return the advice for an error of SQLite."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for prefix, advice in _ADVICE.items():
        if name.startswith(prefix):
            return advice
    return "nothing was written"


class Database(SqlDatabase):
    """A file, or ``":memory:"``, and its connections, each lent to one user at a time.

    Thread-safe; safe over ``fork``. A database in memory lives in one connection.

    Args:
        path: The file, made if missing unless it is only read.
        schema: What it holds.
        synchronous: ``"normal"`` survives a crash of the process; a power cut may lose the latest.
        busy_timeout: Seconds to wait for other writers.
        read_only: Write nothing.

    Raises:
        StorageError: The file cannot be opened, holds something else, or is of a newer version.
    """

    rows_rise = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        *,
        synchronous: Synchronous = "full",
        busy_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        super().__init__(os.fspath(path), read_only=read_only)
        self.in_memory = self.path == MEMORY
        self._schema = schema
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._real_path = os.path.realpath(self.path)
        self._place: places.Place | None = None
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._reset()
        if not self.in_memory:
            self._settle_file()
        register(self)
        try:
            with translated(self.path):
                self._migrate()
        except BaseException:
            self.close()
            raise
        self._keep_reserve()

    def _settle_file(self) -> None:
        """Create a missing file, and check the kind of the file before SQLite opens it."""
        if not self.read_only:
            places.make_folder(self.path)
            places.delete_left_copies(Path(self.path).parent)
            if places.place_of(self.path) is None:
                with translated(self.path):
                    places.make_whole(self.path, self._schema)
        # Nobody in this process may open the file between the look and the first connection.
        with _opening:
            if not files.is_open_database(self.path):
                places.check(self.path, self._schema.kind)
            self._place = places.place_of(self.path)
            files.open_databases.add(self)

    def _refuse_other_file(self) -> None:
        """Refuse to go on with a file that is not the one of this path any more."""
        if self.in_memory or places.place_of(self.path) == self._place:
            return
        raise StorageError(
            f"{self.path} was deleted or replaced while it was open, and nothing is read from it "
            "or written to it any more; close this and open what is there now, or a backup"
        )

    def _connect(self) -> sqlite3.Connection:
        target = self.path
        if self.read_only:
            target = f"{Path(self.path).absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(
            target,
            uri=self.read_only,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            if not (self.in_memory or self.read_only):
                self._version(connection)  # somebody else's file stays as it is
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
        if version == self._schema.version:
            return
        if self.read_only:
            raise StorageError(
                f"{self.path} has schema {version}, not {self._schema.version}; open it once for "
                "writing, which upgrades it"
            )
        with self.write() as connection:
            places.migrate(connection, self._schema, self._version(connection))

    def _version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        is_new = not (mark or version or tables)
        if mark != self._schema.application_id and not is_new:
            raise StorageError(
                f"{self.path} is an SQLite database of something else; choose another path"
            )
        self._schema.check(version, self.path)
        return version

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with translated(self.path), self.connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def _writing(self, wait: bool, scope: Scope) -> Iterator[sqlite3.Connection]:
        del scope  # one writes at a time
        writer = self._writer
        patience = self._busy_timeout if wait else 0.0
        if not writer.acquire(timeout=patience):
            raise StorageError(
                f"{self.path}: another thread writes for more than {patience} s; retry, "
                "or raise busy_timeout"
            )
        try:
            with translated(self.path), self.connection() as connection:
                self._begin_writing(connection, patience)
                try:
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    # SQLite has rolled back by itself after some errors (full disk).
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        finally:
            writer.release()

    def _begin_writing(self, connection: sqlite3.Connection, patience: float) -> None:
        """Take the file's write lock.

        SQLite itself would wait longer after every refusal, and so prefer whoever came last.
        """
        deadline = time.monotonic() + patience
        with self._waiting(connection, 0.0):
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() >= deadline:
                        raise
                time.sleep(random.uniform(*_RETRY))

    @contextmanager
    def _waiting(self, connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
        """Let a connection wait ``seconds`` for other connections, at most the busy timeout."""
        least = min(seconds, self._busy_timeout)
        connection.execute(f"PRAGMA busy_timeout={round(1000 * least)}")
        try:
            yield
        finally:
            connection.execute(f"PRAGMA busy_timeout={round(1000 * self._busy_timeout)}")

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted content out of the write-ahead log, and with ``vacuum`` out of every page.

        Returns:
            Whether the log is empty now; False if a reader in another process still needs it
            after a second, in which case a later checkpoint empties it.
        """
        if self.in_memory:
            return True
        places.delete_left_copies(Path(self.path).parent)
        with translated(self.path), self._writer, self.connection() as connection:
            if vacuum:
                connection.execute("VACUUM")
            with self._waiting(connection, _READERS_WAIT):
                busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        self._keep_reserve()
        return not busy

    def _keep_reserve(self) -> None:
        if self._schema.has_reserve and not (self.in_memory or self.read_only):
            places.keep_reserve(self.path)

    def make_room(self) -> None:
        """Release the reserve, and empty the write-ahead log into the file."""
        if self.in_memory:
            return
        places.release_reserve(self.path)
        with suppress(StorageError), translated(self.path), self._writer, self.connection() as held:
            held.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def backup(self, target: Path) -> None:
        """Write a copy as of now, while others read and write: whole, or absent."""
        if not target.name:
            raise StorageError(f"{str(target)!r} names no file; name one")
        try:
            with self._copy_for(target) as copy:
                places.publish(copy, target)
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(f"cannot write {target}: {reason}; name a new file") from error

    def restore_to(self, target: Path) -> None:
        """Replace a database that nobody has open by a copy of this one.

        Raises:
            StorageError: Another connection has it open, or the copy cannot be written.
        """
        files.refuse_open_database(target)
        places.make_folder(str(target))
        try:
            with places.alone(target), self._copy_for(target) as copy:
                places.replace(copy, target)
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(f"cannot write {target}: {reason}; free some space") from error

    @contextmanager
    def _copy_for(self, target: Path) -> Iterator[Path]:
        """Write a copy as of now in the folder of a target; delete it unless it was moved."""
        with places.private_copy(target) as copy:
            with translated(self.path), self.connection() as connection:
                connection.execute("VACUUM INTO ?", (str(copy),))
            yield copy

    def integrity(self, connection: Connection) -> Sequence[str]:
        """Return the faults that SQLite's own checks find."""
        with translated(self.path):
            report = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
        problems = [line for line in report if line != "ok"]
        for table, row, target, _key in dangling:
            problems.append(f"foreign key of {table} row {row} points nowhere in {target}")
        return problems

    def size(self) -> int:
        """Return the bytes of the database, its log included."""
        if self.in_memory:
            with self.read() as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])
        return sum(file.stat().st_size for file in self._files())

    def _files(self) -> list[Path]:
        files = (Path(self.path + suffix) for suffix in _SUFFIXES)
        return [file for file in files if file.exists()]

    def _reset(self) -> None:
        self._lent = 0
        self._lock = threading.Condition()
        self._writer = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection, opened if none is idle.

        Raises:
            StorageError: The database is closed, here or to this forked child.
        """
        connection = self._borrow()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _borrow(self) -> sqlite3.Connection:
        with self._lock:
            while self.in_memory and self._lent and not self._closed:
                self._lock.wait()
            if self._closed:
                raise StorageError(f"{self.path} is closed; open it again")
            if self._real_path in _unusable:
                raise StorageError(
                    f"{self.path} was in use in another thread when this process was forked; "
                    "fork before the file is used, or start processes with 'spawn'"
                )
            self._lent += 1
            idle = self._idle.pop() if self._idle else None
        try:
            self._refuse_other_file()
            return idle or self._connect()
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, connection: sqlite3.Connection | None) -> None:
        with self._lock:
            self._lent -= 1
            if connection is not None:
                self._idle.append(connection)
            if self._closed:
                self._close_idle()
            self._lock.notify_all()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def before_fork(self) -> None:
        """See `SqlDatabase`; waits a while for connections that are in use."""
        self._lock.acquire()
        if self.in_memory:
            return
        self._lock.wait_for(lambda: not self._lent, _FORK_WAIT)
        self._close_idle()

    def after_fork_in_parent(self) -> None:
        """See `SqlDatabase`."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """See `SqlDatabase`."""
        if self._lent and not self.in_memory:
            _unusable.add(self._real_path)
        self._reset()
        for begin_anew in self.at_fork:
            begin_anew()

    def close(self) -> None:
        """See `SqlDatabase.close`."""
        with self._lock:
            self._closed = True
            self._close_idle()
            self._lock.notify_all()

    def owns(self, path: Path) -> bool:
        """Return True if ``path`` is the file or its log, and the database is open."""
        if self.in_memory or self._closed:
            return False
        place = places.place_of(str(path))
        own = [places.place_of(self.path + suffix) for suffix in _SUFFIXES]
        return place is not None and place in own
