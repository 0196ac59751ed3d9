"""The rows of the namespaces: their counters and generations."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from ecs_plugins.memory.namespaces import Namespace, below, decode, encode, key_of
from ecs_plugins.memory.types import Tier


@dataclass(slots=True)
class TierState:
    """How many items a tier holds, and how often it has changed.

    Attributes:
        count: Live items.
        generation: Transactions that changed what can be found in it.
        rewritten: The generation of the last change that was not an append.
    """

    count: int
    generation: int
    rewritten: int


@dataclass(slots=True)
class Space:
    """One namespace within one transaction; `save` writes it back."""

    id: int
    namespace: Namespace
    epoch: int
    step: int
    since_sleep: int
    novel: int
    cycle: int
    revision: int
    erasures: int
    hot: TierState
    cold: TierState
    _appended: set[Tier] = field(default_factory=set)
    _rewritten: set[Tier] = field(default_factory=set)

    def tier(self, tier: Tier) -> TierState:
        """The state of one tier."""
        return self.hot if tier == "hot" else self.cold

    def appended(self, tier: Tier, count: int = 1) -> None:
        """Note that items were appended to a tier."""
        self.tier(tier).count += count
        self._appended.add(tier)

    def rewrote(self, tier: Tier, change: int = 0) -> None:
        """Note that items of a tier were replaced, removed or restored."""
        self.tier(tier).count += change
        self._rewritten.add(tier)

    def save(self, connection: sqlite3.Connection) -> None:
        """Write counters and new generations."""
        for tier in self._appended | self._rewritten:
            state = self.tier(tier)
            state.generation += 1
            if tier in self._rewritten:
                state.rewritten = state.generation
        self._appended.clear()
        self._rewritten.clear()
        self.revision += 1
        connection.execute(
            "UPDATE namespaces SET step=?, since_sleep=?, novel=?, cycle=?, revision=?, erasures=?,"
            " hot_count=?, hot_generation=?, hot_rewritten=?,"
            " cold_count=?, cold_generation=?, cold_rewritten=? WHERE id=?",
            (
                self.step,
                self.since_sleep,
                self.novel,
                self.cycle,
                self.revision,
                self.erasures,
                self.hot.count,
                self.hot.generation,
                self.hot.rewritten,
                self.cold.count,
                self.cold.generation,
                self.cold.rewritten,
                self.id,
            ),
        )


_COLUMNS = (
    "id, key, epoch, step, since_sleep, novel, cycle, revision, erasures, hot_count,"
    " hot_generation, hot_rewritten, cold_count, cold_generation, cold_rewritten"
)


def _space(row: tuple[object, ...], namespace: Namespace | None = None) -> Space:
    (number, key, epoch, step, since, novel, cycle, revision, erasures, *tiers) = row
    hot, cold = tiers[:3], tiers[3:]
    return Space(
        number,  # type: ignore[arg-type]
        decode(str(key)) if namespace is None else namespace,
        epoch,  # type: ignore[arg-type]
        step,  # type: ignore[arg-type]
        since,  # type: ignore[arg-type]
        novel,  # type: ignore[arg-type]
        cycle,  # type: ignore[arg-type]
        revision,  # type: ignore[arg-type]
        erasures,  # type: ignore[arg-type]
        TierState(*hot),  # type: ignore[arg-type]
        TierState(*cold),  # type: ignore[arg-type]
    )


def find(connection: sqlite3.Connection, namespace: Namespace) -> Space | None:
    """The namespace, if anything was ever stored in it."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM namespaces WHERE key=?",
        (key_of(namespace),),
    ).fetchone()
    return None if row is None else _space(row, namespace)


def by_id(connection: sqlite3.Connection, number: int) -> Space:
    """The namespace of a row number that is known to exist."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM namespaces WHERE id=?",
        (number,),
    ).fetchone()
    return _space(row)


def find_or_create(
    connection: sqlite3.Connection, namespace: Namespace, *, now: float, epoch: int
) -> Space:
    """The namespace, made if it is new."""
    found = find(connection, namespace)
    if found is None:
        connection.execute(
            "INSERT INTO namespaces (key, created, epoch) VALUES (?, ?, ?)",
            (key_of(namespace), now, epoch),
        )
        found = find(connection, namespace)
        assert found is not None
    return found


def listed(connection: sqlite3.Connection, prefix: Namespace | None = None) -> list[Space]:
    """All namespaces, or those equal to ``prefix`` or below it, in the order of their keys."""
    sql = f"SELECT {_COLUMNS} FROM namespaces"
    if prefix is None:
        rows = connection.execute(sql + " ORDER BY key")
    else:
        rows = connection.execute(
            sql + " WHERE key = ? OR (key >= ? AND key < ?) ORDER BY key",
            (encode(prefix), *below(prefix)),
        )
    return [_space(row) for row in rows]
