"""The key-value items beyond getting and putting: export, import, checks, counts, erasure."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.namespaces import Namespace, checked, decode, encode
from ecs_plugins.memory.store.items import under
from ecs_plugins.memory.store.rows import dump
from ecs_plugins.memory.store.vectors import crc, damaged, pack, unpack
from ecs_plugins.memory.types import Vector

Line = dict[str, Any]


def exported_items(
    connection: sqlite3.Connection,
    prefix: Namespace | None,
    *,
    epoch: int,
    dimension: int,
    now: float,
) -> Iterator[Line]:
    """The lines of the items in and below a namespace, without what has expired.

    An item that belongs to a message goes with it: it is left out where the message is. A vector
    that another embedder made travels as None.

    Raises:
        StorageError: An item is damaged.
    """
    where, values = under(prefix or ())
    holds, bounds = under(prefix or (), column="n.key")
    for row in connection.execute(
        "SELECT i.row, i.namespace, i.key, i.value, i.value_crc, i.created, i.updated, i.ttl,"
        f" i.expires, i.message, i.text_key FROM items i WHERE {where}"
        " AND (i.expires IS NULL OR i.expires > ?) AND (i.message IS NULL OR EXISTS ("
        f"SELECT 1 FROM messages m JOIN namespaces n ON n.id = m.namespace WHERE m.id = i.message"
        f" AND (m.expires IS NULL OR m.expires > ?) AND {holds})) ORDER BY i.row",
        (*values, now, now, *bounds),
    ).fetchall():
        number, namespace, key, value, check, created, updated, ttl, expires, message, text = row
        if crc(value) != check:
            raise damaged(f"item {key!r}", "value", "restore a backup, or put the item again")
        yield {
            "kind": "item",
            "labels": list(decode(namespace)),
            "key": key,
            "value": json.loads(value),
            "created": created,
            "updated": updated,
            "ttl": ttl,
            "expires": expires,
            "message": message,
            "text_key": text,
            "vectors": _vectors(connection, number, key, epoch, dimension),
        }


def _vectors(
    connection: sqlite3.Connection, item: int, key: str, epoch: int, dimension: int
) -> list[Line]:
    lines: list[Line] = []
    for path, text, made, data, check in connection.execute(
        "SELECT path, text, epoch, vector, vector_crc FROM item_vectors WHERE item = ?"
        " ORDER BY path",
        (item,),
    ):
        vector = None
        if made == epoch:
            vector = pack(unpack(data, check, dimension, f"item {key!r} at {path}"))
        encoded = None if vector is None else base64.b64encode(vector).decode()
        lines.append({"path": path, "text": text, "vector": encoded})
    return lines


def import_item(
    connection: sqlite3.Connection, line: Line, vectors: Mapping[str, Vector], *, epoch: int
) -> None:
    """Write an item that `exported_items` described.

    Args:
        connection: Inside a write transaction.
        line: Its line.
        vectors: Path -> vector.
        epoch: Of the embedder that the vectors are from.

    Raises:
        InvalidInputError: There is an item of its namespace and key already.
    """
    namespace = checked(line["labels"])
    value = dump(line["value"])
    cursor = connection.execute(
        "INSERT INTO items (namespace, key, value, value_crc, created, updated, ttl, expires,"
        " message, text_key) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
        (
            encode(namespace), line["key"], value, crc(value), line["created"], line["updated"],
            line["ttl"], line["expires"], line["message"], line["text_key"],
        ),
    )  # fmt: skip
    if not cursor.rowcount:
        raise InvalidInputError(
            f"the namespace {namespace} holds an item {line['key']!r} here already; "
            "delete it first, or import into another file"
        )
    for entry in line["vectors"]:
        data = pack(vectors[entry["path"]])
        connection.execute(
            "INSERT INTO item_vectors (item, path, text, epoch, vector, vector_crc)"
            " VALUES (?,?,?,?,?,?)",
            (cursor.lastrowid, entry["path"], entry["text"], epoch, data, crc(data)),
        )


def item_problems(
    connection: sqlite3.Connection, *, epoch: int, dimension: int
) -> tuple[list[str], int]:
    """What is wrong with the items, and how many values and vectors were looked at."""
    problems: list[str] = []
    checked_ = 0
    for key, value, check in connection.execute("SELECT key, value, value_crc FROM items"):
        checked_ += 1
        if crc(value) != check:
            problems.append(f"the value of item {key!r} does not match its checksum")
    for key, path, made, data, check in connection.execute(
        "SELECT i.key, v.path, v.epoch, v.vector, v.vector_crc FROM item_vectors v"
        " JOIN items i ON i.row = v.item"
    ):
        checked_ += 1
        # A vector of an earlier epoch waits to be replaced by the next search.
        wrong_length = made == epoch and len(data) != 4 * dimension
        if wrong_length or crc(data) != check:
            problems.append(f"the vector of item {key!r} at {path} does not match its checksum")
    return problems, checked_


def count_items(connection: sqlite3.Connection, prefix: Namespace | None, now: float) -> int:
    """How many items there are in and below a namespace that have not expired."""
    where, values = under(prefix or ())
    count: int = connection.execute(
        f"SELECT count(*) FROM items i WHERE {where} AND (i.expires IS NULL OR i.expires > ?)",
        (*values, now),
    ).fetchone()[0]
    return count


def erase_items(connection: sqlite3.Connection, namespace: Namespace, *, below: bool) -> int:
    """Erase the items in a namespace, and with ``below`` in those below it; returns how many."""
    where, values = under(namespace) if below else ("i.namespace = ?", [encode(namespace)])
    return connection.execute(
        f"DELETE FROM items WHERE row IN (SELECT i.row FROM items i WHERE {where})", values
    ).rowcount
