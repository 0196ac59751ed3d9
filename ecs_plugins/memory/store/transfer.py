"""Export to JSON lines and import from them: a dump of the rows, header first, footer last.

A line names a table and the columns of one row: the log, both tiers with their provenance and
earlier versions, sleep phases and decisions, key-value items. Recorded queries stay behind.
Vectors travel as base64 float32; a file from another embedder is embedded anew. An import is
whole, checked, and one transaction.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from ecs_plugins.common.files import refuse_open_database, write_atomically
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import namespaces, tiers
from ecs_plugins.memory.store.inspection import checksums, damage, reference_problems, rows
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.store.reembedding import Embed, Progress, replaced_vectors
from ecs_plugins.memory.store.schema import MEMORY_FILE, columns
from ecs_plugins.memory.store.sleeps import decisions, reports
from ecs_plugins.memory.store.tiers import NO_LIMIT
from ecs_plugins.memory.store.values import dump, has_length
from ecs_plugins.memory.types import TIERS, Namespace
from ecs_plugins.storage.base import Connection, ConstraintError
from ecs_plugins.storage.sqlite import MEMORY, Database

FORMAT = "ecs-plugins-memory"
VERSION = 1

Line = dict[str, Any]
"""A row: its columns, and its table under ``kind``."""

_CHOSEN = "namespace IN (SELECT id FROM chosen)"
_TABLES = {
    "namespaces": "id IN (SELECT id FROM chosen)",
    "sleeps": _CHOSEN,
    "messages": _CHOSEN,
    "tiers": _CHOSEN,
    "provenance": f"item IN (SELECT id FROM tiers WHERE {_CHOSEN})",
    "decisions": _CHOSEN,
    "decision_items": f"decision IN (SELECT id FROM decisions WHERE {_CHOSEN})",
    "outdated": f"older IN (SELECT id FROM messages WHERE {_CHOSEN})",
    "items": "row IN (SELECT row FROM kept)",
    "item_vectors": "item IN (SELECT row FROM kept)",
}
_FRESH = {
    "namespaces": ("epoch",),
    "messages": ("seq",),
    "tiers": ("row",),
    "item_vectors": ("row",),
}
"""The numbers that rows get anew where they are imported, and nobody refers to."""

_NUMBERS = {"namespaces": "id", "sleeps": "id", "decisions": "id", "items": "row"}
"""The tables to whose rows others refer, by which column."""
# The table that a number in one of these columns is a row of; texts in them are public ids.
_OWNERS = {
    "namespace": "namespaces",
    "sleep": "sleeps",
    "born": "sleeps",
    "died": "sleeps",
    "decision": "decisions",
    "item": "items",
}


def write_export(
    path: str | os.PathLike[str], embedder: dict[str, object], now: float, lines: Iterable[Line]
) -> int:
    """Write an export atomically and return the number of its lines.

    The file has a header, the lines, and a footer with their number and hash.
    """
    digest, count = hashlib.sha256(), 0
    about = {"format": FORMAT, "version": VERSION, "embedder": embedder, "exported": now}

    def encoded() -> Iterator[bytes]:
        nonlocal count
        for line in chain([{"kind": "header", **about}], lines):
            content = dump(line).encode() + b"\n"
            digest.update(content)
            count += 1
            yield content
        footer = {"kind": "end", "lines": count, "sha256": digest.hexdigest()}
        yield dump(footer).encode() + b"\n"

    write_atomically(Path(path), encoded())
    return count + 1


def exported(connection: Connection, prefix: Namespace | None) -> Iterator[Line]:
    """Yield the rows of the namespaces at and below a prefix, or of all.

    An item that belongs to a message goes with it, or stays with it.
    """
    named, bounds = namespaces.under(prefix, "key")
    held, again = namespaces.under(prefix, "namespace")
    chosen = (
        f"WITH chosen AS (SELECT id FROM namespaces WHERE {named}), kept AS (SELECT row FROM items"
        f" WHERE {held} AND (message IS NULL OR message IN"
        " (SELECT id FROM messages WHERE namespace IN (SELECT id FROM chosen))))"
    )
    values = (*bounds, *again)
    for table, condition in _TABLES.items():
        for row in rows(connection, table, f"{condition} ORDER BY 1, 2", values, before=chosen):
            for problem in damage(table, row):
                raise StorageError(f"{problem}; `verify` lists all that is damaged")
            for name in (*_FRESH.get(table, ()), *checksums(table, row)):
                del row[name]
            if "vector" in row:
                row["vector"] = b64encode(row["vector"]).decode()
            yield {"kind": table, **row}


def read_export(path: str | os.PathLike[str]) -> list[Line]:
    """Return the lines of an export without its footer, the header first."""
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
        version = int(header["version"])
        whole = isinstance(footer, dict) and footer.get("lines") == len(lines) - 1
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} is no memory export: {error}") from None
    if not known:
        raise InvalidInputError(f"{path} is no memory export")
    if version != VERSION:
        raise InvalidInputError(
            f"{path} has format {version}, and this package reads format {VERSION}: upgrade "
            "ecs-plugins, or export the memory again"
        )
    if not whole or footer.get("sha256") != hashlib.sha256(b"".join(lines[:-1])).hexdigest():
        raise InvalidInputError(f"{path} is truncated or was altered; export it again")
    return parsed[:-1]


def embedded_anew(lines: Iterable[Line], embed: Embed, progress: Progress | None) -> list[Line]:
    """Return the rows of an export by another embedder, with vectors of this one."""
    with closing(Database(MEMORY, MEMORY_FILE)) as scratch:
        with scratch.write() as connection:
            write_import(connection, lines, epoch=0, dimension=0)
        with replaced_vectors(scratch, embed, progress) as connection:
            return list(exported(connection, None))


def write_import(
    connection: Connection, lines: Iterable[Line], *, epoch: int, dimension: int
) -> dict[str, int]:
    """Write rows under new numbers; return the number of rows of each table.

    A ``dimension`` of 0 does not look at the vectors; ``epoch`` is that of the file.
    """
    importer = _Importer(connection, epoch, dimension)
    try:
        for line in lines:
            importer.write(line)
        _settle(connection, importer.numbers, dimension)
    except InvalidInputError:
        raise
    except (sqlite3.IntegrityError, ConstraintError) as error:
        raise InvalidInputError(
            f"something of the export is stored here already, nothing was written ({error}); "
            "forget it first, or import into another file"
        ) from error
    except _UNUSABLE as error:
        raise InvalidInputError(
            f"the export cannot be imported, nothing was written: {error}"
        ) from error
    return dict(importer.counts)


_UNUSABLE = (
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""Errors of a line that no memory wrote."""


class _Importer:
    """Writes the rows of an export under new numbers.

    Attributes:
        counts: Number of rows of each table.
        numbers: By table, the new number of each old one.
    """

    def __init__(self, connection: Connection, epoch: int, dimension: int) -> None:
        self.counts: Counter[str] = Counter()
        self.numbers: dict[str, dict[int, int]] = {table: {} for table in _NUMBERS}
        self._connection = connection
        self._epoch = epoch
        self._dimension = dimension

    def write(self, line: Line) -> None:
        """Write one row."""
        row = dict(line)
        table = str(row.pop("kind"))
        if table not in _TABLES or not row.keys() <= columns()[table].keys():
            raise InvalidInputError(f"the export holds a line of unknown kind {table!r}")
        _check_types(table, row)
        content = row.get("vector")
        if self._dimension and content and not has_length(content, self._dimension):
            raise ValueError(f"a vector of {table} has no {self._dimension} dimensions")
        row |= checksums(table, row)
        number = row.pop(_NUMBERS.get(table, ""), None)
        self._renumber(table, row)
        names = ", ".join(row)
        places = ", ".join("?" * len(row))
        sql = f"INSERT INTO {table} ({names}) VALUES ({places})"
        if table in _NUMBERS:
            written = self._connection.execute(
                f"{sql} RETURNING {_NUMBERS[table]}", [*row.values()]
            )
            (self.numbers[table][number],) = written.fetchone()
        else:
            self._connection.execute(sql, [*row.values()])
        self.counts[table] += 1

    def _renumber(self, table: str, row: Line) -> None:
        """Replace old row numbers in a row by the new ones."""
        for name, value in row.items():
            if name not in _OWNERS or not isinstance(value, int):
                continue
            row[name] = self.numbers[_OWNERS[name]].get(value)
            if row[name] is None:
                raise ValueError(f"{name} of a row of {table} is {value}")
        if table == "namespaces":
            row["epoch"] = self._epoch


_TYPES = {"INTEGER": int, "REAL": int | float, "TEXT": str, "BLOB": bytes}
_FOREIGN = """
    SELECT 1 FROM items i JOIN messages m ON m.id = i.message
    WHERE i.row >= ? AND m.namespace <= ?
"""
_OBJECTS = ("metadata", "evidence", "config", "report", "record", "value")


def _check_types(table: str, row: Line) -> None:
    """Decode the vector of a row, and refuse a value that its column cannot hold."""
    if "vector" in row:
        row["vector"] = b64decode(row["vector"], validate=True)
    for name, value in row.items():
        if value is not None and not _fits(value, name, columns()[table][name]):
            raise ValueError(f"{name} of a row of {table} is {value!r:.40}")


def _fits(value: object, name: str, kind: str) -> bool:
    """Return True if a column of a name and SQL type can hold a value."""
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str) and name in _OBJECTS:
        return isinstance(json.loads(value), dict)
    return True


def _settle(
    connection: Connection, numbers: Mapping[str, Mapping[int, int]], dimension: int
) -> None:
    """Count the items of the new namespaces, and read the imported rows once."""
    for problem in reference_problems(connection):
        raise ValueError(problem)
    after = min(numbers["namespaces"].values(), default=NO_LIMIT) - 1
    items = min(numbers["items"].values(), default=NO_LIMIT)
    if connection.execute(_FOREIGN, (items, after)).fetchone():
        raise ValueError("a key-value item belongs to a message that is not of the export")
    count = "(SELECT count(*) FROM tiers WHERE namespace = n.id AND live = 1 AND tier = '{}')"
    connection.execute(
        f"UPDATE namespaces AS n SET hot_count = {count.format('hot')},"
        f" cold_count = {count.format('cold')} WHERE id > ?",
        (after,),
    )
    for space in namespaces.list_spaces(connection):
        if space.id > after:
            connection.execute(
                "UPDATE namespaces SET messages = ?, bytes = ? WHERE id = ?",
                (*log.held(connection, space.id), space.id),
            )
            checked(space.namespace)
            decisions(connection, space.id)
            reports(connection, space.id)
            for tier in TIERS:
                tiers.tier_rows(connection, space.id, tier, dimension)
