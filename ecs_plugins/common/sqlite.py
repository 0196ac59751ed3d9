"""SQLite files in one process: pooled connections, safe over ``fork``, out of others' reach.

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
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ecs_plugins.errors import StorageError

MEMORY = ":memory:"

_FORK_WAIT = 5.0  # seconds to wait for connections that other threads use

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


class ConnectionPool:
    """Connections to one database, each lent to one user at a time. Thread-safe; fork-safe.

    ``":memory:"`` is a database that lives in one connection. The writers of this process wait
    for each other on ``writer``.
    """

    def __init__(
        self, path: str, connect: Callable[[], sqlite3.Connection], size: int | None = None
    ) -> None:
        self.path = path
        self.in_memory = path == MEMORY
        self._real_path = os.path.realpath(path)
        self._connect = connect
        self._size = 1 if self.in_memory else size
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._lent = 0
        self._lock = threading.Condition()
        self.writer = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection, opened if none is idle.

        Raises:
            StorageError: The pool is closed, here or to this forked child.
        """
        connection = self._borrow()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _borrow(self) -> sqlite3.Connection:
        with self._lock:
            while self._lent == self._size and not self._closed:
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
        """Close every connection; those in use close when their user is done."""
        with self._lock:
            self._closed = True
            self._close_idle()
            self._lock.notify_all()

    def owns(self, path: Path) -> bool:
        """Whether ``path`` is the file, or its log, and the pool is open."""
        if self.in_memory or self._closed:
            return False
        files = (Path(self.path + suffix) for suffix in ("", "-wal", "-shm"))
        return any(file.exists() and file.samefile(path) for file in files)


def refuse_open_database(path: str | os.PathLike[str]) -> None:
    """Refuse to touch a file, or its log, that this process has open as a database."""
    file = Path(path)
    if file.exists() and any(pool.owns(file) for pool in list(_pools)):
        raise StorageError(
            f"{path} belongs to a database that is open; close it first, or name another file"
        )


_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()
_held: list[ConnectionPool] = []
_unusable: set[str] = set()  # files whose connections were in use while this child was forked
_forking = threading.Lock()
creating = threading.Lock()
"""Held while a descriptor of a new, still empty database file is open."""


def _before_fork() -> None:
    _forking.acquire()
    creating.acquire()
    for pool in list(_pools):
        pool._lock.acquire()
        _held.append(pool)
        if not pool.in_memory:
            pool._close_unused()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop()._lock.release()
    creating.release()
    _forking.release()


def _after_fork_in_child() -> None:
    global creating, _forking
    creating, _forking = threading.Lock(), threading.Lock()
    while _held:
        pool = _held.pop()
        if pool._lent and not pool.in_memory:
            _unusable.add(pool._real_path)
        pool._reset()


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
                Path(name).chmod(0o600)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error}; make its directory writable") from error
    return False
