"""The tables of a reuse ledger, in a file or on a server."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ecs_plugins.common.files import statements
from ecs_plugins.storage.addresses import is_address
from ecs_plugins.storage.base import Connection, Schema, SqlDatabase
from ecs_plugins.storage.sqlite import Database

# How long a query waits for another writer: once when it is counted, once when it is settled.
BUSY_SECONDS = 1.0
_TABLES = statements(__package__, "ledger.sql")
_POLICIES = statements(__package__, "policies.sql")


def _execute(statements: Iterable[str], connection: Connection) -> None:
    for statement in statements:
        connection.execute(statement)


_FILE = Schema("reuse ledger", [partial(_execute, _TABLES)])
_BOTH = (*_TABLES, *_POLICIES)
_ON_SERVER = Schema("reuse ledger", [partial(_execute, _BOTH)])


def open_tables(path: str, busy_seconds: float) -> SqlDatabase:
    """Open the database at a path or an address, and make it if it is missing.

    Raises:
        StorageError: It cannot be opened, or is no ledger.
    """
    # What was counted survives a crash of the process; a power cut may lose the last counts.
    settings: dict[str, Any] = {"synchronous": "normal", "busy_timeout": busy_seconds}
    if not is_address(path):
        return Database(path, _FILE, **settings)
    from ecs_plugins.storage.postgres import PostgresDatabase

    return PostgresDatabase(path, _ON_SERVER, **settings)
