"""`MemoryAdmin`: a memory file as a whole: exports, another embedder, checks, its state."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from ecs_plugins.common.aio import bridged
from ecs_plugins.memory.records import ErasureReceipt, MemoryStats, Verification
from ecs_plugins.memory.relevance import Scale
from ecs_plugins.memory.sleep import BackgroundThread
from ecs_plugins.memory.store.embedder_record import measured_scale, record_scale
from ecs_plugins.memory.store.erasing import has_expired, purge
from ecs_plugins.memory.store.inspection import count_items, namespace_stats, verify
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.store.reembedding import Progress
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.memory.store.transfer import (
    embedded_anew,
    exported,
    read_export,
    write_export,
    write_import,
)
from ecs_plugins.ranking.embedder import Embedder, as_embedder


class MemoryAdmin:
    """Operations on the whole file of an open memory.

    Every method has an async form with an ``a`` before its name.
    """

    def __init__(self, store: MemoryStore, *background: BackgroundThread) -> None:
        self._store = store
        self._background = background

    def export(
        self, path: str | os.PathLike[str], *, namespace: Sequence[str] | None = None
    ) -> int:
        """Write a JSON lines file of all namespaces, or of one and those below it.

        Expired messages are erased first.

        Returns:
            The number of lines.
        """
        store = self._store
        prefix = None if namespace is None else checked(namespace)
        now = time.time()
        if has_expired(store, now):
            purge(store)
        with store.database.read() as connection:
            lines = exported(connection, prefix)
            return write_export(path, store.identity, now, lines)

    def import_(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> dict[str, int]:
        """Read a whole JSON lines file, or nothing, into namespaces that are empty here.

        Returns:
            The number of rows of each table.

        Raises:
            InvalidInputError: It is no export, not whole, or a namespace is not empty.
        """
        store = self._store
        about, *lines = read_export(path)
        if about.get("embedder") != store.identity:
            lines = embedded_anew(lines, store.embed, progress)
        with store.writing() as connection:
            counts = write_import(connection, lines, epoch=store.epoch, dimension=store.dimension)
            store.indexes.settle(connection)
            return counts

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a copy of the file as of now, while it is used; readable by its owner only.

        The copy is a memory file of its own. What has expired and is not erased yet is in it.

        Raises:
            StorageError: There is such a file already, or it cannot be written.
        """
        for namespace in self._store.pending.namespaces():
            self._store.flush(namespace)
        self._store.database.backup(Path(path))

    def reembed(self, embedder: Embedder, *, progress: Progress | None = None) -> None:
        """Embed everything anew with another embedder (or the same one, after damage)."""
        self._store.reembed(as_embedder(embedder), progress)

    def calibrate(self) -> Scale:
        """Measure how near unrelated texts lie under the embedder, for the rule of a recall.

        Call it for an embedder other than the default one, after some messages were added. The file
        keeps the scale until it is re-embedded.

        Raises:
            InvalidInputError: There are too few items.
        """
        store = self._store
        with store.database.read() as connection:
            epoch = store.epoch
            scale = measured_scale(connection, store.dimension)
        with store.writing() as connection:
            record_scale(connection, scale, epoch)
        store.scale = scale
        return scale

    def compact(self) -> bool:
        """Rewrite the files without free pages, so that nothing erased is left in them.

        The receipts of erasures before it say ``scrubbed=True`` then.

        Returns:
            True if it is done; False if another process still reads an older state after a second.
        """
        return self._store.compact()

    def purge(self) -> ErasureReceipt:
        """Erase expired messages and log entries past their retention; return the receipt."""
        return purge(self._store)

    def verify(self) -> Verification:
        """Check every promise of the file that can be checked."""
        with self._store.database.read() as connection:
            return verify(connection, self._store)

    def stats(self, prefix: Sequence[str] | None = None) -> MemoryStats:
        """Return the sizes of all namespaces, or of a namespace and those below it."""
        store = self._store
        wanted = None if prefix is None else checked(prefix)
        with store.database.read() as connection:
            namespaces = namespace_stats(connection, wanted)
            items = count_items(connection, wanted, time.time())
        return MemoryStats(
            path=store.database.path,
            schema=MEMORY_FILE.version,
            embedder=store.identity,
            config_version=store.config.version,
            namespaces=tuple(namespaces),
            bytes=store.database.size(),
            indexes=store.indexes.statistics(),
            pending=len(store.pending),
            items=items,
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the background threads are idle; return False if they are not in time."""
        return all([each.wait(timeout) for each in self._background])

    aexport = bridged(export)
    aimport_ = bridged(import_)
    abackup = bridged(backup)
    areembed = bridged(reembed)
    acalibrate = bridged(calibrate)
    acompact = bridged(compact)
    apurge = bridged(purge)
    averify = bridged(verify)
    astats = bridged(stats)
    await_ = bridged(wait)
