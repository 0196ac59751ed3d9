"""The rows of the namespaces: their counters."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field

from ecs_plugins.memory.types import Namespace, Tier, below, decode, encode


@dataclass(slots=True)
class Space:
    """One namespace within one transaction; `save` writes it back.

    Attributes:
        id: Its number.
        namespace: Its labels.
        epoch: Counts the embedders that its vectors came from.
        step: Number of its latest message.
        since_sleep: Messages since its last sleep phase.
        cycle: Sleep phases so far.
        revision: Counts the transactions that changed it.
        erasures: Counts the transactions that erased something.
        count: Live items of each tier.
        gone: Rows that left the tiers in this transaction.
        written: Rows of this transaction that are in the index already.
    """

    id: int
    namespace: Namespace
    epoch: int
    step: int
    since_sleep: int
    cycle: int
    revision: int
    erasures: int
    count: dict[Tier, int]
    gone: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    @property
    def items(self) -> int:
        """Live items of both tiers."""
        return self.count["hot"] + self.count["cold"]

    def added(self, tier: Tier, count: int = 1) -> None:
        """Note that items joined a tier."""
        self.count[tier] += count

    def left(self, tier: Tier, rows: Collection[int]) -> None:
        """Note that rows left a tier."""
        self.count[tier] -= len(rows)
        self.gone += rows

    def save(self, connection: sqlite3.Connection) -> None:
        """Write the counters."""
        self.revision += 1
        connection.execute(
            "UPDATE namespaces SET step=?, since_sleep=?, cycle=?, revision=?, erasures=?,"
            " hot_count=?, cold_count=? WHERE id=?",
            (
                self.step,
                self.since_sleep,
                self.cycle,
                self.revision,
                self.erasures,
                self.count["hot"],
                self.count["cold"],
                self.id,
            ),
        )


_SELECT = (
    "SELECT id, key, epoch, step, since_sleep, cycle, revision, erasures, hot_count, cold_count"
    " FROM namespaces"
)


def _space(row: tuple[int, ...], namespace: Namespace | None = None) -> Space:
    number, key, epoch, step, since, cycle, revision, erasures, hot, cold = row
    return Space(
        number,
        decode(str(key)) if namespace is None else namespace,
        epoch,
        step,
        since,
        cycle,
        revision,
        erasures,
        {"hot": hot, "cold": cold},
    )


def find(connection: sqlite3.Connection, namespace: Namespace) -> Space | None:
    """The namespace, if anything was ever stored in it."""
    row = connection.execute(f"{_SELECT} WHERE key = ?", (encode(namespace),)).fetchone()
    return None if row is None else _space(row, namespace)


def by_id(connection: sqlite3.Connection, number: int) -> Space:
    """The namespace of a row number that is known to exist."""
    return _space(connection.execute(f"{_SELECT} WHERE id = ?", (number,)).fetchone())


def create(connection: sqlite3.Connection, namespace: Namespace, now: float, epoch: int) -> Space:
    """A new namespace."""
    connection.execute(
        "INSERT INTO namespaces (key, created, epoch) VALUES (?, ?, ?)",
        (encode(namespace), now, epoch),
    )
    found = find(connection, namespace)
    assert found is not None
    return found


def listed(connection: sqlite3.Connection, prefix: Namespace | None = None) -> list[Space]:
    """All namespaces, or those equal to ``prefix`` or below it, in the order of their keys."""
    where, bounds = under(prefix, "key")
    return [
        _space(row) for row in connection.execute(f"{_SELECT} WHERE {where} ORDER BY key", bounds)
    ]


def under(prefix: Namespace | None, column: str) -> tuple[str, tuple[str, ...]]:
    """A condition for the namespaces equal to a prefix or below it, label by label."""
    if not prefix:
        return "1", ()
    return f"({column} = ? OR ({column} >= ? AND {column} < ?))", (encode(prefix), *below(prefix))
