"""What a database has to be able to do, whichever it is: `sqlite` and `postgres` both can.

Statements are written in the SQL that both understand, with ``?`` or ``?1`` for a value and
``IN (SELECT value FROM json_each(?))`` for a list of texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from ecs_plugins.errors import StorageError


class Connection(Protocol):
    """A connection inside a transaction; its cursors are those of Python's database interface."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """Run a statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        """Run a statement for each set of values."""
        ...


class SqlDatabase(ABC):
    """A database and its connections, each lent to one user at a time. Thread-safe.

    Attributes:
        path: What it is called in messages.
        in_memory: Whether nothing of it is on disk.
        read_only: Whether nothing may be written.
        at_fork: What a forked child calls: what the parent has not written is the parent's.
    """

    path: str
    in_memory = False
    read_only: bool

    at_fork: list[Callable[[], object]]

    @property
    @abstractmethod
    def is_writing(self) -> bool:
        """Whether this thread is inside a write transaction."""

    @abstractmethod
    def on_end(self, end: Callable[[bool], object]) -> None:
        """Call a function once the write transaction of this thread is over, or now without one.

        It gets whether the transaction was committed.
        """

    @abstractmethod
    def read(self) -> AbstractContextManager[Any]:
        """A connection inside one consistent view; within a transaction of the same thread, its."""

    @abstractmethod
    def write(self, *, wait: bool = True, scope: str | None = None) -> AbstractContextManager[Any]:
        """A connection inside one transaction; committed unless the block raises.

        Compute before, write inside: other writers wait meanwhile. Within a write transaction of
        the same thread it is that one, which is committed or rolled back as a whole.

        Args:
            wait: Whether to wait for other writers, up to ``busy_timeout``.
            scope: What is written to, where writers of different scopes need not wait for each
                other; None is everything.
        """

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

    def claim(self, _name: str) -> AbstractContextManager[object]:
        """Wait until nobody else has claimed a name; without locks of that kind, for nothing."""
        return nullcontext()

    def has_slack(self, _erased: Sequence[bytes]) -> bool:
        """Whether `scrub` has to vacuum to get rid of what was erased."""
        return False

    def integrity(self, _connection: Any) -> Sequence[str]:
        """What the database's own checks find; nothing where it makes them by itself."""
        return ()

    def backup(self, target: Path) -> None:
        """Write a copy as of now, while others read and write."""
        raise StorageError(f"{target} was not written; use the tools of the server, or export")
