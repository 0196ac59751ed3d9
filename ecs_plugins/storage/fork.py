"""No connection to a database crosses a fork.

SQLite remembers in the process which locks it holds, and a forked child inherits that memory
without the locks: what it then writes is lost as soon as the parent closes. So idle connections
are closed before a fork, and a file of which one is in use is closed to the child. A connection
to a server is the parent's. Both sides connect anew when they next need to.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Object that is told of a fork."""

    def before_fork(self) -> None:
        """Hold still: no thread connects until the fork is over."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Begin anew, with nothing that is the parent's."""
        ...


_databases: weakref.WeakSet[Forkable] = weakref.WeakSet()
_held: list[Forkable] = []
_forking = threading.Lock()


def register(database: Forkable) -> None:
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
