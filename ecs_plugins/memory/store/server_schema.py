"""The tables of a memory on PostgreSQL, and how a server is opened that has them.

They are those of a memory file, and the rows in them the same. What stands beside them to find
items by is `ecs_plugins.memory.store.index_postgres`.
"""

from __future__ import annotations

from ecs_plugins.common.files import statements
from ecs_plugins.errors import StorageError
from ecs_plugins.memory.config import StoreConfig
from ecs_plugins.memory.store import schema
from ecs_plugins.memory.store.index_postgres import EF_SEARCH
from ecs_plugins.storage.base import Connection, Schema
from ecs_plugins.storage.postgres import PostgresDatabase

_SETTINGS = {
    "hnsw.ef_search": str(EF_SEARCH),
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
    """Make the tables of a memory, those of the terms, and the index of filters."""
    _extension(connection)
    for statement in schema.TABLES:
        connection.execute(statement.replace("evidence TEXT", "evidence JSON"))
    for name in ("postgres.sql", "policies.sql", "metadata.sql"):
        for statement in statements(__package__, name):
            connection.execute(statement)


MEMORY_TABLES = Schema("memory", [_create_tables])


def open_postgres(address: str, settings: StoreConfig, *, read_only: bool) -> PostgresDatabase:
    """Return the database of an address, with the tables of a memory."""
    database = PostgresDatabase(
        address,
        MEMORY_TABLES,
        settings=_SETTINGS,
        synchronous=settings.synchronous,
        busy_timeout=settings.busy_timeout,
        read_only=read_only,
    )
    version = _vector_version(database)
    if _numbered(version) >= _OLDEST:
        return database
    database.close()
    oldest = ".".join(map(str, _OLDEST))
    raise StorageError(
        f"{database.path} has pgvector {version}; this needs {oldest} or newer: "
        "install it on the server, and let a superuser run ALTER EXTENSION vector UPDATE"
    )


def _vector_version(database: PostgresDatabase) -> str:
    """Return the version of pgvector, as the server tells it."""
    with database.read() as connection:
        rows = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        return "".join(version for (version,) in rows)


def _numbered(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    parts = version.split(".")
    return tuple(int(part) for part in parts[:2])
