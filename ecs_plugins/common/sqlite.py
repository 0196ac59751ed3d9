"""What a database has to be able to do, and SQLite files, which can; so can `postgres`.

Statements are written in the SQL that both understand, with ``?`` or ``?1`` for a value and
``IN (SELECT value FROM json_each(?))`` for a list of texts.

What is guaranteed: a transaction that returned is on disk (``synchronous="full"``) and whole;
one that raised left nothing. Readers never wait for the writer (write-ahead log); writers of
this process queue on a lock, those of other processes on SQLite's, up to ``busy_timeout``.
Deleted content is overwritten (``secure_delete``), and `Database.scrub` takes it out of the
write-ahead log too.

Two rules of POSIX locks hold for every database file of the package:

* SQLite remembers in the process which locks it holds, and a forked child inherits that memory
  without the locks: what it then writes is lost as soon as the parent closes. So no connection
  to a file crosses a fork. Idle ones are closed before it, and a file of which one is in use
  is closed to the child. Both sides connect anew when they next need to.
* A process holds its locks per file, and closing any descriptor of the file drops all of them.
  So nothing but SQLite may open a file while it is open here: see `refuse_open_database`.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard
from urllib.parse import parse_qsl, urlencode, urlsplit

from ecs_plugins.errors import StorageError

Synchronous = Literal["full", "normal"]


def is_address(path: object) -> TypeGuard[str]:
    """Whether a path is the address of a PostgreSQL database."""
    return isinstance(path, str) and path.startswith(("postgresql://", "postgres://"))


def without_password(address: str) -> str:
    """An address as it may be shown."""
    parts = urlsplit(address)
    where = re.sub(r":[^:@/]*@", "@", parts.netloc)
    options = [(key, value) for key, value in parse_qsl(parts.query) if key != "password"]
    return parts._replace(netloc=where, query=urlencode(options, safe="/")).geturl()


class ConstraintError(StorageError):
    """A row of this key is there already, or one that it refers to is not."""


class Connection(Protocol):
    """A connection inside a transaction; its cursors are those of Python's database interface."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """Run a statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        """Run a statement for each set of values."""
        ...


@dataclass(slots=True)
class Transaction:
    """What a thread has begun; `ends` are called when it is over, with whether it was committed."""

    connection: Any
    writes: bool
    committed: bool = False
    ends: list[Callable[[bool], object]] = field(default_factory=list)


class SqlDatabase(ABC):
    """A database and its connections, each lent to one user at a time. Thread-safe.

    Attributes:
        path: What it is called in messages.
        in_memory: Whether nothing of it is on disk.
        read_only: Whether nothing may be written.
        at_fork: What a forked child calls: what the parent has not written is the parent's.
    """

    def __init__(self, path: str, *, read_only: bool) -> None:
        self.path = path
        self.in_memory = False
        self.read_only = read_only
        self.at_fork: list[Callable[[], object]] = []
        self._here = threading.local()

    @property
    def _transaction(self) -> Transaction | None:
        """The transaction of this thread."""
        return getattr(self._here, "transaction", None)

    @property
    def is_writing(self) -> bool:
        """Whether this thread is inside a write transaction."""
        return self._transaction is not None and self._transaction.writes

    def on_end(self, end: Callable[[bool], object]) -> None:
        """Call a function once the write transaction of this thread is over, or now without one.

        It gets whether the transaction was committed.
        """
        if self.is_writing:
            self._here.transaction.ends.append(end)
        else:
            end(True)

    @contextmanager
    def read(self) -> Iterator[Any]:
        """A connection inside one consistent view; within a transaction of the same thread, its."""
        if self._transaction is not None:
            yield self._transaction.connection
            return
        with self._reading() as connection:
            self._here.transaction = Transaction(connection, writes=False)
            try:
                yield connection
            finally:
                self._here.transaction = None

    @contextmanager
    def write(self, *, wait: bool = True, scope: str | None = None) -> Iterator[Any]:
        """A connection inside one transaction; committed unless the block raises.

        Compute before, write inside: other writers wait meanwhile. Within a write transaction of
        the same thread it is that one, which is committed or rolled back as a whole.

        Args:
            wait: Whether to wait for other writers, up to ``busy_timeout``.
            scope: What is written to, where writers of different scopes need not wait for each
                other; None is everything.
        """
        if self.is_writing:
            self._widen(scope)
            yield self._here.transaction.connection
            return
        if self.read_only:
            raise StorageError(f"{self.path} is open for reading only; nothing was written")
        outer, begun = self._transaction, list[Transaction]()
        try:
            with self._writing(wait, scope) as connection:
                begun.append(Transaction(connection, writes=True))
                self._here.transaction = begun[0]
                try:
                    yield connection
                finally:
                    self._here.transaction = outer
            begun[0].committed = True
        finally:
            for each in begun:
                for end in each.ends:
                    end(each.committed)

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]:
        """A connection inside a transaction that only reads."""

    @abstractmethod
    def _writing(self, wait: bool, scope: str | None) -> AbstractContextManager[Any]:
        """A connection inside a transaction that is committed unless the block raises."""

    def _widen(self, scope: str | None) -> None:  # noqa: B027
        """Let the write transaction of this thread write to a further scope."""

    @abstractmethod
    def new_rows(self, connection: Any, table: str, count: int) -> Sequence[int]:
        """Rising numbers for rows that this transaction will write to a table before any others."""

    @abstractmethod
    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted content out of the files, with ``vacuum`` out of every page.

        Returns:
            Whether it is; False where others still read an older state, and it is done later.
        """

    @abstractmethod
    def size(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection; those in use close when their user is done."""

    def claim(self, _name: str, *, wait: bool = True) -> AbstractContextManager[bool]:  # noqa: ARG002
        """Claim a name that nobody else has, or ``wait`` for it: whether it is claimed now."""
        return nullcontext(True)

    def has_slack(self, _erased: Sequence[bytes]) -> bool:
        """Whether `scrub` has to vacuum to get rid of what was erased."""
        return False

    def integrity(self, _connection: Any) -> Sequence[str]:
        """What the database's own checks find; nothing where it makes them by itself."""
        return ()

    def backup(self, target: Path) -> None:
        """Write a copy as of now, while others read and write."""
        raise StorageError(f"{target} was not written; use the tools of the server, or export")


MEMORY = ":memory:"

_FORK_WAIT = 5.0  # seconds to wait for connections that other threads use
_BIRTH = 2.0  # seconds that a new file may be empty
_RETRY = 0.0002, 0.002  # seconds between attempts to get the write lock
_TABLE_LEAF = 13  # the first byte of such a page
_PART = 16  # bytes of erased content that count as found
_LARGEST_SCAN = 1 << 30  # bytes of a file that is looked through
_LARGEST_SEARCH = 1 << 33  # bytes of slack times bytes of erased content
_CACHE_KIB = 16384  # per connection, so that the upper levels of every tree are found there

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
    """Turn SQLite's operational errors into `StorageError` with what to do."""
    try:
        yield
    except UnicodeDecodeError as error:  # of a damaged name in a message of SQLite
        raise StorageError(f"{path}: {error}; {_ADVICE['SQLITE_CORRUPT']}") from error
    except sqlite3.DatabaseError as error:
        if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
            raise  # a violated constraint or a wrong statement is a bug, not a failing disk
        name = getattr(error, "sqlite_errorname", None) or ""
        advice = (text for prefix, text in _ADVICE.items() if name.startswith(prefix))
        what_to_do = next(advice, "nothing was written")
        raise StorageError(f"{path}: {error}; {what_to_do}") from error


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a kind of file.

    Attributes:
        kind: What such a file is called in messages.
        application_id: The mark by which it is told from other databases.
        version: The newest, in ``PRAGMA user_version``.
        upgrade: Makes the tables of a new file (version 0), or those of an older one into these.
    """

    kind: str
    application_id: int
    version: int
    upgrade: Callable[[sqlite3.Connection, int], object]


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
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._reset()
        if read_only or not (self.in_memory or create_private(self.path)):
            self._refuse_empty()
        _databases.add(self)
        try:
            with translated(self.path):
                self._migrate()
        except BaseException:
            self.close()
            raise

    def _refuse_empty(self) -> None:
        """Refuse a file of no bytes: it was cut off, unless somebody else is making it now."""
        deadline = time.monotonic() + min(self._busy_timeout, _BIRTH)
        try:
            while Path(self.path).stat().st_size == 0:
                if time.monotonic() >= deadline:
                    raise StorageError(
                        f"{self.path} is empty, which no {self._schema.kind} ever is: it was cut "
                        "off. Restore a backup, or delete it to begin a new one"
                    )
                time.sleep(0.01)
        except FileNotFoundError as error:
            raise StorageError(
                f"there is no {self._schema.kind} {self.path}; check the path"
            ) from error

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
            version = self._version(connection)
            if version < self._schema.version:
                self._schema.upgrade(connection, version)
                connection.execute(f"PRAGMA application_id={self._schema.application_id}")
                connection.execute(f"PRAGMA user_version={self._schema.version}")

    def _version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        if application != self._schema.application_id and (application or version or tables):
            raise StorageError(
                f"{self.path} is an SQLite database of something else; choose another path"
            )
        if version > self._schema.version:
            raise StorageError(
                f"{self.path} was written by a newer version of this package (schema {version}, "
                f"this version knows {self._schema.version}); upgrade ecs-plugins"
            )
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
    def _writing(self, wait: bool, scope: str | None) -> Iterator[sqlite3.Connection]:
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

    def new_rows(self, connection: sqlite3.Connection, table: str, count: int) -> Sequence[int]:
        """See `SqlDatabase.new_rows`; for a table with AUTOINCREMENT."""
        found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        last = sum(number for (number,) in found)
        return range(last + 1, last + count + 1)

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted content out of the write-ahead log, and with ``vacuum`` out of every page.

        Returns:
            Whether the log is empty now; False if a reader in another process still needs it, in
            which case a later checkpoint empties it.
        """
        if self.in_memory:
            return True
        with translated(self.path), self._writer, self.connection() as connection:
            if vacuum:
                connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not busy

    def backup(self, target: Path) -> None:
        """Write a copy as of now, while others read and write: whole, or not there at all."""
        if not target.name:
            raise StorageError(f"{str(target)!r} names no file; name one")
        aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        create_private(str(aside))
        try:
            with translated(self.path), self.connection() as connection:
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
            size = int(connection.execute("PRAGMA page_size").fetchone()[0])
            gaps = b"".join(_gaps(connection.serialize(), size))
        if len(gaps) * sum(map(len, erased)) > _LARGEST_SEARCH:
            return True
        return any(
            data[at : at + _PART] in gaps
            for data in erased
            for at in range(0, max(1, len(data) - _PART + 1), _PART)
            if data
        )

    def integrity(self, connection: Connection) -> Sequence[str]:
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
        return sum(file.stat().st_size for file in self._files())

    def _files(self) -> list[Path]:
        files = (Path(self.path + suffix) for suffix in ("", "-wal", "-shm"))
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
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
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

    def _close_unused(self) -> None:
        self._lock.wait_for(lambda: not self._lent, _FORK_WAIT)
        self._close_idle()

    def close(self) -> None:
        """See `SqlDatabase.close`."""
        with self._lock:
            self._closed = True
            self._close_idle()
            self._lock.notify_all()

    def owns(self, path: Path) -> bool:
        """Whether ``path`` is the file, or its log, and the database is open."""
        opened = not (self.in_memory or self._closed)
        return opened and any(file.samefile(path) for file in self._files())


def _gaps(file: bytes, size: int) -> Iterator[bytes]:
    """What is not zero between the pointers and the cells of each leaf of a table."""
    for page in range(0, len(file), size):
        head = page + (100 if page == 0 else 0)
        if file[head] == _TABLE_LEAF:
            start = head + 8 + 2 * int.from_bytes(file[head + 3 : head + 5])
            gap = file[start : page + int.from_bytes(file[head + 5 : head + 7])]
            if stale := gap.strip(b"\0"):
                yield stale + b"\0"


def refuse_open_database(path: str | os.PathLike[str]) -> None:
    """Refuse to touch a file, or its log, that this process has open as a database."""
    file = Path(path)
    if file.exists() and any(database.owns(file) for database in list(_databases)):
        raise StorageError(
            f"{path} belongs to a database that is open; close it first, or name another file"
        )


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_held: list[Database] = []
_unusable: set[str] = set()  # files whose connections were in use while this child was forked
_forking = threading.Lock()
creating = threading.Lock()
"""Held while a descriptor of a new, still empty database file is open."""


def _before_fork() -> None:
    _forking.acquire()
    creating.acquire()
    for database in list(_databases):
        database._lock.acquire()
        _held.append(database)
        if not database.in_memory:
            database._close_unused()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop()._lock.release()
    creating.release()
    _forking.release()


def _after_fork_in_child() -> None:
    global creating, _forking
    creating, _forking = threading.Lock(), threading.Lock()
    while _held:
        database = _held.pop()
        if database._lent and not database.in_memory:
            _unusable.add(database._real_path)
        database._reset()
        for begin_anew in database.at_fork:
            begin_anew()


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


def create_private(path: str) -> bool:
    """Make a new, empty database file, and its directory; False where there is one already.

    Not left to SQLite, so that what users say is private from birth. So is what is there already.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Only a file that is new may be opened and closed here: closing a descriptor of an
        # existing one would drop the locks that other connections of this process hold on it.
        # The lock keeps a second opening away until the new file's descriptor is closed.
        with creating, suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            return True
        for name in (path, f"{path}-wal", f"{path}-shm"):  # as an earlier version made them
            with suppress(OSError):
                if Path(name).is_file():
                    Path(name).chmod(0o600)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error}; make its directory writable") from error
    return False
