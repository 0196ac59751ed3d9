"""Which engine holds a memory: an SQLite file by its path, PostgreSQL by its address."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from ecs_plugins.memory.config import StoreConfig
from ecs_plugins.memory.store.indexes import Indexes
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.memory.store.seam import SpaceIndexes
from ecs_plugins.storage.base import SqlDatabase, is_address
from ecs_plugins.storage.sqlite import Database

MakeIndexes = Callable[[int], SpaceIndexes]
"""Makes the indexes of a dimension."""


def open_engine(
    path: str | os.PathLike[str], settings: StoreConfig, *, read_only: bool = False
) -> tuple[SqlDatabase, MakeIndexes]:
    """The database behind a path or an address, and what makes its indexes."""
    if is_address(path):
        from ecs_plugins.memory.store.postgres import ServerIndexes, open_postgres

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
