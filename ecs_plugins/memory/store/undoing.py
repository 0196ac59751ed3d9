"""``undo``: put both tiers back to where they were before a sleep phase."""

from __future__ import annotations

import json
import sqlite3

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import first_evidence
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import ERASED, SleepReport
from ecs_plugins.memory.store import hot_items, spaces
from ecs_plugins.memory.store import messages as messages_log
from ecs_plugins.memory.store.admitting import evict_overflow
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.types import HotItem


def undo(
    connection: sqlite3.Connection,
    sleep: int,
    *,
    config: MemoryConfig,
    dimension: int,
    retention: float | None,
    now: float,
) -> Namespace:
    """Put both tiers back to where they were before a sleep phase.

    What was said since then stays: a message that supported a memory which goes back or goes
    away becomes a hot item of its own. What has been erased since then stays erased.

    Raises:
        InvalidInputError: There is no such sleep phase, it has been undone, a later one of the
            namespace stands, or the log's retention has removed what it consumed.
    """
    row = connection.execute("SELECT namespace, undone, at FROM sleeps WHERE id = ?", (sleep,))
    found = row.fetchone()
    if found is None:
        raise InvalidInputError(f"there is no sleep phase {sleep}; `sleeps` lists them")
    number, undone, at = found
    if retention is not None and at < now - retention:
        raise InvalidInputError(
            f"sleep phase {sleep} is older than the log's retention of {retention} s; "
            "what it consumed may be gone"
        )
    if undone is not None:
        raise InvalidInputError(f"sleep phase {sleep} has been undone already")
    later = connection.execute(
        "SELECT max(id) FROM sleeps WHERE namespace = ? AND undone IS NULL", (number,)
    ).fetchone()[0]
    if later != sleep:
        raise InvalidInputError(f"sleep phase {later} came after {sleep}; undo it first")
    space = spaces.by_id(connection, number)
    displaced = _undo_cold(connection, space, sleep)
    restored = connection.execute(
        "UPDATE hot_items SET live = 1, died = NULL WHERE died = ?", (sleep,)
    ).rowcount
    space.rewrote("hot", restored)
    _return_to_hot(connection, space, displaced, dimension)
    connection.execute("UPDATE sleeps SET undone = ? WHERE id = ?", (now, sleep))
    evict_overflow(connection, space, config)
    space.save(connection)
    return space.namespace


def _undo_cold(connection: sqlite3.Connection, space: Space, sleep: int) -> set[str]:
    """Restore the cold tier; returns the messages that are behind no memory any more."""
    inserted = [
        record["candidate_id"]
        for record in (
            json.loads(text)
            for (text,) in connection.execute(
                "SELECT record FROM decisions WHERE sleep = ?", (sleep,)
            )
        )
        if record["kind"] in ("insert", "replace") and record["candidate_id"] != ERASED
    ]
    replaced = connection.execute(
        "SELECT row, id, version FROM memories WHERE died = ?", (sleep,)
    ).fetchall()
    displaced: set[str] = set()
    # Version 0 is before the first: nothing of what the sleep phase inserted stays.
    for name, version in [(name, 0) for name in inserted] + [
        (each[1], each[2]) for each in replaced
    ]:
        displaced.update(
            message
            for (message,) in connection.execute(
                "SELECT message FROM provenance WHERE memory = ? AND version > ?", (name, version)
            )
        )
        connection.execute("DELETE FROM memories WHERE id = ? AND version > ?", (name, version))
        connection.execute(
            "DELETE FROM provenance WHERE memory = ? AND version > ?", (name, version)
        )
    connection.executemany(
        "UPDATE memories SET live = 1, died = NULL WHERE row = ?",
        ((row,) for row, _, _ in replaced),
    )
    count = connection.execute(
        "SELECT count(*) FROM memories WHERE namespace = ? AND live = 1", (space.id,)
    ).fetchone()[0]
    space.rewrote("cold", count - space.cold.count)
    return displaced


def _return_to_hot(
    connection: sqlite3.Connection, space: Space, messages: set[str], dimension: int
) -> None:
    """Make a hot item of each message that is in no hot item and behind no live memory."""
    placed = {
        name
        for (name,) in connection.execute(
            "SELECT id FROM hot_items WHERE namespace = ?1 AND live = 1"
            " UNION SELECT m.id FROM hot_messages x JOIN messages m ON m.seq = x.message"
            " WHERE x.namespace = ?1"
            " UNION SELECT x.message FROM hot_members x JOIN hot_items h ON h.id = x.item"
            " WHERE h.namespace = ?1 AND h.live = 1"
            " UNION SELECT p.message FROM provenance p JOIN memories m ON m.id = p.memory"
            " WHERE m.namespace = ?1 AND m.live = 1",
            (space.id,),
        )
    }
    for observation, metadata, expires in messages_log.observations(
        connection, messages - placed, dimension
    ):
        item = HotItem(
            observation.id,
            observation.vector,
            first_evidence(observation.step),
            (observation.id,),
            observation.text,
        )
        hot_items.insert_hot(
            connection, space, item, metadata=metadata, expires=expires, borrowed=True
        )
        space.appended("hot")


def sleeps(connection: sqlite3.Connection, space: int) -> list[SleepReport]:
    """The reports of a namespace's sleep phases, newest first."""
    return [
        SleepReport.from_dict(json.loads(report))
        for (report,) in connection.execute(
            "SELECT report FROM sleeps WHERE namespace = ? ORDER BY id DESC", (space,)
        )
    ]
