"""The record of decisions: written by a sleep phase, listed, and recomputed by `replay`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from ecs_plugins.memory.contest import replay
from ecs_plugins.memory.records import ERASED, RecordedDecision, ReplayedDecision
from ecs_plugins.memory.store.rows import dump, next_row
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.types import SleepDecision


def record_decisions(
    connection: sqlite3.Connection,
    space: Space,
    sleep: int,
    decisions: Sequence[SleepDecision],
    *,
    erased: bool = False,
) -> None:
    """Write decisions and the ids by which they are found."""
    numbered = list(enumerate(decisions, start=next_row(connection, "decisions")))
    connection.executemany(
        "INSERT INTO decisions (id, sleep, namespace, position, erased, record)"
        " VALUES (?,?,?,?,?,?)",
        (
            (number, sleep, space.id, decision.index, int(erased), dump(decision.to_json()))
            for number, decision in numbered
        ),
    )
    connection.executemany(
        "INSERT INTO decision_items (item, decision) VALUES (?, ?)",
        ((item, number) for number, decision in numbered for item in _items(decision)),
    )


def _items(decision: SleepDecision) -> set[str]:
    return {decision.candidate_id, decision.target_id or "", *decision.members} - {"", ERASED}


def decisions(
    connection: sqlite3.Connection,
    space: int,
    *,
    sleep: int | None = None,
    item: str | None = None,
    limit: int = -1,
) -> list[RecordedDecision]:
    """Recorded decisions of a namespace, newest sleep phase first, each in its order."""
    sql = (
        "SELECT s.id, s.at, s.undone, d.erased, d.record FROM decisions d"
        " JOIN sleeps s ON s.id = d.sleep WHERE d.namespace = ?"
    )
    values: list[object] = [space]
    if sleep is not None:
        sql += " AND d.sleep = ?"
        values.append(sleep)
    if item is not None:
        sql += " AND d.id IN (SELECT decision FROM decision_items WHERE item = ?)"
        values.append(item)
    sql += " ORDER BY d.sleep DESC, d.position LIMIT ?"
    values.append(limit)
    return [
        RecordedDecision(
            number,
            at,
            undone is not None,
            bool(erased),
            SleepDecision.from_json(json.loads(record)),
        )
        for number, at, undone, erased, record in connection.execute(sql, values)
    ]


def replayed(recorded: Sequence[RecordedDecision]) -> list[ReplayedDecision]:
    """Each decision beside what follows from its own record."""
    out = []
    for each in recorded:
        recomputed = replay(each.decision)
        out.append(ReplayedDecision(each, recomputed, recomputed == each.decision))
    return out
