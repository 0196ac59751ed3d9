"""Engines of a memory: SQLite for a path, PostgreSQL for an address."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ecs_plugins.common.files import statements
from ecs_plugins.errors import StorageError
from ecs_plugins.memory.config import StoreConfig
from ecs_plugins.memory.store import schema
from ecs_plugins.memory.store.index import Indexes
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.memory.store.seam import SpaceIndexes
from ecs_plugins.storage.addresses import is_address
from ecs_plugins.storage.base import Connection, Schema, SqlDatabase
from ecs_plugins.storage.sqlite import Database

if TYPE_CHECKING:
    from ecs_plugins.storage.postgres import PostgresDatabase

MakeIndexes = Callable[[int], SpaceIndexes]
"""Makes the indexes of a dimension."""


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Replace a memory file with a backup, and remove the old log.

    Raises:
        StorageError: The backup is damaged or none, or somebody has the file open.
    """
    with closing(Database(backup, MEMORY_FILE, read_only=True)) as database:
        with database.read() as connection:
            problems = database.integrity(connection)
        if problems:
            raise StorageError(f"{os.fspath(backup)} is damaged: {problems[0]}; use another backup")
        database.restore_to(Path(path))


def open_engine(
    path: str | os.PathLike[str], settings: StoreConfig, *, read_only: bool = False
) -> tuple[SqlDatabase, MakeIndexes]:
    """Return the database of a path or address, and the factory of its indexes."""
    if is_address(path):
        from ecs_plugins.memory.store.index_postgres import ServerIndexes

        server = open_postgres(path, settings, read_only=read_only)
        return server, partial(ServerIndexes, server)
    file = Database(
        path,
        MEMORY_FILE,
        synchronous=settings.synchronous,
        busy_timeout=settings.busy_timeout,
        read_only=read_only,
    )
    return file, Indexes


# On a server

_SETTINGS = {
    "hnsw.iterative_scan": "strict_order",
    # A statement is planned once and by indexes, whatever is known of the tables by then.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
}
_OLDEST = (0, 6)
"""The oldest pgvector that does what is asked of it here."""


def _extension(connection: Connection) -> None:
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except Exception as error:
        raise StorageError(
            f"the database has no pgvector, and it could not be added: {error}; install it on the "
            "server, and let a superuser run CREATE EXTENSION vector"
        ) from error


def _create_tables(connection: Connection) -> None:
    """Create the tables of a memory and of its terms, and the index of filters."""
    _extension(connection)
    for statement in schema.TABLES:
        connection.execute(statement.replace("evidence TEXT", "evidence JSON"))
    for name in ("postgres.sql", "policies.sql", "metadata.sql"):
        for statement in statements(__package__, name):
            connection.execute(statement)


MEMORY_TABLES = Schema("memory", [_create_tables])


def open_postgres(address: str, settings: StoreConfig, *, read_only: bool) -> PostgresDatabase:
    """Return the database of an address, with the tables of a memory."""
    from ecs_plugins.memory.store.index_postgres import EF_SEARCH
    from ecs_plugins.storage.postgres import PostgresDatabase

    database = PostgresDatabase(
        address,
        MEMORY_TABLES,
        settings={**_SETTINGS, "hnsw.ef_search": str(EF_SEARCH)},
        synchronous=settings.synchronous,
        busy_timeout=settings.busy_timeout,
        read_only=read_only,
    )
    with database.read() as connection:
        sql = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
        (version,) = connection.execute(sql).fetchone()
    if tuple(map(int, version.split(".")[:2])) >= _OLDEST:
        return database
    database.close()
    oldest = ".".join(map(str, _OLDEST))
    raise StorageError(
        f"{database.path} has pgvector {version}; this needs {oldest} or newer: "
        "install it on the server, and let a superuser run ALTER EXTENSION vector UPDATE"
    )
