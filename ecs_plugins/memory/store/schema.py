"""The tables of a memory.

A file says in ``PRAGMA user_version`` which version it has, a server in its table of versions. What
was published is never edited: a later change of the tables is a further version, with a step of
`Schema.steps` from the one before.

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
"""What makes the newest tables."""

VERSION = 10
"""Of the tables, in a file and on a server; 10 is the first that was published."""


def _make(connection: Connection) -> None:
    for statement in TABLES:
        connection.execute(statement)


MEMORY_FILE = Schema("memory file", VERSION, _make, application_id=0x4563_734D)


@lru_cache
def columns() -> dict[str, dict[str, str]]:
    """The columns of each table, with their types."""
    with closing(Database(MEMORY, MEMORY_FILE)) as scratch, scratch.read() as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            table: dict(connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)))
            for (table,) in tables.fetchall()
        }
