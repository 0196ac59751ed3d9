"""What a database has to be able to do, whichever it is: `sqlite` and `postgres` both can.

Statements are written in the SQL that both understand, with ``?`` or ``?1`` for a value and
``IN (SELECT value FROM json_each(?))`` for a list of texts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Cursor(Protocol):
    """The rows that a statement found."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
        """Run a statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Cursor:
        """Run a statement for each set of values."""
        ...


@dataclass(slots=True)
class Transaction:
    """What a thread has begun; `ends` are called when it is over, with whether it was committed."""

    connection: Any
    writes: bool
    committed: bool = False
    ends: list[Callable[[bool], object]] = field(default_factory=list)


class Transactional:
    """The transaction of each thread."""

    def __init__(self) -> None:
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


class SqlDatabase(Protocol):
    """A database and its connections, each lent to one user at a time. Thread-safe.

    Attributes:
        path: What it is called in messages.
        at_fork: What a forked child calls: what the parent has not written is the parent's.
    """

    path: str
    in_memory: bool
    read_only: bool
    at_fork: list[Callable[[], object]]

    @property
    def is_writing(self) -> bool:
        """Whether this thread is inside a write transaction."""
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """One consistent view; within a transaction of the same thread, that one."""
        ...

    def write(
        self, *, wait: bool = True, scope: str | None = None
    ) -> AbstractContextManager[Connection]:
        """A write transaction; with a scope, others may write to other scopes meanwhile."""
        ...

    def on_end(self, end: Callable[[bool], object]) -> None:
        """Call a function once the write transaction of this thread is over."""
        ...

    def claim(self, name: str) -> AbstractContextManager[object]:
        """Wait until nobody else has claimed a name, in any process that can see it."""
        ...

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take deleted content out of the files; returns whether it is."""
        ...

    def has_slack(self, erased: Sequence[bytes]) -> bool:
        """Whether `scrub` has to vacuum to get rid of what was erased."""
        ...

    def backup(self, target: Path) -> None:
        """Write a copy as of now."""
        ...

    def integrity(self, connection: Any) -> Collection[str]:
        """What the database's own checks find."""
        ...

    def size(self) -> int:
        """Bytes on disk."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...
