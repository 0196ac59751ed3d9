"""The two tiers as rows: hot items and cold memories, to and from the values of `types`.

Replacing an item makes a new row. What an ``add`` replaces is gone; what a sleep phase replaces
is kept, marked with that sleep, so that the sleep can be undone and a memory's history be told.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ecs_plugins.memory.spaces import Space
from ecs_plugins.memory.types import ColdMemory, Evidence, FreeEnergy, HotItem, Vector
from ecs_plugins.memory.vectors import crc, damaged, pack, unpack

Metadata = Mapping[str, object]

NO_VECTOR: Vector = np.empty(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class HotRow:
    """A hot item as stored."""

    row: int
    item: HotItem
    metadata: Metadata
    expires: float | None
    single: bool
    """Whether it is one message, whose text and vector it borrows."""


@dataclass(frozen=True, slots=True)
class ColdRow:
    """One version of a cold memory as stored."""

    row: int
    version: int
    space: int
    live: bool
    born: int | None
    died: int | None
    memory: ColdMemory
    metadata: Metadata
    created: float
    changed: float
    expires: float | None
    judged: FreeEnergy | None
    """Its free energy when a sleep phase last computed it."""


@lru_cache(maxsize=16384)
def _evidence(text: str) -> Evidence:
    return Evidence.from_json(json.loads(text))


@lru_cache(maxsize=4096)
def _metadata(text: str) -> Metadata:
    data: dict[str, object] = json.loads(text)
    return data


def dump(data: object) -> str:
    """Compact JSON."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def shared(left: Metadata, right: Metadata) -> dict[str, object]:
    """What two sets of metadata agree on: the metadata of an item that merges both."""
    return {key: value for key, value in left.items() if key in right and right[key] == value}


def earliest(*times: float | None) -> float | None:
    """The first of several expiries; None is never."""
    return min((time for time in times if time is not None), default=None)


# Hot items

_HOT = (
    "SELECT h.row, h.id, h.judged, COALESCE(h.text, m.text), h.metadata, h.expires, h.evidence,"
    " COALESCE(h.vector, m.vector), COALESCE(h.vector_crc, m.vector_crc), h.vector IS NULL"
    " FROM hot_items h LEFT JOIN messages m ON h.vector IS NULL AND m.id = h.id"
)


def _hot(row: tuple[object, ...], dimension: int) -> HotRow:
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
        evidence=_evidence(str(evidence)),
        members=(),
        text=str(text),
        judged=judged,  # type: ignore[arg-type]
    )
    return HotRow(number, item, _metadata(str(metadata)), expires, bool(single))  # type: ignore[arg-type]


def hot_rows(
    connection: sqlite3.Connection, rows: Iterable[int], dimension: int = 0
) -> dict[int, HotRow]:
    """Live hot items by row number, without members; ``dimension`` 0 leaves out the vectors."""
    found = connection.execute(
        _HOT + " WHERE h.row IN (SELECT value FROM json_each(?)) AND h.live = 1",
        (dump(list(rows)),),
    )
    return {row[0]: _hot(row, dimension) for row in found}


def hot_tier(
    connection: sqlite3.Connection, space: int, dimension: int = 0, *, members: bool = False
) -> list[HotRow]:
    """The hot tier in order of arrival; ``dimension`` 0 leaves out the vectors."""
    rows = [
        _hot(row, dimension)
        for row in connection.execute(
            _HOT + " WHERE h.namespace = ? AND h.live = 1 ORDER BY h.first, h.row", (space,)
        )
    ]
    if not members:
        return rows
    of_item = members_of(connection, space)
    return [
        replace(row, item=replace(row.item, members=of_item.get(row.item.id, (row.item.id,))))
        for row in rows
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
) -> int:
    """Append a live hot item; ``borrowed`` if text and vector are those of message ``item.id``."""
    vector = None if borrowed else pack(item.vector)
    cursor = connection.execute(
        "INSERT INTO hot_items (id, namespace, live, first, support, judged, text, metadata,"
        " expires, evidence, vector, vector_crc) VALUES (?,?,1,?,?,?,?,?,?,?,?,?)",
        (
            item.id,
            space.id,
            item.evidence.created,
            item.evidence.support,
            item.judged,
            None if borrowed else item.text,
            dump(metadata),
            expires,
            dump(item.evidence.to_json()),
            vector,
            None if vector is None else crc(vector),
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def add_members(connection: sqlite3.Connection, item: str, messages: Iterable[str]) -> None:
    """Note which messages a hot item holds."""
    connection.executemany(
        "INSERT OR IGNORE INTO hot_members (message, item) VALUES (?, ?)",
        ((message, item) for message in messages),
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
        (dump(item.evidence.to_json()), item.evidence.support, item.judged, row),
    )


# Cold memories

_COLD = (
    "SELECT row, id, version, namespace, live, born, died, text, metadata, created, changed,"
    " expires, pinned, energy, entropy, free_energy, cluster_entropy, utility, evidence,"
    " vector, text_crc, vector_crc FROM memories"
)


def _cold(row: tuple[object, ...], dimension: int) -> ColdRow:
    (
        number, name, version, space, live, born, died, text, metadata, created, changed,
        expires, pinned, energy, entropy, total, cluster_entropy, utility, evidence, vector,
        text_crc, vector_crc,
    ) = row  # fmt: skip
    if crc(str(text)) != text_crc:
        raise damaged(f"memory {name}", "text", "restore a backup, or delete the memory")
    judged = None
    if total is not None:
        judged = FreeEnergy(energy, entropy, total)  # type: ignore[arg-type]
    memory = ColdMemory(
        id=str(name),
        vector=(
            unpack(vector, vector_crc, dimension, f"memory {name}")  # type: ignore[arg-type]
            if dimension
            else NO_VECTOR
        ),
        evidence=_evidence(str(evidence)),
        text=str(text),
        pinned=bool(pinned),
        entropy=cluster_entropy,  # type: ignore[arg-type]
        utility=utility,  # type: ignore[arg-type]
    )
    return ColdRow(
        number,  # type: ignore[arg-type]
        version,  # type: ignore[arg-type]
        space,  # type: ignore[arg-type]
        bool(live),
        born,  # type: ignore[arg-type]
        died,  # type: ignore[arg-type]
        memory,
        _metadata(str(metadata)),
        created,  # type: ignore[arg-type]
        changed,  # type: ignore[arg-type]
        expires,  # type: ignore[arg-type]
        judged,
    )


def cold_rows(
    connection: sqlite3.Connection, rows: Iterable[int], dimension: int = 0
) -> dict[int, ColdRow]:
    """Live cold memories by row number; ``dimension`` 0 leaves out the vectors."""
    found = connection.execute(
        _COLD + " WHERE row IN (SELECT value FROM json_each(?)) AND live = 1", (dump(list(rows)),)
    )
    return {row[0]: _cold(row, dimension) for row in found}


def cold_tier(connection: sqlite3.Connection, space: int, dimension: int = 0) -> list[ColdRow]:
    """The cold tier, oldest row first; ``dimension`` 0 leaves out the vectors."""
    return [
        _cold(row, dimension)
        for row in connection.execute(
            _COLD + " WHERE namespace = ? AND live = 1 ORDER BY row", (space,)
        )
    ]


def versions(connection: sqlite3.Connection, name: str, dimension: int = 0) -> list[ColdRow]:
    """Every stored version of a memory, oldest first."""
    rows = connection.execute(_COLD + " WHERE id = ? ORDER BY version", (name,))
    return [_cold(row, dimension) for row in rows]


def insert_cold(
    connection: sqlite3.Connection,
    space: Space,
    memory: ColdMemory,
    *,
    version: int,
    metadata: Metadata,
    created: float,
    changed: float,
    expires: float | None,
    born: int | None = None,
    judged: FreeEnergy | None = None,
) -> int:
    """Append a live version of a memory."""
    vector = pack(memory.vector)
    cursor = connection.execute(
        "INSERT INTO memories (id, version, namespace, live, born, text, metadata, created,"
        " changed, expires, pinned, energy, entropy, free_energy, cluster_entropy, utility,"
        " evidence, vector, text_crc, vector_crc)"
        " VALUES (?,?,?,1,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            memory.id,
            version,
            space.id,
            born,
            memory.text,
            dump(metadata),
            created,
            changed,
            expires,
            int(memory.pinned),
            None if judged is None else judged.energy,
            None if judged is None else judged.entropy,
            None if judged is None else judged.total,
            memory.entropy,
            memory.utility,
            dump(memory.evidence.to_json()),
            vector,
            crc(memory.text),
            crc(vector),
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def retire_cold(connection: sqlite3.Connection, rows: Iterable[int], sleep: int | None) -> None:
    """Take versions out of the tier: kept for ``sleep``'s undo, or deleted if there is none."""
    if sleep is None:
        connection.executemany("DELETE FROM memories WHERE row = ?", ((row,) for row in rows))
    else:
        connection.executemany(
            "UPDATE memories SET live = 0, died = ? WHERE row = ?", ((sleep, row) for row in rows)
        )


def update_cold(connection: sqlite3.Connection, row: int, memory: ColdMemory) -> None:
    """Write what changes without the vector: evidence and pin."""
    connection.execute(
        "UPDATE memories SET evidence = ?, pinned = ? WHERE row = ?",
        (dump(memory.evidence.to_json()), int(memory.pinned), row),
    )


def add_provenance(
    connection: sqlite3.Connection, memory: str, version: int, messages: Iterable[str]
) -> None:
    """Note which messages joined a memory at a version."""
    connection.executemany(
        "INSERT OR IGNORE INTO provenance (message, memory, version) VALUES (?, ?, ?)",
        ((message, memory, version) for message in messages),
    )


def provenance_of(
    connection: sqlite3.Connection, memories: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The message ids behind memories, in the order of their joining."""
    found: dict[str, list[str]] = {}
    for memory, message in connection.execute(
        "SELECT p.memory, p.message FROM provenance p LEFT JOIN messages m ON m.id = p.message"
        " WHERE p.memory IN (SELECT value FROM json_each(?)) ORDER BY p.version, m.seq",
        (dump(list(memories)),),
    ):
        found.setdefault(memory, []).append(message)
    return {memory: tuple(messages) for memory, messages in found.items()}
