"""``verify``: what SQLite, checksums, counts and the recorded decisions can say about a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.records import Verification
from ecs_plugins.memory.store import spaces
from ecs_plugins.memory.store.indexes import Indexes
from ecs_plugins.memory.store.items import item_problems
from ecs_plugins.memory.store.rows import crc
from ecs_plugins.memory.store.sleeps import decisions, replayed
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.types import TIERS


def verify(
    connection: sqlite3.Connection,
    indexes: Indexes,
    dimension: int,
    *,
    epoch: int,
    integrity: Sequence[str],
) -> Verification:
    """Check contents, counts, provenance, decisions, items and indexes of a file."""
    problems = list(integrity)
    checked = 0
    for table, name in (("messages", "message"), ("tiers", "item")):
        for label, text, check, vector, vector_check in connection.execute(
            f"SELECT id, text, text_crc, vector, vector_crc FROM {table}"
        ):
            checked += 1
            if crc(text) != check:
                problems.append(f"the text of {name} {label} does not match its checksum")
            if len(vector) != 4 * dimension or crc(vector) != vector_check:
                problems.append(f"the vector of {name} {label} does not match its checksum")
    problems += [
        text.format(name)
        for text, sql in _REFERENCES.items()
        for (name,) in connection.execute(sql)
    ]
    wrong, items = item_problems(connection, epoch=epoch, dimension=dimension)
    problems += wrong
    checked += items
    for space in spaces.listed(connection):
        record = decisions(connection, space.id)
        checked += len(record)
        problems += [
            f"decision {each.recorded.decision.index} of sleep {each.recorded.sleep} does not "
            "follow from its record"
            for each in replayed(record)
            if not each.agrees and not each.recorded.erased
        ]
        problems += _tiers(connection, space, indexes)
    return Verification(tuple(problems), tuple(indexes.problems(connection)), checked)


_REFERENCES = {
    "message {} is behind an item that is gone": (
        "SELECT p.message FROM provenance p LEFT JOIN tiers t ON t.id = p.item WHERE t.id IS NULL"
    ),
    "hot item {} rests on no message": (
        "SELECT t.id FROM tiers t WHERE t.tier = 'hot' AND NOT EXISTS ("
        "SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message WHERE p.item = t.id)"
    ),
    "item {} is live in two versions": (
        "SELECT id FROM tiers WHERE live = 1 GROUP BY id HAVING count(*) > 1"
    ),
}


def _tiers(connection: sqlite3.Connection, space: Space, indexes: Indexes) -> list[str]:
    problems = []
    rows = connection.execute(
        "SELECT tier, row FROM tiers WHERE namespace = ? AND live = 1", (space.id,)
    ).fetchall()
    for tier in TIERS:
        found = sum(each[0] == tier for each in rows)
        if found != space.count[tier]:
            problems.append(
                f"{space.namespace}: the {tier} tier holds {found} items and counts "
                f"{space.count[tier]}"
            )
    try:
        known = indexes.current(connection, space).index.rows()
    except StorageError as error:
        return [*problems, f"{space.namespace}: {error}"]
    if not np.array_equal(np.sort(known), np.sort([row for _, row in rows])):
        problems.append(f"{space.namespace}: the index is out of step")
    return problems
