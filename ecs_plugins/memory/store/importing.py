"""Import of JSON lines that `exporting` wrote: whole, checked, and in one transaction.

A file from another embedder is embedded anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory.namespaces import checked
from ecs_plugins.memory.store import cold_memories, hot_items, spaces
from ecs_plugins.memory.store.database import refuse_open_database
from ecs_plugins.memory.store.decisions import record_decisions
from ecs_plugins.memory.store.derivation import Embed, derived, embedded
from ecs_plugins.memory.store.exporting import FORMAT, VERSION
from ecs_plugins.memory.store.index import Progress
from ecs_plugins.memory.store.item_transfer import Line, import_item
from ecs_plugins.memory.store.rows import dump
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import crc, pack
from ecs_plugins.memory.types import (
    ColdMemory,
    Evidence,
    FreeEnergy,
    HotItem,
    SleepDecision,
    Vector,
)


def read_export(path: str | os.PathLike[str]) -> list[Line]:
    """The lines of an export without header and footer, the header first.

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
            self._vectors = self._vectors_of_messages(progress)
            self._of_item = {
                id(line): self._vector_of_item(line)
                for line in self._lines
                if line["kind"] in ("hot", "memory") and not line.get("single")
            }
            self._of_value = {
                id(line): self._vectors_of_value(line)
                for line in self._lines
                if line["kind"] == "item"
            }
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the export holds a line that cannot be read: {error}") from (
                error
            )

    def _vectors_of_messages(self, progress: Progress | None) -> dict[str, Vector]:
        messages = [line for line in self._lines if line["kind"] == "message"]
        if self._foreign:
            texts = {line["id"]: line["text"] for line in messages}
            return embedded(texts, self._embed, progress)
        return {line["id"]: self._decoded(line) for line in messages}

    def _decoded(self, line: Line) -> Vector:
        vector = np.frombuffer(base64.b64decode(line["vector"], validate=True), dtype="<f4")
        if vector.shape != (self._dimension,) or not np.isfinite(vector).all():
            raise ValueError(f"the vector of {line['id']} is not of {self._dimension} numbers")
        return vector

    def _vector_of_item(self, line: Line) -> Vector:
        if not self._foreign:
            return self._decoded(line)
        members = line["members"] if line["kind"] == "hot" else line["provenance"]
        return derived(line["text"], members, self._vectors, self._embed)

    def _vectors_of_value(self, line: Line) -> dict[str, Vector]:
        """The vectors of a key-value item, by path; those that the file lacks are made here."""
        entries = {entry["path"]: entry for entry in line["vectors"]}
        lacking = {
            path: entry["text"]
            for path, entry in entries.items()
            if self._foreign or entry["vector"] is None
        }
        made = embedded(lacking, self._embed)
        return {
            path: made[path] if path in made else self._decoded(entry | {"id": line["key"]})
            for path, entry in entries.items()
        }

    def write(self, connection: sqlite3.Connection, *, epoch: int) -> dict[str, int]:
        """Write everything; returns how many lines of each kind.

        Raises:
            InvalidInputError: A namespace of the file holds something here already, or a line
                cannot be stored.
        """
        counts: dict[str, int] = {}
        space: Space | None = None
        try:
            for line in self._lines:
                kind = str(line["kind"])
                counts[kind] = counts.get(kind, 0) + 1
                if kind == "namespace":
                    self._finish(connection, space)
                    space = self._namespace(connection, line, epoch)
                elif kind == "item":
                    import_item(connection, line, self._of_value[id(line)], epoch=epoch)
                elif space is None:
                    raise InvalidInputError("the export names no namespace before its content")
                else:
                    self._line(connection, space, kind, line)
            self._finish(connection, space)
        except (KeyError, TypeError, ValueError, sqlite3.IntegrityError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"the export cannot be imported, nothing was written: {error}"
            ) from error
        return counts

    def _namespace(self, connection: sqlite3.Connection, line: Line, epoch: int) -> Space:
        namespace = checked(line["labels"])
        if spaces.find(connection, namespace) is not None:
            raise InvalidInputError(
                f"the namespace {namespace} holds memories here already; "
                "forget it first, or import into another file"
            )
        space = spaces.find_or_create(connection, namespace, now=time.time(), epoch=epoch)
        space.step = int(line["step"])
        space.since_sleep = int(line["since_sleep"])
        space.novel = int(line["novel"])
        space.cycle = int(line["cycle"])
        return space

    @staticmethod
    def _finish(connection: sqlite3.Connection, space: Space | None) -> None:
        if space is not None:
            hot_items.hot_from_now(connection, space.id)  # the hot tier came as lines of its own
            space.save(connection)

    def _line(self, connection: sqlite3.Connection, space: Space, kind: str, line: Line) -> None:
        if kind == "message":
            self._message(connection, space, line)
        elif kind == "hot":
            self._hot(connection, space, line)
        elif kind == "memory":
            self._memory(connection, space, line)
        elif kind == "sleep":
            self._sleep(connection, space, line)
        else:
            raise InvalidInputError(f"the export holds a line of unknown kind {kind!r}")

    def _message(self, connection: sqlite3.Connection, space: Space, line: Line) -> None:
        data = pack(self._vectors[line["id"]])
        connection.execute(
            "INSERT INTO messages (id, namespace, step, role, writer, text, metadata,"
            " created, expires, vector, text_crc, vector_crc)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                line["id"], space.id, line["step"], line["role"], line["writer"],
                line["text"], dump(line["metadata"]), line["created"], line["expires"], data,
                crc(line["text"]), crc(data),
            ),
        )  # fmt: skip

    def _hot(self, connection: sqlite3.Connection, space: Space, line: Line) -> None:
        single = bool(line["single"])
        vector = self._vectors[line["id"]] if single else self._of_item[id(line)]
        item = HotItem(
            id=line["id"],
            vector=vector,
            evidence=Evidence.from_json(line["evidence"]),
            members=tuple(line["members"]),
            text=line["text"],
            judged=line["judged"],
        )
        hot_items.insert_hot(
            connection,
            space,
            item,
            metadata=line["metadata"],
            expires=line["expires"],
            borrowed=single,
        )
        if not single:
            hot_items.add_members(connection, ((item.id, m) for m in item.members))
        space.appended("hot")

    def _memory(self, connection: sqlite3.Connection, space: Space, line: Line) -> None:
        memory = ColdMemory(
            id=line["id"],
            vector=self._of_item[id(line)],
            evidence=Evidence.from_json(line["evidence"]),
            text=line["text"],
            pinned=bool(line["pinned"]),
            entropy=line["entropy"],
        )
        cold_memories.insert_cold(
            connection,
            space,
            memory,
            version=line["version"],
            metadata=line["metadata"],
            created=line["created"],
            changed=line["changed"],
            expires=line["expires"],
            judged=None if line["judged"] is None else FreeEnergy(*line["judged"]),
        )
        cold_memories.add_provenance(connection, memory.id, line["version"], line["provenance"])
        space.appended("cold")

    def _sleep(self, connection: sqlite3.Connection, space: Space, line: Line) -> None:
        cursor = connection.execute(
            "INSERT INTO sleeps (namespace, at, undone, config, report) VALUES (?,?,?,?,?)",
            (space.id, line["at"], line["undone"], dump(line["config"]), dump(line["report"])),
        )
        assert cursor.lastrowid is not None
        for entry in line["decisions"]:
            record_decisions(
                connection,
                space,
                cursor.lastrowid,
                [SleepDecision.from_json(entry["record"])],
                erased=bool(entry["erased"]),
            )
