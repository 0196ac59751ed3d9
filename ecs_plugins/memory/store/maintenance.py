"""Operations on the whole file: export, import, re-embed, compact, verify, statistics."""

from __future__ import annotations

import os
import time

from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import MemoryStats
from ecs_plugins.memory.store import inspecting, spaces
from ecs_plugins.memory.store.core import Core
from ecs_plugins.memory.store.exporting import exported, write_export
from ecs_plugins.memory.store.importing import Import, read_export
from ecs_plugins.memory.store.index import Progress
from ecs_plugins.memory.store.item_transfer import count_items
from ecs_plugins.memory.store.open_indexes import OpenIndexes
from ecs_plugins.memory.store.reembedding import Reembedding
from ecs_plugins.memory.store.schema import MIGRATIONS
from ecs_plugins.memory.store.verification import Verification, verify
from ecs_plugins.memory.types import TIERS
from ecs_plugins.ranking.embedder import Embedder

_FEW = 64  # messages that may be embedded inside the transaction of a re-embedding


class Maintenance:
    """Whole-file operations.

    Args:
        core: The open memory.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def export(self, path: str | os.PathLike[str], prefix: Namespace | None) -> int:
        """Write an export from one consistent view."""
        with self._core.database.read() as connection:
            lines = exported(
                connection,
                prefix,
                embedder=self._core.identity,
                dimension=self._core.dimension,
                epoch=self._core.epoch,
                now=time.time(),
            )
            return write_export(path, lines)

    def import_(self, path: str | os.PathLike[str], progress: Progress | None) -> dict[str, int]:
        """Read an export in one transaction."""
        prepared = Import(
            read_export(path),
            embedder=self._core.identity,
            dimension=self._core.dimension,
            embed=self._core.embed,
            progress=progress,
        )
        with self._core.writing() as connection:
            return prepared.write(connection, epoch=self._core.epoch)

    def reembed(self, embedder: Embedder, progress: Progress | None) -> None:
        """Replace every vector by one of another embedder."""
        core = self._core
        before = core.embedder, core.dimension
        core.use_embedder(embedder)
        try:
            work = Reembedding(core.embed, progress)
            while True:
                with core.database.read() as connection:
                    fresh = work.prepare(connection)
                if fresh <= _FEW:
                    break
            with core.database.write() as connection:
                work.prepare(connection)
                work.write(connection)
                epoch = core.change_embedder(connection)
        except BaseException:
            core.use_embedder(before[0])
            raise
        core.epoch = epoch
        core.pending.discard()
        core.indexes = OpenIndexes(core.database, core.dimension, core.store.index)

    def compact(self, progress: Progress | None) -> None:
        """Bring indexes and file into their best shape."""
        core = self._core
        with core.database.read() as connection:
            for space in spaces.listed(connection):
                for tier in TIERS:
                    if space.tier(tier).count > core.store.index.exact_limit:
                        core.indexes.current(connection, space, tier)
        core.indexes.maintain(everything=True, progress=progress)
        core.indexes.save()
        core.scrub(vacuum=True)

    def verify(self) -> Verification:
        """Check the file."""
        core = self._core
        integrity = list(core.database.integrity())
        with core.database.read() as connection:
            return verify(
                connection, core.indexes, core.dimension, epoch=core.epoch, integrity=integrity
            )

    def stats(self, prefix: Namespace | None) -> MemoryStats:
        """The state of the file."""
        core = self._core
        with core.database.read() as connection:
            found = inspecting.namespace_stats(connection, prefix)
            items = count_items(connection, prefix, time.time())
        return MemoryStats(
            path=core.database.path,
            schema=len(MIGRATIONS),
            embedder=core.identity,
            config_version=core.config.version,
            namespaces=tuple(found),
            bytes=core.database.size(),
            indexes=core.indexes.statistics(),
            pending=len(core.pending),
            items=items,
        )
