"""The hot tier as rows, to and from `HotItem`.

A message that founds an item is one by being in the log (`hot_messages`): the item is what the
message says. It gets a row in `hot_items` when there is more to write, such as a hit (`write_out`).
The row number of an item is that of the message in the log that made it what it is.

Replacing an item makes a new row. What an ``add`` replaces is gone; what a sleep phase consumes is
kept, marked with that sleep, so that the sleep can be undone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    next_row,
    take_row,
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


LIVE_ROWS = (
    "SELECT row FROM hot_items WHERE namespace = ?1 AND live = 1"
    " UNION ALL SELECT message FROM hot_messages WHERE namespace = ?1"
)
"""The row numbers of the hot tier of a namespace."""

LIVE_METADATA = (
    "SELECT row, metadata FROM hot_items WHERE namespace = ?1 AND live = 1"
    " UNION ALL SELECT m.seq, m.metadata FROM hot_messages x JOIN messages m ON m.seq = x.message"
    " WHERE x.namespace = ?1"
)
"""The same with their metadata."""

LIVE_VECTORS = (
    "SELECT h.row, COALESCE(h.vector, m.vector), COALESCE(h.vector_crc, m.vector_crc), h.id"
    " FROM hot_items h LEFT JOIN messages m ON h.vector IS NULL AND m.id = h.id"
    " WHERE h.namespace = ?1 AND h.live = 1 AND h.row > ?2"
    " UNION ALL SELECT x.message, m.vector, m.vector_crc, m.id"
    " FROM hot_messages x JOIN messages m ON m.seq = x.message"
    " WHERE x.namespace = ?1 AND x.message > ?2 ORDER BY 1"
)
"""Row number, vector, checksum and id of those above a row number, in the order of the numbers."""


def _live(dimension: int, rows: str = "", messages: str = "") -> str:
    """A query for live hot items.

    Its parameters are the namespace and those of the condition ``rows`` on `hot_items`, then the
    namespace and those of the condition ``messages`` on `hot_messages`.
    """
    written = "COALESCE(h.vector, m.vector)" if dimension else "x''"
    listed = "m.vector" if dimension else "x''"
    return (
        "SELECT h.row, h.id, h.judged, COALESCE(h.text, m.text), h.metadata, h.expires,"
        f" h.first, h.evidence, {written}, COALESCE(h.vector_crc, m.vector_crc),"
        " h.vector_crc IS NULL"
        " FROM hot_items h LEFT JOIN messages m ON h.vector_crc IS NULL AND m.id = h.id"
        f" WHERE h.namespace = ? AND h.live = 1{rows}"
        " UNION ALL"
        " SELECT m.seq, m.id, 0, m.text, m.metadata, m.expires,"
        f" m.step, NULL, {listed}, m.vector_crc, 1"
        " FROM hot_messages x JOIN messages m ON m.seq = x.message"
        f" WHERE x.namespace = ?{messages}"
    )


_FIRST = 6  # its place among the columns

_Members: TypeAlias = Mapping[str, tuple[str, ...]]


def _hot(row: tuple[object, ...], dimension: int, members: _Members | None = None) -> HotRow:
    """A hot item; ``members`` are those of the items of several messages, None leaves them out."""
    number, name, judged, text, metadata, expires, first, evidence, vector, checksum, single = row
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
        evidence=(
            first_evidence(first)  # type: ignore[arg-type]
            if evidence is None
            else evidence_of(str(evidence))
        ),
        members=() if members is None else members.get(str(name), (str(name),)),
        text=str(text),
        judged=judged,  # type: ignore[arg-type]
    )
    return HotRow(number, item, metadata_of(str(metadata)), expires, bool(single))  # type: ignore[arg-type]


def hot_rows(
    connection: sqlite3.Connection, space: int, rows: Iterable[int], dimension: int = 0
) -> dict[int, HotRow]:
    """Live hot items by row number, without members; ``dimension`` 0 leaves out the vectors."""
    numbers = list(rows)
    written, values = among("h.row", numbers)
    listed, _ = among("x.message", numbers)
    sql = _live(dimension, f" AND {written}", f" AND {listed}")
    found = connection.execute(sql, (space, *values, space, *values))
    return {row[0]: _hot(row, dimension) for row in found}


def live_rows(connection: sqlite3.Connection, space: int, ids: Iterable[str]) -> list[int]:
    """The row numbers of live hot items by id."""
    found = connection.execute(
        "SELECT row FROM hot_items WHERE id IN (SELECT value FROM json_each(?2))"
        " AND +namespace = ?1 AND +live = 1"
        " UNION ALL SELECT message FROM hot_messages WHERE namespace = ?1 AND message IN"
        " (SELECT seq FROM messages WHERE id IN (SELECT value FROM json_each(?2)))",
        (space, dump(list(ids))),
    )
    return [row for (row,) in found]


def hot_tier(
    connection: sqlite3.Connection, space: int, dimension: int = 0, *, members: bool = False
) -> list[HotRow]:
    """The hot tier in order of arrival; ``dimension`` 0 leaves out the vectors."""
    of_item = members_of(connection, space) if members else None
    rows = connection.execute(_live(dimension), (space, space)).fetchall()
    rows.sort(key=lambda row: (row[_FIRST], row[0]))
    return [_hot(row, dimension, of_item) for row in rows]


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


def items_with(connection: sqlite3.Connection, messages: Iterable[str]) -> list[str]:
    """The ids of the hot items of several messages that hold any of these."""
    found = connection.execute(
        "SELECT DISTINCT item FROM hot_members WHERE message IN (SELECT value FROM json_each(?))",
        (dump(list(messages)),),
    )
    return [item for (item,) in found]


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

    ``row`` is that of a message which made it what it is; None takes a new one.
    """
    if row is None:
        row = take_row(connection, "messages")
    vector = None if borrowed else pack(item.vector)
    connection.execute(
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
    return row


def mark_not_hot(connection: sqlite3.Connection, space: int, rows: Iterable[int]) -> None:
    """Note that messages are no hot items by themselves; ``rows`` in the log."""
    connection.executemany(
        "INSERT OR IGNORE INTO not_hot (namespace, message) VALUES (?, ?)",
        ((space, row) for row in rows),
    )


def hot_from_now(connection: sqlite3.Connection, space: int) -> None:
    """Let only messages that are yet to come be hot items by themselves."""
    since = next_row(connection, "messages")
    connection.execute("UPDATE namespaces SET hot_since = ? WHERE id = ?", (since, space))
    connection.execute("DELETE FROM not_hot WHERE namespace = ?", (space,))


_STEP = -987654321  # stands for the step in the evidence of an item that is one message
_FOUNDED = dump_evidence(first_evidence(_STEP))


def write_out(connection: sqlite3.Connection, space: int, rows: Sequence[int]) -> None:
    """Give live hot items a row in `hot_items` where they are messages; the number stays."""
    condition, values = among("message", rows)
    found = connection.execute(
        f"SELECT message FROM hot_messages WHERE namespace = ? AND {condition}", (space, *values)
    ).fetchall()
    messages = [row for (row,) in found]
    _write_out(connection, messages)
    mark_not_hot(connection, space, messages)


def consume(connection: sqlite3.Connection, space: int, rows: Collection[int], sleep: int) -> None:
    """Take items out of the tier, kept for the undo of a sleep phase.

    The rest is written out, so that messages before the sleep phase need not be told apart again.
    """
    consumed = set(rows)
    listed = [
        row
        for (row,) in connection.execute(
            "SELECT message FROM hot_messages WHERE namespace = ?", (space,)
        )
    ]
    _write_out(connection, [row for row in listed if row in consumed], died=sleep)
    _write_out(connection, [row for row in listed if row not in consumed])
    hot_from_now(connection, space)
    connection.executemany(
        "UPDATE hot_items SET live = 0, died = ? WHERE row = ?",
        ((sleep, row) for row in consumed.difference(listed)),
    )


def _write_out(
    connection: sqlite3.Connection, messages: Sequence[int], died: int | None = None
) -> None:
    if not messages:
        return
    condition, values = among("seq", messages)
    connection.execute(
        "INSERT INTO hot_items (row, id, namespace, live, died, first, support, judged, metadata,"
        " expires, evidence) SELECT seq, id, namespace, ?, ?, step, 1, 0, metadata, expires,"
        f" replace('{_FOUNDED}', '{_STEP}', step) FROM messages WHERE {condition} ORDER BY seq",
        (int(died is None), died, *values),
    )


def add_members(connection: sqlite3.Connection, members: Iterable[tuple[str, str]]) -> None:
    """Note which messages hot items hold: pairs of an item and a message."""
    connection.executemany(
        "INSERT OR IGNORE INTO hot_members (item, message) VALUES (?, ?)", members
    )


def delete_hot(connection: sqlite3.Connection, space: int, rows: Iterable[int]) -> None:
    """Delete live items; what no row of the item is left for, its members, go too."""
    messages = []
    for row in rows:
        found = connection.execute("SELECT id FROM hot_items WHERE row = ?", (row,)).fetchone()
        if found is None:
            messages.append(row)
            continue
        connection.execute(
            "DELETE FROM hot_members WHERE item = ?"
            " AND NOT EXISTS (SELECT 1 FROM hot_items o WHERE o.id = hot_members.item"
            " AND o.row != ?)",
            (*found, row),
        )
        connection.execute("DELETE FROM hot_items WHERE row = ?", (row,))
    if messages:
        mark_not_hot(connection, space, messages)


def update_hot(connection: sqlite3.Connection, space: int, row: int, item: HotItem) -> None:
    """Write what changes without the vector: evidence and judgement."""
    write_out(connection, space, [row])
    connection.execute(
        "UPDATE hot_items SET evidence = ?, support = ?, judged = ? WHERE row = ?",
        (dump_evidence(item.evidence), item.evidence.support, item.judged, row),
    )
