"""The tables of a memory file, and how files of version 0.1 get them.

``PRAGMA user_version`` says which schema a file has: 4 in all that 0.1.0 wrote. Tests open such a
file, with data in it. What is released is never edited: a later change of the tables is a further,
numbered step of `upgrade`.

Within an epoch a row of `tiers` never changes its vector: a changed item is a new row, whose number
was never used before, under the same public id, and a row that left its tier never comes back. An
index can therefore be brought up to date by comparing row numbers alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import lru_cache

from ecs_plugins.common.files import statements
from ecs_plugins.errors import StorageError
from ecs_plugins.memory.store import messages
from ecs_plugins.memory.store.tiers import crc
from ecs_plugins.storage.sqlite import MEMORY, Database, Schema

NEWEST = statements(__package__, "schema.sql")
"""What makes the newest tables where none are."""


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Make the tables of a new file (version 0), or those of one of 0.1.0 (version 4) into these.

    Raises:
        StorageError: The file is of another version, which was never released.
    """
    if version not in (0, 4):
        raise StorageError(
            f"the file has schema {version}, which was never released; export it with the version "
            "that wrote it, and import that"
        )
    if version:
        _run(connection, _NEW_COLUMNS)
    _run(connection, NEWEST)
    if version:
        connection.create_function("crc", 1, crc, deterministic=True)
        _run(connection, (*statements(__package__, "from_0_1_0.sql"), MARK_LOGS))
        said = connection.execute(f"{messages.SAID} ORDER BY seq").fetchall()
        messages.write_claims(connection, said)


MEMORY_FILE = Schema("memory file", application_id=0x4563_734D, version=9, upgrade=upgrade)


@lru_cache
def columns() -> dict[str, dict[str, str]]:
    """The columns of each table, with their types."""
    with closing(Database(MEMORY, MEMORY_FILE)) as scratch, scratch.read() as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            table: dict(connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)))
            for (table,) in tables.fetchall()
        }


def _run(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(statement)


_NEW_COLUMNS = (
    "ALTER TABLE provenance RENAME COLUMN memory TO item",
    "ALTER TABLE messages ADD COLUMN asked TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE messages ADD COLUMN asker TEXT",
    "ALTER TABLE items ADD COLUMN space TEXT NOT NULL DEFAULT ''",
)
MARK_LOGS = (
    "UPDATE items SET space = iif(json_type(value, '$.type') IS NULL, 'llama_index', 'langchain')"
    " WHERE space = '' AND length(key) = 32 AND key NOT GLOB '*[^0-9a-f]*' AND json_valid(value)"
    " AND json_type(value, '$.data.additional_kwargs') = 'object'"
)
"""Tells the session logs that version 0.1 kept among the key-value items."""
