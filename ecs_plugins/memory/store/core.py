"""What every operation of an open memory shares: its file, embedder, indexes and transactions."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ecs_plugins.errors import (
    ConfigurationError,
    EcsPluginsError,
    InvalidInputError,
    StorageError,
)
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store import spaces
from ecs_plugins.memory.store.access import PendingAccesses, write_accesses
from ecs_plugins.memory.store.database import Database
from ecs_plugins.memory.store.erasure import Erased
from ecs_plugins.memory.store.known_memories import KnownMemories
from ecs_plugins.memory.store.open_indexes import OpenIndexes
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.store_config import StoreConfig
from ecs_plugins.memory.store.upkeep import Upkeep
from ecs_plugins.memory.types import Matrix, UtilityFunction, Vector
from ecs_plugins.ranking.embedder import Embedder

logger = logging.getLogger(__name__)

_EMBEDDER = "embedder"
_EPOCH = "epoch"
_SCRUB = "scrub"

_RETENTION_EVERY = 3600.0


class Core:
    """An open memory file.

    Args:
        database: The open file.
        embedder: Embeds texts; from `as_embedder`, so its vectors are checked and normalised.
            Must be the one that the file was written with.
        config: What is kept.
        store: How it is stored.
        model: Writes summaries.
        utility: Replaces the configured utility.
        adopt: Do not check the embedder: the caller re-embeds.

    Raises:
        ConfigurationError: The file was written with another embedder.
    """

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        config: MemoryConfig,
        store: StoreConfig,
        model: LanguageModel | None,
        utility: UtilityFunction | None,
        *,
        adopt: bool = False,
    ) -> None:
        self.database = database
        self.embedder = embedder
        self.config = config
        self.store = store
        self.model = model
        self.utility = utility
        self.dimension = int(embedder.dimension)
        self.epoch = self._identify(adopt)
        self.indexes = OpenIndexes(database, self.dimension, store.index)
        self.known = KnownMemories()
        self._reset_threads()
        self.pending = PendingAccesses()
        self._closed = False
        self._retention_due = 0.0
        self._finish_interrupted_erasure()
        _open_cores.add(self)

    def _reset_threads(self) -> None:
        self.upkeep = Upkeep()
        self.sleeping = NamespaceLocks()

    # Identity

    @property
    def identity(self) -> dict[str, object]:
        """What identifies the embedder, as recorded."""
        return {"name": self.embedder.name, "dimension": self.dimension, "normalisation": "l2"}

    def _identify(self, adopt: bool) -> int:
        with self.database.read() as connection:
            recorded = self._recorded(connection)
        if recorded is None:
            with self.database.write() as connection:
                recorded = self._recorded(connection)
                if recorded is None:
                    self._record(connection, 0)
                    return 0
        identity, epoch = recorded
        if identity != self.identity and not adopt:
            raise ConfigurationError(
                f"{self.database.path} was written with the embedder {identity['name']!r} "
                f"({identity['dimension']} dimensions), not with {self.embedder.name!r} "
                f"({self.dimension}); open it with that one, or with reembed=True"
            )
        return epoch

    @staticmethod
    def _recorded(connection: sqlite3.Connection) -> tuple[dict[str, object], int] | None:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        if _EMBEDDER not in meta:
            return None
        return json.loads(meta[_EMBEDDER]), int(meta[_EPOCH])

    @classmethod
    def _epoch_of(cls, connection: sqlite3.Connection) -> int:
        recorded = cls._recorded(connection)
        return recorded[1] if recorded else 0

    def _record(self, connection: sqlite3.Connection, epoch: int) -> None:
        connection.executemany(
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)",
            ((_EMBEDDER, json.dumps(self.identity)), (_EPOCH, str(epoch))),
        )

    def is_current(self) -> bool:
        """Whether the file's vectors come from this embedder."""
        with self.database.read() as connection:
            recorded = self._recorded(connection)
        return recorded is not None and recorded[0] == self.identity

    def use_embedder(self, embedder: Embedder) -> None:
        """Embed with another embedder from now on; the file is the caller's to change."""
        self.embedder = embedder
        self.dimension = int(embedder.dimension)

    def change_embedder(self, connection: sqlite3.Connection) -> int:
        """Record this embedder and start a new epoch; returns its number."""
        recorded = self._recorded(connection)
        epoch = 1 + (recorded[1] if recorded else 0)
        self._record(connection, epoch)
        connection.execute("UPDATE namespaces SET epoch = ?", (epoch,))
        return epoch

    # Vectors

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors ``[len(texts), dimension]``.

        Raises:
            ModelError: The embedder failed, or returned what cannot be compared.
        """
        return self.embedder.embed_documents(texts)

    def embed_query(self, text: str) -> Vector:
        """A unit vector ``[dimension]``.

        Raises:
            InvalidInputError: The query is blank.
            ModelError: The embedder failed, or returned what cannot be compared.
        """
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError("a query needs text")
        return self.embedder.embed_query(text)

    # Transactions

    @contextmanager
    def reading(self, namespace: Namespace) -> Iterator[tuple[sqlite3.Connection, Space | None]]:
        """One consistent view, and the namespace in it."""
        with self.database.read() as connection:
            space = spaces.find(connection, namespace)
            if space is not None:
                self._check_epoch(space.epoch)
            yield connection, space

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One write transaction on the file."""
        with self.database.write() as connection:
            self._check_epoch(self._epoch_of(connection))
            yield connection

    @contextmanager
    def writing_to(
        self, namespace: Namespace, *, create: bool = False
    ) -> Iterator[tuple[sqlite3.Connection, Space | None]]:
        """One write transaction on a namespace: pending recalls first, its row saved last."""
        accesses = self.pending.take(namespace)
        try:
            with self.database.write() as connection:
                space = spaces.find(connection, namespace)
                self._check_epoch(self._epoch_of(connection) if space is None else space.epoch)
                if space is None and create:
                    space = spaces.find_or_create(
                        connection, namespace, now=time.time(), epoch=self.epoch
                    )
                if space is not None and accesses:
                    write_accesses(connection, space, accesses)
                yield connection, space
                if space is not None:
                    space.save(connection)
        except BaseException:
            self.pending.give_back(namespace, accesses)
            raise

    def flush(self, namespace: Namespace) -> None:
        """Write the pending recalls of a namespace; a failure is logged, they stay pending."""
        if not self.pending.any(namespace):
            return
        try:
            with self.writing_to(namespace):
                pass
        except EcsPluginsError as error:
            logger.warning("retrieval hits could not be written yet: %s", error)

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise StorageError(
                f"{self.database.path} was re-embedded by another process; open it again with "
                "the new embedder"
            )

    def wants_purge(self) -> bool:
        """Whether something has expired, or the log's retention was last seen to an hour ago."""
        if self.store.log_retention is not None and time.monotonic() >= self._retention_due:
            self._retention_due = time.monotonic() + _RETENTION_EVERY
            return True
        with self.database.read() as connection:
            return (
                connection.execute(
                    "SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE expires <= ?1)"
                    " OR EXISTS (SELECT 1 FROM items WHERE expires <= ?1)",
                    (time.time(),),
                ).fetchone()
                is not None
            )

    # After

    @contextmanager
    def erasing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction that erases: it notes that `finish_erasure` has to follow."""
        with self.writing() as connection:
            yield connection
            connection.execute(
                "INSERT OR REPLACE INTO meta (key, value) VALUES (?, '1')", (_SCRUB,)
            )

    def finish_erasure(self, erased: Erased) -> ErasureReceipt:
        """Remove the snapshots of what was erased, empty the log, and write the receipt."""
        for space in erased.spaces:
            self.known.forget(space)
            self.indexes.snapshots.remove_files(space)
        return erased.receipt(time.time(), scrubbed=self.scrub())

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take what was erased out of the write-ahead log; whether that is done."""
        done = self.database.scrub(vacuum=vacuum)
        if done:
            with self.database.write() as connection:
                connection.execute("DELETE FROM meta WHERE key = ?", (_SCRUB,))
        return done

    def _finish_interrupted_erasure(self) -> None:
        """What a killed process had still to do after it committed an erasure."""
        with self.database.read() as connection:
            wanted = connection.execute("SELECT 1 FROM meta WHERE key = ?", (_SCRUB,)).fetchone()
            known = [file for (file,) in connection.execute("SELECT file FROM snapshots")]
        if wanted is not None:
            self.indexes.snapshots.remove_unknown(known)
            self.scrub()

    def close(self) -> None:
        """Stop the background thread, write what is pending and the snapshots, close the file."""
        if self._closed:
            return
        self._closed = True
        self.upkeep.close()
        try:
            for namespace in self.pending.namespaces():
                with self.writing_to(namespace):
                    pass
        except EcsPluginsError as error:
            logger.warning("retrieval hits could not be written and are lost: %s", error)
        self.indexes.save()
        self.database.close()

    def tend(self) -> None:
        """Hand to the background thread what the indexes want done."""
        self.indexes.save_evicted()
        if self.indexes.due():
            self.upkeep.submit("building an index", lambda stop: self.indexes.maintain(stop=stop))


@dataclass(slots=True)
class NamespaceLocks:
    """One sleep phase per namespace at a time."""

    _busy: set[Namespace] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def hold(self, namespace: Namespace) -> Iterator[None]:
        """Wait until nobody holds the namespace, and hold it."""
        with self._changed:
            while namespace in self._busy:
                self._changed.wait()
            self._busy.add(namespace)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(namespace)
                self._changed.notify_all()

    def is_held(self, namespace: Namespace) -> bool:
        """Whether somebody holds the namespace."""
        with self._changed:
            return namespace in self._busy


_open_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Threads do not exist in the child, and locks may have been held: begin anew. What the
    # parent has not written yet is the parent's to write.
    for core in list(_open_cores):
        core.indexes = OpenIndexes(core.database, core.dimension, core.store.index)
        core.known = KnownMemories()
        core.pending = PendingAccesses()
        core._reset_threads()


os.register_at_fork(after_in_child=_after_fork_in_child)
