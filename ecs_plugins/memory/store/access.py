"""Retrieval hits: counted in memory as they happen, written with the next write.

A recall should not pay for a commit. What is not written yet is lost when the process is killed,
and nothing else is; a close, a sleep phase and every write to the namespace write it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ecs_plugins.memory.admission import record_hit, record_outcome
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.store import cold_memories, hot_items
from ecs_plugins.memory.store.rows import dump
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import pack
from ecs_plugins.memory.types import ColdMemory, HotItem, Vector
from ecs_plugins.memory.utility import QUERY_WINDOW

_SAME = 1e-6  # cosine distance of a question to itself, embedded twice

FLUSH_AT = 256
"""Pending recalls of a namespace from which on the next recall writes them itself."""


@dataclass(frozen=True, slots=True)
class Access:
    """One recall: when, with which query vector, and what it returned."""

    step: int
    at: float
    vector: Vector
    items: tuple[str, ...]


@dataclass(slots=True)
class PendingAccesses:
    """The recalls that are not written yet. Thread-safe."""

    _pending: dict[Namespace, list[Access]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, namespace: Namespace, step: int, vector: Vector, items: Iterable[str]) -> int:
        """Count a recall; returns how many of the namespace are pending."""
        access = Access(step, time.time(), vector, tuple(items))
        with self._lock:
            pending = self._pending.setdefault(namespace, [])
            pending.append(access)
            return len(pending)

    def take(self, namespace: Namespace) -> list[Access]:
        """Remove and return what is pending."""
        with self._lock:
            return self._pending.pop(namespace, [])

    def give_back(self, namespace: Namespace, accesses: Sequence[Access]) -> None:
        """Put back what could not be written."""
        if accesses:
            with self._lock:
                self._pending[namespace] = [*accesses, *self._pending.get(namespace, [])]

    def any(self, namespace: Namespace) -> bool:
        """Whether something is pending in a namespace."""
        with self._lock:
            return namespace in self._pending

    def namespaces(self) -> list[Namespace]:
        """Where something is pending."""
        with self._lock:
            return list(self._pending)

    def discard(self, namespace: Namespace | None = None) -> None:
        """Forget what is pending, of one namespace or all."""
        with self._lock:
            if namespace is None:
                self._pending.clear()
            else:
                self._pending.pop(namespace, None)

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._pending.values()))


def write_accesses(
    connection: sqlite3.Connection, space: Space, accesses: Sequence[Access]
) -> None:
    """Write recalls: a query event each, a hit for every item that is still in its tier."""
    for access in accesses:
        insert_query(
            connection, space, step=access.step, at=access.at, vector=access.vector,
            items=access.items,
        )  # fmt: skip
        for row, item in _live(connection, space, access.items):
            step = max(access.step, item.evidence.updated)
            if isinstance(item, HotItem):
                hit = record_hit(item, step=step)
                hot_items.update_hot(connection, space.id, row, hit)
            else:
                cold_memories.update_cold(connection, row, record_hit(item, step=step))
    if accesses:
        prune_queries(connection, space)


def insert_query(
    connection: sqlite3.Connection,
    space: Space,
    *,
    step: int,
    at: float,
    vector: Vector,
    items: Sequence[str],
    text: str = "",
    answer: str | None = None,
) -> None:
    """Record a query event. A recall records no text; `observe` does, it needs it."""
    connection.execute(
        "INSERT INTO queries (namespace, step, at, text, answer, recalled, vector)"
        " VALUES (?,?,?,?,?,?,?)",
        (space.id, step, at, text, answer, dump(list(items)), pack(vector)),
    )


def complete_query(
    connection: sqlite3.Connection,
    space: Space,
    *,
    vector: Vector,
    items: Sequence[str],
    text: str,
    answer: str,
) -> bool:
    """Write question and answer into the event of the recall that they belong to.

    That is the last event of the same question, if it has no answer yet and what was used does
    not come from elsewhere. So one question that was recalled for and then observed counts once.

    Returns:
        Whether there was such an event.
    """
    used = set(items)
    for number, data, known, recalled in connection.execute(
        "SELECT id, vector, answer, recalled FROM queries WHERE namespace = ? ORDER BY id DESC",
        (space.id,),
    ):
        if float(np.frombuffer(data, dtype="<f4") @ vector) < 1.0 - _SAME:
            continue
        found = json.loads(recalled)
        elsewhere = bool(used) and bool(found) and used.isdisjoint(found)
        if known is not None or elsewhere:
            return False
        together = dump([*dict.fromkeys([*found, *items])])
        connection.execute(
            "UPDATE queries SET text = ?, answer = ?, recalled = ? WHERE id = ?",
            (text, answer, together, number),
        )
        return True
    return False


def prune_queries(connection: sqlite3.Connection, space: Space) -> None:
    """Delete query events beyond the window that utilities look at."""
    connection.execute(
        "DELETE FROM queries WHERE namespace = ?1 AND id <= ("
        "SELECT id FROM queries WHERE namespace = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (space.id, QUERY_WINDOW),
    )


def write_outcome(
    connection: sqlite3.Connection,
    space: Space,
    items: Sequence[str],
    outcome: bool,
) -> None:
    """Book an observed outcome with the items that were used."""
    for row, item in _live(connection, space, items):
        if isinstance(item, HotItem):
            hot = record_outcome(item, outcome, step=space.step)
            hot_items.update_hot(connection, space.id, row, hot)
        else:
            cold = record_outcome(item, outcome, step=space.step)
            cold_memories.update_cold(connection, row, cold)


def _live(
    connection: sqlite3.Connection, space: Space, names: Sequence[str]
) -> list[tuple[int, HotItem | ColdMemory]]:
    """The items of these ids that are in a tier now, without vectors, each with its row."""
    found: list[tuple[int, HotItem | ColdMemory]] = []
    hot = hot_items.live_rows(connection, space.id, names)
    found += [
        (row, each.item) for row, each in hot_items.hot_rows(connection, space.id, hot).items()
    ]
    cold = [
        row
        for (row,) in connection.execute(
            "SELECT row FROM memories WHERE namespace = ? AND live = 1"
            " AND id IN (SELECT value FROM json_each(?))",
            (space.id, dump(list(names))),
        )
    ]
    found += [(row, each.memory) for row, each in cold_memories.cold_rows(connection, cold).items()]
    return found
