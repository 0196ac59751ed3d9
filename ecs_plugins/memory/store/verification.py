"""``verify``: every promise of the file that can be checked, checked."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import numpy as np

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.store import spaces
from ecs_plugins.memory.store.decisions import decisions, replayed
from ecs_plugins.memory.store.hot_items import LIVE_ROWS
from ecs_plugins.memory.store.item_transfer import item_problems
from ecs_plugins.memory.store.open_indexes import OpenIndexes
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import crc
from ecs_plugins.memory.types import TIERS

_LIVE = {
    "hot": LIVE_ROWS,
    "cold": "SELECT row FROM memories WHERE namespace = ? AND live = 1",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found.

    Attributes:
        problems: One line each; empty when the file keeps all its promises.
        rebuildable: Problems of files that are caches and are built anew by themselves.
        checked: Messages, hot items, memory versions, decisions, key-value items and their
            vectors looked at.
    """

    problems: tuple[str, ...]
    rebuildable: tuple[str, ...]
    checked: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the memories themselves."""
        return not self.problems


def verify(
    connection: sqlite3.Connection,
    indexes: OpenIndexes,
    dimension: int,
    *,
    epoch: int,
    integrity: list[str],
) -> Verification:
    """Check contents, counts, provenance, decisions, items and indexes of a file."""
    problems = list(integrity)
    checked = 0
    for table, name in (("messages", "message"), ("memories", "memory"), ("hot_items", "hot item")):
        text = "NULL, NULL" if table == "hot_items" else "text, text_crc"
        for label, content, check, vector, vector_check in connection.execute(
            f"SELECT id, {text}, vector, vector_crc FROM {table}"
        ):
            checked += 1
            if content is not None and crc(content) != check:
                problems.append(f"the text of {name} {label} does not match its checksum")
            if vector is None:
                continue
            if len(vector) != 4 * dimension or crc(vector) != vector_check:
                problems.append(f"the vector of {name} {label} does not match its checksum")
    checked += connection.execute("SELECT count(*) FROM hot_messages").fetchone()[0]
    problems += _references(connection)
    wrong, items = item_problems(connection, epoch=epoch, dimension=dimension)
    problems += wrong
    checked += items
    for space in spaces.listed(connection):
        problems += _counts(connection, space)
        record = decisions(connection, space.id)
        checked += len(record)
        problems += [
            f"decision {each.recorded.decision.index} of sleep {each.recorded.sleep} does not "
            "follow from its record"
            for each in replayed(record)
            if not each.agrees and not each.recorded.erased
        ]
        problems += _index(connection, space, indexes)
    return Verification(tuple(problems), tuple(indexes.snapshots.check(connection)), checked)


def _references(connection: sqlite3.Connection) -> list[str]:
    queries = {
        "hot item {} borrows from a message that is gone": (
            "SELECT h.id FROM hot_items h LEFT JOIN messages m ON m.id = h.id"
            " WHERE h.vector IS NULL AND m.id IS NULL"
        ),
        "message {} is a member of a hot item that is gone": (
            "SELECT x.message FROM hot_members x LEFT JOIN hot_items h ON h.id = x.item"
            " WHERE h.id IS NULL"
        ),
        "message {} is behind a memory that is gone": (
            "SELECT p.message FROM provenance p LEFT JOIN memories m ON m.id = p.memory"
            " WHERE m.id IS NULL"
        ),
        "memory {} is live in two versions": (
            "SELECT id FROM memories WHERE live = 1 GROUP BY id HAVING count(*) > 1"
        ),
        "hot item {} is live twice": (
            "SELECT id FROM (SELECT id FROM hot_items WHERE live = 1 UNION ALL"
            " SELECT m.id FROM hot_messages x JOIN messages m ON m.seq = x.message)"
            " GROUP BY id HAVING count(*) > 1"
        ),
    }
    return [
        text.format(name) for text, sql in queries.items() for (name,) in connection.execute(sql)
    ]


def _counts(connection: sqlite3.Connection, space: Space) -> list[str]:
    problems = []
    for tier in TIERS:
        rows = connection.execute(f"SELECT count(*) FROM ({_LIVE[tier]})", (space.id,)).fetchone()[
            0
        ]
        if rows != space.tier(tier).count:
            problems.append(
                f"{space.namespace}: the {tier} tier holds {rows} items and counts "
                f"{space.tier(tier).count}"
            )
    return problems


def _index(connection: sqlite3.Connection, space: Space, indexes: OpenIndexes) -> list[str]:
    problems = []
    for tier in TIERS:
        rows = [row for (row,) in connection.execute(_LIVE[tier], (space.id,))]
        try:
            entries = indexes.entries(connection, space, tier)
        except StorageError as error:
            problems.append(f"{space.namespace}: {error}")
            continue
        if not np.array_equal(np.sort(entries), np.sort(np.asarray(rows, dtype=np.int64))):
            problems.append(f"{space.namespace}: the index of the {tier} tier is out of step")
    return problems
