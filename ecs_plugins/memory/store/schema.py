"""The tables of a memory.

``PRAGMA user_version`` of a file, or the table of versions on a server, names the version. A
published migration is never edited: a later change of the tables is a further migration.

Within an epoch a row of `tiers` never changes its vector: a changed item is a new row, whose number
was never used before, under the same public id, and a row that left its tier never comes back. An
index can therefore be brought up to date by comparing row numbers alone.
"""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache

from ecs_plugins.common.files import statements
from ecs_plugins.storage.base import Connection, Schema
from ecs_plugins.storage.sqlite import MEMORY, Database

TABLES = statements(__package__, "schema.sql")
"""Statements of the first migration."""


def _create_tables(connection: Connection) -> None:
    for statement in TABLES:
        connection.execute(statement)


MEMORY_FILE = Schema("memory file", [_create_tables], application_id=0x4563_734D, has_reserve=True)


@lru_cache
def columns() -> dict[str, dict[str, str]]:
    """Return the columns of each table, with their types."""
    with closing(Database(MEMORY, MEMORY_FILE)) as scratch, scratch.read() as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            table: dict(connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)))
            for (table,) in tables.fetchall()
        }
