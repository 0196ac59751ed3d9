"""Export to JSON lines: one object per line, a header first, a footer last.

What is exported is what a memory holds now: the log, both tiers with their provenance and
evidence, sleep phases and decisions, key-value items. Earlier versions of memories, which `undo`
needs, stay behind. Vectors travel as base64 float32.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.store import cold_memories, hot_items, spaces
from ecs_plugins.memory.store.database import refuse_open_database
from ecs_plugins.memory.store.item_transfer import Line, exported_items
from ecs_plugins.memory.store.rows import dump
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import pack, unpack
from ecs_plugins.memory.types import Vector

FORMAT = "ecs-plugins-memory"
VERSION = 2


def write_export(path: str | os.PathLike[str], lines: Iterator[Line]) -> int:
    """Write lines aside, flush, rename; the footer carries their number and hash.

    Returns:
        How many lines were written, header and footer included.

    Raises:
        StorageError: The file could not be written; nothing is left of it.
    """
    target = Path(path)
    refuse_open_database(target)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    digest, count = hashlib.sha256(), 0
    try:
        descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for line in lines:
                content = dump(line).encode() + b"\n"
                digest.update(content)
                file.write(content)
                count += 1
            footer = {"kind": "end", "lines": count, "sha256": digest.hexdigest()}
            file.write(dump(footer).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        why = error.strerror or str(error)  # not its file name, which is that of the file aside
        raise StorageError(
            f"cannot write {target}: {why}; choose another place, in a directory that exists"
        ) from error
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return count + 1


def exported(
    connection: sqlite3.Connection,
    prefix: Namespace | None,
    *,
    embedder: dict[str, object],
    dimension: int,
    epoch: int,
    now: float,
) -> Iterator[Line]:
    """The lines of an export; expired messages, and what rests on them, are left out."""
    yield {
        "kind": "header",
        "format": FORMAT,
        "version": VERSION,
        "embedder": embedder,
        "exported": now,
    }
    for space in spaces.listed(connection, prefix):
        yield {
            "kind": "namespace",
            "labels": list(space.namespace),
            "step": space.step,
            "since_sleep": space.since_sleep,
            "novel": space.novel,
            "cycle": space.cycle,
        }
        yield from _messages(connection, space, dimension, now)
        yield from _items(connection, space, dimension, now)
        yield from _memories(connection, space, dimension, now)
        yield from _decisions(connection, space)
    yield from exported_items(connection, prefix, epoch=epoch, dimension=dimension, now=now)


def _base64(vector: Vector) -> str:
    return base64.b64encode(pack(vector)).decode()


def _messages(
    connection: sqlite3.Connection, space: Space, dimension: int, now: float
) -> Iterator[Line]:
    for row in connection.execute(
        "SELECT id, step, role, writer, text, metadata, created, expires, vector,"
        " vector_crc FROM messages WHERE namespace = ? AND (expires IS NULL OR expires > ?)"
        " ORDER BY seq",
        (space.id, now),
    ):
        name, step, role, writer, text, metadata, created, expires, vector, check = row
        yield {
            "kind": "message",
            "id": name,
            "step": step,
            "role": role,
            "writer": writer,
            "text": text,
            "metadata": json.loads(metadata),
            "created": created,
            "expires": expires,
            "vector": _base64(unpack(vector, check, dimension, f"message {name}")),
        }


def _items(
    connection: sqlite3.Connection, space: Space, dimension: int, now: float
) -> Iterator[Line]:
    for row in hot_items.hot_tier(connection, space.id, dimension, members=True):
        if row.expires is None or row.expires > now:
            yield {
                "kind": "hot",
                "id": row.item.id,
                "members": list(row.item.members),
                "single": row.single,
                "text": row.item.text,
                "judged": row.item.judged,
                "metadata": dict(row.metadata),
                "expires": row.expires,
                "evidence": row.item.evidence.to_json(),
                "vector": None if row.single else _base64(row.item.vector),
            }


def _memories(
    connection: sqlite3.Connection, space: Space, dimension: int, now: float
) -> Iterator[Line]:
    rows = cold_memories.cold_tier(connection, space.id, dimension)
    behind = cold_memories.provenance_of(connection, [row.memory.id for row in rows])
    for row in rows:
        memory = row.memory
        if row.expires is None or row.expires > now:
            yield {
                "kind": "memory",
                "id": memory.id,
                "version": row.version,
                "text": memory.text,
                "metadata": dict(row.metadata),
                "pinned": memory.pinned,
                "entropy": memory.entropy,
                "judged": None
                if row.judged is None
                else [row.judged.energy, row.judged.entropy, row.judged.total],
                "created": row.created,
                "changed": row.changed,
                "expires": row.expires,
                "provenance": list(behind.get(memory.id, ())),
                "evidence": memory.evidence.to_json(),
                "vector": _base64(memory.vector),
            }


def _decisions(connection: sqlite3.Connection, space: Space) -> Iterator[Line]:
    for sleep, at, undone, config, report in connection.execute(
        "SELECT id, at, undone, config, report FROM sleeps WHERE namespace = ? ORDER BY id",
        (space.id,),
    ):
        yield {
            "kind": "sleep",
            "at": at,
            "undone": undone,
            "config": json.loads(config),
            "report": json.loads(report),
            "decisions": [
                {"erased": bool(erased), "record": json.loads(record)}
                for erased, record in connection.execute(
                    "SELECT erased, record FROM decisions WHERE sleep = ? ORDER BY position",
                    (sleep,),
                )
            ],
        }
