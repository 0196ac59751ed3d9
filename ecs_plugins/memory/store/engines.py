"""Which engine holds a memory: an SQLite file by its path, PostgreSQL by its address."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.config import StoreConfig
from ecs_plugins.memory.store.index import Indexes
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.memory.store.seam import SpaceIndexes
from ecs_plugins.storage.addresses import is_address
from ecs_plugins.storage.base import SqlDatabase
from ecs_plugins.storage.sqlite import Database

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
        from ecs_plugins.memory.store.server_schema import open_postgres

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
