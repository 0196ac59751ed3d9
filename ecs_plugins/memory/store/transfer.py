"""Export to JSON lines and import from them: one object per line, header first, footer last.

What is exported is what a memory holds now: the log, both tiers with their provenance and
evidence, sleep phases and decisions, key-value items. Earlier versions of memories stay behind.
Vectors travel as base64 float32; a file from another embedder is embedded anew. An import is
whole, checked, and one transaction.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.database import crc, damaged, dump, pack, refuse_open_database, unpack
from ecs_plugins.memory.store.reembedding import Embed, Progress, derived, embedded
from ecs_plugins.memory.store.sleeps import record_decisions
from ecs_plugins.memory.store.tiers import Space, TierRow
from ecs_plugins.memory.types import (
    TIERS,
    ColdMemory,
    Evidence,
    FreeEnergy,
    HotItem,
    Namespace,
    SleepDecision,
    Vector,
    checked,
    decode,
    encode,
)

FORMAT = "ecs-plugins-memory"
VERSION = 2

Line = dict[str, Any]


def write_export(path: str | os.PathLike[str], lines: Iterable[Line]) -> int:
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
        why = error.strerror or str(error)  # not its file name, which is that of the file aside
        raise StorageError(
            f"cannot write {target}: {why}; choose another place, in a directory that exists"
        ) from error
    finally:
        aside.unlink(missing_ok=True)
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
    for space in tiers.list_spaces(connection, prefix):
        yield {
            "kind": "namespace",
            "labels": list(space.namespace),
            "step": space.step,
            "since_sleep": space.since_sleep,
            "cycle": space.cycle,
        }
        yield from _messages(connection, space, dimension, now)
        for tier in TIERS:
            for row in tiers.tier_rows(connection, space.id, tier, dimension):
                if row.expires is None or row.expires > now:
                    yield _tier_line(row, tiers.provenance(connection, [row.item.id]))
        yield from _sleeps(connection, space)
    yield from _items(connection, prefix, dimension, epoch, now)


def _base64(vector: Vector) -> str:
    return base64.b64encode(pack(vector)).decode()


_MESSAGE = ("id", "step", "role", "writer", "text", "metadata", "created", "expires")


def _messages(
    connection: sqlite3.Connection, space: Space, dimension: int, now: float
) -> Iterator[Line]:
    for *values, vector, check in connection.execute(
        f"SELECT {', '.join(_MESSAGE)}, vector, vector_crc FROM messages"
        " WHERE namespace = ? AND (expires IS NULL OR expires > ?) ORDER BY seq",
        (space.id, now),
    ):
        line = dict(zip(_MESSAGE, values, strict=True))
        known = unpack(vector, check, dimension, f"message {line['id']}")
        yield {
            "kind": "message",
            **line,
            "metadata": json.loads(line["metadata"]),
            "vector": _base64(known),
        }


def _tier_line(row: TierRow, behind: dict[str, tuple[str, ...]]) -> Line:
    item, terms = row.item, row.judged
    line: Line = {
        "id": item.id,
        "text": item.text,
        "metadata": dict(row.metadata),
        "created": row.created,
        "changed": row.changed,
        "expires": row.expires,
        "evidence": item.evidence.to_json(),
        "vector": _base64(item.vector),
    }
    if isinstance(item, HotItem):
        return {"kind": "hot", **line, "members": list(item.members), "judged": item.judged}
    return {
        "kind": "memory",
        **line,
        "version": row.version,
        "pinned": item.pinned,
        "entropy": item.entropy,
        "judged": None if terms is None else [terms.energy, terms.entropy, terms.total],
        "provenance": list(behind.get(item.id, ())),
    }


def _sleeps(connection: sqlite3.Connection, space: Space) -> Iterator[Line]:
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


_ITEM = ("key", "value", "created", "updated", "ttl", "expires", "message", "text_key")


def _items(
    connection: sqlite3.Connection, prefix: Namespace | None, dimension: int, epoch: int, now: float
) -> Iterator[Line]:
    """The key-value items; one that belongs to a message goes with it, or stays with it.

    A vector that another embedder made travels as None: the next search replaces it.
    """
    where, bounds = tiers.under(prefix, "i.namespace")
    holds, again = tiers.under(prefix, "n.key")
    for number, labels, check, *values in connection.execute(
        f"SELECT i.row, i.namespace, i.value_crc, i.{', i.'.join(_ITEM)} FROM items i WHERE {where}"
        " AND (i.expires IS NULL OR i.expires > ?) AND (i.message IS NULL OR EXISTS ("
        "SELECT 1 FROM messages m JOIN namespaces n ON n.id = m.namespace WHERE m.id = i.message"
        f" AND (m.expires IS NULL OR m.expires > ?) AND {holds})) ORDER BY i.row",
        (*bounds, now, now, *again),
    ):
        line = dict(zip(_ITEM, values, strict=True))
        what = f"item {line['key']!r}"
        if crc(line["value"]) != check:
            raise damaged(what, "value", "restore a backup, or put the item again")
        vectors = connection.execute(
            "SELECT path, text, epoch, vector, vector_crc FROM item_vectors WHERE item = ?"
            " ORDER BY path",
            (number,),
        )
        line["vectors"] = [
            {
                "path": path,
                "text": text,
                "vector": _base64(unpack(data, check, dimension, f"{what} at {path}"))
                if made == epoch
                else None,
            }
            for path, text, made, data, check in vectors
        ]
        value = json.loads(line["value"])
        yield {"kind": "item", "labels": list(decode(labels)), **line, "value": value}


def read_export(path: str | os.PathLike[str]) -> list[Line]:
    """The lines of an export without its footer, the header first.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: It is no export, of a newer version, or not whole.
    """
    refuse_open_database(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error}; check the path") from error
    lines = content.splitlines(keepends=True)
    try:
        parsed: list[Line] = [json.loads(line) for line in lines]
        header, footer = parsed[0], parsed[-1]
        known = header["kind"] == "header" and header["format"] == FORMAT
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} is no memory export: {error}") from None
    if not known:
        raise InvalidInputError(f"{path} is no memory export")
    if header["version"] > VERSION:
        raise InvalidInputError(f"{path} is of a newer version; upgrade ecs-plugins")
    whole = footer.get("kind") == "end" and footer.get("lines") == len(lines) - 1
    if not whole or footer.get("sha256") != hashlib.sha256(b"".join(lines[:-1])).hexdigest():
        raise InvalidInputError(f"{path} is truncated or was altered; export it again")
    return parsed[:-1]


class Import:
    """An export, checked and embedded, ready to be written in one transaction.

    Args:
        lines: From `read_export`.
        embedder: What identifies the embedder of this memory.
        dimension: Length of its vectors.
        embed: Its embedder, asked only if the file comes from another one.
        progress: Called with texts done and texts to do.

    Raises:
        InvalidInputError: A line lacks something or holds what cannot be stored.
    """

    def __init__(
        self,
        lines: Sequence[Line],
        *,
        embedder: dict[str, object],
        dimension: int,
        embed: Embed,
        progress: Progress | None,
    ) -> None:
        self._lines = lines[1:]
        self._dimension = dimension
        self._embed = embed
        self._foreign = lines[0].get("embedder") != embedder
        try:
            self._of_message = self._vectors_of_messages(progress)
            self._vectors = [self._vectors_of(line) for line in self._lines]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the export holds a line that cannot be read: {error}"
            ) from error

    def _vectors_of_messages(self, progress: Progress | None) -> dict[str, Vector]:
        messages = [line for line in self._lines if line["kind"] == "message"]
        if self._foreign:
            return embedded({line["id"]: line["text"] for line in messages}, self._embed, progress)
        return {line["id"]: self._decoded(line["vector"], line["id"]) for line in messages}

    def _decoded(self, content: str, what: str) -> Vector:
        vector = np.frombuffer(base64.b64decode(content, validate=True), dtype="<f4")
        if vector.shape != (self._dimension,) or not np.isfinite(vector).all():
            raise ValueError(f"the vector of {what} is not of {self._dimension} numbers")
        return vector

    def _vectors_of(self, line: Line) -> dict[str, Vector]:
        """The vectors of a line: of a key-value item by path, of an item of a tier by its id."""
        if line["kind"] == "item":
            entries = {entry["path"]: entry for entry in line["vectors"]}
            lacking = {
                path: entry["text"]
                for path, entry in entries.items()
                if self._foreign or entry["vector"] is None
            }
            return {
                path: self._decoded(entry["vector"], line["key"])
                for path, entry in entries.items()
                if path not in lacking
            } | embedded(lacking, self._embed)
        if line["kind"] not in ("hot", "memory"):
            return {}
        if line["vector"] is None:  # a hot item of one message, as version 0.1.0 wrote it
            return {line["id"]: self._of_message[line["id"]]}
        if self._foreign:
            members = line["members"] if line["kind"] == "hot" else line["provenance"]
            vector = derived(line["text"], members, self._of_message, self._embed)
            return {line["id"]: vector}
        return {line["id"]: self._decoded(line["vector"], line["id"])}

    def write(self, connection: sqlite3.Connection, *, epoch: int) -> dict[str, int]:
        """Write everything; returns how many lines of each kind.

        Raises:
            InvalidInputError: A namespace of the file holds something here already, or a line
                cannot be stored.
        """
        counts: dict[str, int] = {}
        space: Space | None = None
        try:
            for line, vectors in zip(self._lines, self._vectors, strict=True):
                kind = str(line["kind"])
                counts[kind] = counts.get(kind, 0) + 1
                if kind == "namespace":
                    if space is not None:
                        space.save(connection)
                    space = _namespace(connection, line, epoch)
                elif kind == "item":
                    _write_item(connection, line, vectors, epoch)
                elif space is None:
                    raise InvalidInputError("the export names no namespace before its content")
                elif kind == "message":
                    _write_message(connection, space, line, self._of_message[line["id"]])
                elif kind in ("hot", "memory"):
                    _write_tier(connection, space, line, vectors[line["id"]])
                elif kind == "sleep":
                    _write_sleep(connection, space, line)
                else:
                    raise InvalidInputError(f"the export holds a line of unknown kind {kind!r}")
            if space is not None:
                space.save(connection)
        except (KeyError, TypeError, ValueError, sqlite3.IntegrityError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"the export cannot be imported, nothing was written: {error}"
            ) from error
        return counts


def _namespace(connection: sqlite3.Connection, line: Line, epoch: int) -> Space:
    namespace = checked(line["labels"])
    if tiers.find_space(connection, namespace) is not None:
        raise InvalidInputError(
            f"the namespace {namespace} holds memories here already; "
            "forget it first, or import into another file"
        )
    space = tiers.create_space(connection, namespace, time.time(), epoch)
    space.step, space.since_sleep = int(line["step"]), int(line["since_sleep"])
    space.cycle = int(line["cycle"])
    return space


def _write_message(
    connection: sqlite3.Connection, space: Space, line: Line, vector: Vector
) -> None:
    data = pack(vector)
    values = [line[name] for name in _MESSAGE if name != "metadata"]
    connection.execute(
        "INSERT INTO messages (id, step, role, writer, text, created, expires, metadata,"
        " namespace, vector, text_crc, vector_crc) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
        (*values, dump(line["metadata"]), space.id, data, crc(line["text"]), crc(data)),
    )


def _write_tier(connection: sqlite3.Connection, space: Space, line: Line, vector: Vector) -> None:
    evidence = Evidence.from_json(line["evidence"])
    is_hot = line["kind"] == "hot"
    members = line["members" if is_hot else "provenance"]
    item: HotItem | ColdMemory
    if is_hot:
        item = HotItem(
            line["id"], vector, evidence, tuple(members), line["text"], int(line["judged"])
        )
    else:
        pinned, entropy = bool(line["pinned"]), float(line["entropy"])
        item = ColdMemory(line["id"], vector, evidence, line["text"], pinned, entropy)
    new = TierRow(
        item,
        line["metadata"],
        line.get("created", 0.0),
        line.get("changed", 0.0),
        line["expires"],
        line.get("version", 1),
        FreeEnergy(*line["judged"]) if not is_hot and line["judged"] is not None else None,
    )
    tiers.insert(connection, space, new, members)


def _write_sleep(connection: sqlite3.Connection, space: Space, line: Line) -> None:
    sleep = connection.execute(
        "INSERT INTO sleeps (namespace, at, undone, config, report) VALUES (?,?,?,?,?)",
        (space.id, line["at"], line["undone"], dump(line["config"]), dump(line["report"])),
    ).lastrowid
    assert sleep is not None
    for entry in line["decisions"]:
        decision = SleepDecision.from_json(entry["record"])
        record_decisions(connection, space, sleep, [decision], erased=bool(entry["erased"]))


def _write_item(
    connection: sqlite3.Connection, line: Line, vectors: Mapping[str, Vector], epoch: int
) -> None:
    namespace, value = checked(line["labels"]), dump(line["value"])
    row = {name: line[name] for name in _ITEM} | {"value": value}
    cursor = connection.execute(
        f"INSERT INTO items (namespace, value_crc, {', '.join(row)})"
        f" VALUES (?, ?, {', '.join('?' * len(row))}) ON CONFLICT DO NOTHING",
        (encode(namespace), crc(value), *row.values()),
    )
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
