"""The cold tier as rows, to and from `ColdMemory`.

Replacing a memory makes a new version. What an ``add`` replaces is gone; what a sleep phase
replaces is kept, marked with that sleep, so that it can be undone and a memory's history be told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
from ecs_plugins.memory.types import ColdMemory, FreeEnergy


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


_COLD = (
    "SELECT row, id, version, namespace, live, born, died, text, metadata, created, changed,"
    " expires, pinned, energy, entropy, free_energy, cluster_entropy, evidence, vector,"
    " text_crc, vector_crc FROM memories"
)


def _cold(row: tuple[object, ...], dimension: int) -> ColdRow:
    (
        number, name, version, space, live, born, died, text, metadata, created, changed,
        expires, pinned, energy, entropy, total, cluster_entropy, evidence, vector,
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
        evidence=evidence_of(str(evidence)),
        text=str(text),
        pinned=bool(pinned),
        entropy=cluster_entropy,  # type: ignore[arg-type]
    )
    return ColdRow(
        number,  # type: ignore[arg-type]
        version,  # type: ignore[arg-type]
        space,  # type: ignore[arg-type]
        bool(live),
        born,  # type: ignore[arg-type]
        died,  # type: ignore[arg-type]
        memory,
        metadata_of(str(metadata)),
        created,  # type: ignore[arg-type]
        changed,  # type: ignore[arg-type]
        expires,  # type: ignore[arg-type]
        judged,
    )


def cold_rows(
    connection: sqlite3.Connection, rows: Iterable[int], dimension: int = 0
) -> dict[int, ColdRow]:
    """Live cold memories by row number; ``dimension`` 0 leaves out the vectors."""
    sql, values = among("row", list(rows))
    found = connection.execute(f"{_COLD} WHERE {sql} AND live = 1", values)
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


_INSERT = (
    "INSERT INTO memories (row, id, version, namespace, live, born, text, metadata, created,"
    " changed, expires, pinned, energy, entropy, free_energy, cluster_entropy, utility,"
    " evidence, vector, text_crc, vector_crc)"
    " VALUES (?,?,?,?,1,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


def stored_judgement(row: ColdRow) -> tuple[float | None, float | None, float | None]:
    """The columns of its free energy: energy, entropy and their sum."""
    judged = row.judged
    return (None, None, None) if judged is None else (judged.energy, judged.entropy, judged.total)


def _stored(new: ColdRow) -> tuple[object, ...]:
    memory = new.memory
    vector = pack(memory.vector)
    return (
        new.row or None,
        memory.id,
        new.version,
        new.space,
        new.born,
        memory.text,
        dump(new.metadata) if new.metadata else "{}",
        new.created,
        new.changed,
        new.expires,
        int(memory.pinned),
        *stored_judgement(new),
        memory.entropy,
        0.0,  # of version 0.1: the utility when it was inserted
        dump_evidence(memory.evidence),
        vector,
        crc(memory.text),
        crc(vector),
    )


def insert_all(connection: sqlite3.Connection, rows: Iterable[ColdRow]) -> None:
    """Append live versions, each as its row number; 0 stands for the next one."""
    connection.executemany(_INSERT, map(_stored, rows))


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
    """Append a live version of a memory; returns its row number, never used before."""
    cursor = connection.execute(
        _INSERT,
        _stored(
            ColdRow(
                0, version, space.id, True, born, None, memory, metadata, created, changed,
                expires, judged,
            )
        ),
    )  # fmt: skip
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
        (dump_evidence(memory.evidence), int(memory.pinned), row),
    )


def add_provenance(
    connection: sqlite3.Connection, memory: str, version: int, messages: Iterable[str]
) -> None:
    """Note which messages joined a memory at a version."""
    join(connection, ((message, memory, version) for message in messages))


def join(connection: sqlite3.Connection, joined: Iterable[tuple[str, str, int]]) -> None:
    """Note provenance: which message joined which memory at which version."""
    connection.executemany(
        "INSERT OR IGNORE INTO provenance (message, memory, version) VALUES (?, ?, ?)", joined
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
