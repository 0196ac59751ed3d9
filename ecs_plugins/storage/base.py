"""Interface of databases, implemented by `sqlite` and `postgres`.

Statements are written in the SQL that both understand, with ``?`` or ``?1`` for a value and
``IN (SELECT value FROM json_each(?))`` for a list of texts.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from ecs_plugins.errors import EcsPluginsError, StorageError

T = TypeVar("T")
logger = logging.getLogger(__name__)

Synchronous = Literal["full", "normal"]


class ConstraintError(StorageError):
    """A row of this key is there already, or one that it refers to is not."""


class DiskFullError(StorageError):
    """The disk is full, or fails to write."""


class Connection(Protocol):
    """A connection inside a transaction; its cursors are those of Python's database interface."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """Run a statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        """Run a statement for each set of values."""
        ...


Scope: TypeAlias = tuple[str, ...]
"""Lock of a writer: ``("a", "b")`` is the part ``b`` of ``a``, ``()`` is everything."""

Migration = Callable[[Connection], object]
"""Makes the tables of one version from those of the version before; the first one from nothing."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables of a kind of database, as a numbered list of migrations.

    Attributes:
        kind: Name of the kind in messages.
        migrations: One for each version; a published one is never edited.
        application_id: The mark that tells a file from other SQLite databases.
        has_reserve: Whether disk space is reserved, so that content can be erased on a full disk.
    """

    kind: str
    migrations: Sequence[Migration]
    application_id: int = 0
    has_reserve: bool = False

    @property
    def version(self) -> int:
        """Return the newest version."""
        return len(self.migrations)

    def migrate(self, connection: Connection, version: int) -> None:
        """Run the migrations after a version; 0 is an empty database."""
        for migration in self.migrations[version:]:
            migration(connection)

    def check(self, version: int, place: str) -> None:
        """Refuse tables of an unknown version.

        Raises:
            StorageError: The version is newer than the last migration, or was never published.
        """
        if version > self.version:
            raise StorageError(
                f"{place} has schema {version}, and this package knows schema {self.version}: "
                "upgrade ecs-plugins, or export the content with the version that wrote it"
            )


@dataclass(slots=True)
class Transaction:
    """Transaction of a thread; `ends` are called at its end with True if it was committed."""

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
        rows_rise: Whether rows appear in the order of their numbers, as where one writes at a time.
        has_checksums: Whether rows have checksum columns, named ``*_crc``.
        at_fork: What a forked child calls: what the parent has not written is the parent's.
    """

    rows_rise = False
    has_checksums = True

    def __init__(self, path: str, *, read_only: bool) -> None:
        self.path = path
        self.in_memory = False
        self.read_only = read_only
        self.at_fork: list[Callable[[], object]] = []
        self._here = threading.local()

    @property
    def _transaction(self) -> Transaction | None:
        """Return the transaction of this thread."""
        return getattr(self._here, "transaction", None)

    @property
    def is_writing(self) -> bool:
        """Return True if this thread is inside a write transaction."""
        return self._transaction is not None and self._transaction.writes

    def on_end(self, end: Callable[[bool], object]) -> None:
        """Call a function once the write transaction of this thread is over, or now without one.

        It gets whether the transaction was committed.
        """
        if self.is_writing:
            self._here.transaction.ends.append(end)
        else:
            self._call(end, committed=True)

    @contextmanager
    def read(self) -> Iterator[Any]:
        """Lend a connection with one consistent view: that of this thread's transaction, if any."""
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
    def write(self, *, wait: bool = True, scope: Scope = ()) -> Iterator[Any]:
        """Lend a connection inside a transaction, committed unless the block raises.

        Compute before, write inside: other writers wait meanwhile. Within a write transaction of
        the same thread it is that one, which is committed or rolled back as a whole.

        Args:
            wait: Whether to wait for other writers, up to ``busy_timeout``.
            scope: What is written to, as a path from a whole to its part. Writers of different
                parts need not wait for each other; who writes to a whole waits for all its parts.
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
            for transaction in begun:
                for end in transaction.ends:
                    self._call(end, committed=transaction.committed)

    def _call(self, end: Callable[[bool], object], *, committed: bool) -> None:
        """Call the functions that waited for the end; their errors do not undo a commit."""
        try:
            end(committed)
        except EcsPluginsError as error:
            if not committed:
                raise
            logger.warning("%s: written, but not all that follows: %s", self.path, error)

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]:
        """Lend a connection inside a transaction that only reads."""

    @abstractmethod
    def _writing(self, wait: bool, scope: Scope) -> AbstractContextManager[Any]:
        """Lend a connection inside a transaction, committed unless the block raises."""

    def _widen(self, scope: Scope) -> None:  # noqa: B027
        """Let the write transaction of this thread write to a further scope."""

    @abstractmethod
    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted content out of the files, with ``vacuum`` out of every page.

        Returns:
            True if it is done; False while others read an older state, and it is done later.
        """

    @abstractmethod
    def size(self) -> int:
        """Return the bytes on disk."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection; those in use close when their user is done."""

    def claim(self, _name: str, *, wait: bool = True) -> AbstractContextManager[bool]:  # noqa: ARG002
        """Acquire a named lock; yield False if it is taken and ``wait`` is False."""
        return nullcontext(True)

    def integrity(self, _connection: Any) -> Sequence[str]:
        """Return the faults that the database's own checks find; empty if it checks itself."""
        return ()

    def making_room(self, erase: Callable[[], T]) -> T:
        """Run an operation that erases; run it again after freeing space if the disk is full."""
        try:
            return erase()
        except DiskFullError:
            if self.is_writing:
                raise
        self.make_room()
        return erase()

    def make_room(self) -> None:  # noqa: B027
        """Free the disk space that the database can spare, so that content can be erased."""

    def warnings(self, _connection: Any) -> Sequence[str]:
        """Return the settings that leave damage of the files unnoticed."""
        return ()

    def backup(self, target: Path) -> None:
        """Write a copy as of now, while others read and write."""
        raise StorageError(f"{target} was not written; use the tools of the server, or export")

    def before_fork(self) -> None:  # noqa: B027
        """Hold still: no thread connects until the fork is over."""

    def after_fork_in_parent(self) -> None:  # noqa: B027
        """Go on."""

    @abstractmethod
    def after_fork_in_child(self) -> None:
        """Begin anew, with nothing that is the parent's."""


# Forks. SQLite remembers in the process which locks it holds, and a forked child inherits that
# memory without the locks: what it then writes is lost as soon as the parent closes. So idle
# connections are closed before a fork, and a file of which one is in use is closed to the child. A
# connection to a server is the parent's. Both sides connect anew when they next need to.

_databases: weakref.WeakSet[SqlDatabase] = weakref.WeakSet()
_held: list[SqlDatabase] = []
_forking = threading.Lock()


def register(database: SqlDatabase) -> None:
    """Tell a database of every fork, as long as it lives."""
    _databases.add(database)


def _before_fork() -> None:
    _forking.acquire()
    for database in list(_databases):
        _held.append(database)
        database.before_fork()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.Lock()
    while _held:
        _held.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
