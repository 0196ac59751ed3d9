"""The hot tier as rows, to and from `HotItem`.

Replacing an item makes a new row. What an ``add`` replaces is gone; what a sleep phase consumes is
kept, marked with that sleep, so that the sleep can be undone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ecs_plugins.memory.evidence import first_evidence
from ecs_plugins.memory.store.rows import (
    NO_VECTOR,
    Metadata,
    among,
    dump,
    dump_evidence,
    evidence_of,
    metadata_of,
)
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import crc, damaged, pack, unpack
from ecs_plugins.memory.types import HotItem


@dataclass(frozen=True, slots=True)
class HotRow:
    """A hot item as stored."""

    row: int
    item: HotItem
    metadata: Metadata
    expires: float | None
    single: bool
    """Whether it is one message, whose text and vector it borrows."""


_HOT = (
    "SELECT h.row, h.id, h.judged, COALESCE(h.text, m.text), h.metadata, h.expires, h.evidence,"
    " {}, COALESCE(h.vector_crc, m.vector_crc), h.vector_crc IS NULL"
    " FROM hot_items h LEFT JOIN messages m ON h.vector_crc IS NULL AND m.id = h.id"
)
_HOT_WITH_VECTOR = _HOT.format("COALESCE(h.vector, m.vector)")
_HOT_WITHOUT = _HOT.format("x''")


def _hot_query(dimension: int) -> str:
    return _HOT_WITH_VECTOR if dimension else _HOT_WITHOUT


_Members: TypeAlias = Mapping[str, tuple[str, ...]]


def _hot(row: tuple[object, ...], dimension: int, members: _Members | None = None) -> HotRow:
    """A hot item; ``members`` are those of the items of several messages, None leaves them out."""
    number, name, judged, text, metadata, expires, evidence, vector, checksum, single = row
    if text is None or vector is None:
        raise damaged(f"hot item {name}", "message", "restore a backup")
    value = (
        unpack(vector, checksum, dimension, f"hot item {name}")  # type: ignore[arg-type]
        if dimension
        else NO_VECTOR
    )
    item = HotItem(
        id=str(name),
        vector=value,
        evidence=evidence_of(str(evidence)),
        members=() if members is None else members.get(str(name), (str(name),)),
        text=str(text),
        judged=judged,  # type: ignore[arg-type]
    )
    return HotRow(number, item, metadata_of(str(metadata)), expires, bool(single))  # type: ignore[arg-type]


def hot_rows(
    connection: sqlite3.Connection, rows: Iterable[int], dimension: int = 0
) -> dict[int, HotRow]:
    """Live hot items by row number, without members; ``dimension`` 0 leaves out the vectors."""
    sql, values = among("h.row", list(rows))
    found = connection.execute(f"{_hot_query(dimension)} WHERE {sql} AND h.live = 1", values)
    return {row[0]: _hot(row, dimension) for row in found}


def hot_tier(
    connection: sqlite3.Connection, space: int, dimension: int = 0, *, members: bool = False
) -> list[HotRow]:
    """The hot tier in order of arrival; ``dimension`` 0 leaves out the vectors."""
    of_item = members_of(connection, space) if members else None
    return [
        _hot(row, dimension, of_item)
        for row in connection.execute(
            _hot_query(dimension) + " WHERE h.namespace = ? AND h.live = 1 ORDER BY h.first, h.row",
            (space,),
        )
    ]


def members_of(connection: sqlite3.Connection, space: int) -> dict[str, tuple[str, ...]]:
    """The message ids of every live hot item of several messages, oldest first."""
    found: dict[str, list[str]] = {}
    for item, message in connection.execute(
        "SELECT x.item, x.message FROM hot_items h"
        " JOIN hot_members x ON x.item = h.id LEFT JOIN messages m ON m.id = x.message"
        " WHERE h.namespace = ? AND h.live = 1 ORDER BY m.seq",
        (space,),
    ):
        found.setdefault(item, []).append(message)
    return {item: tuple(members) for item, members in found.items()}


def members_of_items(
    connection: sqlite3.Connection, items: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The message ids of hot items of several messages, oldest first."""
    found: dict[str, list[str]] = {}
    for item, message in connection.execute(
        "SELECT x.item, x.message FROM hot_members x LEFT JOIN messages m ON m.id = x.message"
        " WHERE x.item IN (SELECT value FROM json_each(?)) ORDER BY m.seq",
        (dump(list(items)),),
    ):
        found.setdefault(item, []).append(message)
    return {item: tuple(members) for item, members in found.items()}


def insert_hot(
    connection: sqlite3.Connection,
    space: Space,
    item: HotItem,
    *,
    metadata: Metadata,
    expires: float | None,
    borrowed: bool,
    row: int | None = None,
) -> int:
    """Append a live hot item; ``borrowed`` if text and vector are those of message ``item.id``.

    ``row`` is a row number that was never used before; None takes the next one.
    """
    vector = None if borrowed else pack(item.vector)
    cursor = connection.execute(
        "INSERT INTO hot_items (row, id, namespace, live, first, support, judged, text, metadata,"
        " expires, evidence, vector, vector_crc) VALUES (?,?,?,1,?,?,?,?,?,?,?,?,?)",
        (
            row,
            item.id,
            space.id,
            item.evidence.created,
            item.evidence.support,
            item.judged,
            None if borrowed else item.text,
            dump(metadata),
            expires,
            dump_evidence(item.evidence),
            vector,
            None if vector is None else crc(vector),
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


_STEP = -987654321  # stands for the step in the evidence of an item that is founded by a message
_FOUNDED = dump_evidence(first_evidence(_STEP, None))


def found_hot(connection: sqlite3.Connection, messages: range, row: int | None = None) -> None:
    """Let each of several messages without a label found a live hot item.

    Within the database, because for most messages nothing else is written.

    Args:
        connection: Inside a write transaction.
        messages: Their row numbers.
        row: The row number of the first item, never used before; None takes the next one. The
            others follow.
    """
    connection.execute(
        "INSERT INTO hot_items (row, id, namespace, live, first, support, judged, text, metadata,"
        " expires, evidence, vector, vector_crc)"
        " SELECT seq + ?, id, namespace, 1, step, 1, 0, NULL, metadata, expires,"
        f" replace(?, '{_STEP}', step), NULL, NULL FROM messages WHERE seq BETWEEN ? AND ?"
        " ORDER BY seq",
        (
            None if row is None else row - messages.start,
            _FOUNDED,
            messages.start,
            messages.stop - 1,
        ),
    )


def add_members(connection: sqlite3.Connection, members: Iterable[tuple[str, str]]) -> None:
    """Note which messages hot items hold: pairs of an item and a message."""
    connection.executemany(
        "INSERT OR IGNORE INTO hot_members (item, message) VALUES (?, ?)", members
    )


def delete_hot(connection: sqlite3.Connection, rows: Iterable[int]) -> None:
    """Delete rows; what no row of the item is left for, its members, go too."""
    for row in rows:
        connection.execute(
            "DELETE FROM hot_members WHERE item = (SELECT id FROM hot_items WHERE row = ?)"
            " AND NOT EXISTS (SELECT 1 FROM hot_items o WHERE o.id = hot_members.item"
            " AND o.row != ?)",
            (row, row),
        )
        connection.execute("DELETE FROM hot_items WHERE row = ?", (row,))


def update_hot(connection: sqlite3.Connection, row: int, item: HotItem) -> None:
    """Write what changes without the vector: evidence and judgement."""
    connection.execute(
        "UPDATE hot_items SET evidence = ?, support = ?, judged = ? WHERE row = ?",
        (dump_evidence(item.evidence), item.evidence.support, item.judged, row),
    )
