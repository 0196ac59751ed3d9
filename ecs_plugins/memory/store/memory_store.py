"""`MemoryStore`: an open memory, its embedder, transactions, indexes and pending hits."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import numpy as np

from ecs_plugins.errors import ConfigurationError, EcsPluginsError, InvalidInputError, StorageError
from ecs_plugins.memory.config import MemoryConfig, StoreConfig
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.relevance import DEFAULT, SCALES
from ecs_plugins.memory.store import reembedding
from ecs_plugins.memory.store.embedder_record import epoch_of, record, recorded, recorded_scale
from ecs_plugins.memory.store.group_commit import GroupCommit
from ecs_plugins.memory.store.index import IndexCache
from ecs_plugins.memory.store.namespaces import (
    Space,
    checked,
    create_space,
    find_space,
    scope_of,
)
from ecs_plugins.memory.store.queries import Access, write_accesses
from ecs_plugins.memory.store.seam import Candidates, Rows, SpaceIndexes
from ecs_plugins.memory.types import Matrix, Namespace, Tier, Vector
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.storage.base import Connection, Scope, SqlDatabase

T = TypeVar("T")
logger = logging.getLogger(__name__)

# Keys in `meta`:
_SCRUB = "scrub"
_ERASURES = "erasures"

_COUNT = """
    INSERT INTO meta VALUES (?, '1')
    ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS INTEGER) + 1 AS TEXT)
"""
_TIERS_BUDGET = 1 << 28  # bytes of the tiers that are kept between sleep phases
_ATTEMPTS = 8
"""Times that an operation runs before it embeds inside its transaction."""

FLUSH_AT = 256
"""Pending recalls of a namespace from which on they are written."""

_MOST_PENDING = 4096  # of a namespace, while they cannot be written


def erasures_of(connection: Connection) -> int:
    """Return the number of erasures in the file."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_ERASURES,)).fetchone()
    return 0 if row is None else int(row[0])


NearParts = Callable[[Connection, Space, str, Vector, int, Rows | None], Candidates | None]
"""Finds parts of long messages; see `ecs_plugins.memory.store.items.Items.near_parts`."""


def _no_parts(*_: object) -> None:
    return None


class _MissingVectorsError(Exception):
    """Error: a transaction needs the vectors of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__()
        self.texts = texts


class PendingAccesses:
    """The recalls of each namespace that are not written yet. Thread-safe."""

    def __init__(self) -> None:
        self._pending: dict[Namespace, deque[Access]] = {}
        self._lock = threading.Lock()

    def note(self, namespace: Namespace, *accesses: Access) -> None:
        """Queue recalls to be written; beyond `_MOST_PENDING` the oldest are lost."""
        with self._lock:
            if accesses:
                pending = self._pending.setdefault(namespace, deque(maxlen=_MOST_PENDING))
                pending.extend(accesses)

    def take(self, namespace: Namespace) -> list[Access]:
        """Remove and return the pending recalls."""
        with self._lock:
            return list(self._pending.pop(namespace, ()))

    def namespaces(self, least: int = 1) -> list[Namespace]:
        """Return the namespaces with at least ``least`` pending recalls."""
        with self._lock:
            return [name for name, pending in self._pending.items() if len(pending) >= least]

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._pending.values()))


class MemoryStore:
    """An open memory. Thread-safe.

    Args:
        embedder: From `as_embedder`, so its vectors are checked and normalised. Must be the one
            that the file was written with, unless the caller re-embeds: ``adopt``.
        indexes: Makes the indexes of a dimension.

    Attributes:
        epoch: How often the embedder of the file was replaced.
        is_current: Whether the file's vectors come from this embedder.
        scale: How near unrelated texts lie under it.
        forget_read: Clears what the language model keeps of what it has read.
        near_parts: Finds the rows of long messages by their parts.
    """

    def __init__(
        self,
        database: SqlDatabase,
        embedder: Embedder,
        config: MemoryConfig,
        settings: StoreConfig,
        indexes: Callable[[int], SpaceIndexes],
        *,
        adopt: bool = False,
    ) -> None:
        self.database = database
        self._use(embedder)
        self.config = config
        self.settings = settings
        self._make_indexes = indexes
        self.epoch, self.is_current = self._identify(adopt)
        with database.read() as connection:
            self.scale = recorded_scale(connection, self.epoch, embedder.name)
        self.closed = False
        self._receipts: list[weakref.ref[ErasureReceipt]] = []
        self._noting = threading.Lock()
        self.reset()
        self._embedded = threading.local()  # vectors known within `embedding_first`
        self.forget_read: Callable[[], object] = int
        self.near_parts: NearParts = _no_parts
        if self.is_current:
            self.indexes.prepare()
        if not database.read_only:
            self._finish_interrupted_erasure()
        database.at_fork.append(self.reset)

    def reset(self) -> None:
        """Begin with no index and nothing pending, also in a forked child."""
        self.indexes = self._make_indexes(self.dimension)
        self.tier_caches: IndexCache[tuple[int, Tier], Any] = IndexCache(_TIERS_BUDGET)
        self.pending = PendingAccesses()
        self.additions: GroupCommit[Any] = GroupCommit()

    # The embedder

    @property
    def identity(self) -> dict[str, object]:
        """Return the recorded identifier of the embedder."""
        return {"name": self.embedder.name, "dimension": self.dimension, "normalisation": "l2"}

    def _identify(self, adopt: bool) -> tuple[int, bool]:
        """Return the epoch, and True if the vectors of the file come from this embedder."""
        with self.database.read() as connection:
            known = recorded(connection)
        if known is None:
            with self.database.write() as connection:
                known = recorded(connection) or (self.identity, 0)
                record(connection, *known)
        identity, epoch = known
        if identity != self.identity and not adopt:
            raise ConfigurationError(
                f"{self.database.path} was written with the embedder {identity['name']!r} "
                f"({identity['dimension']} dimensions), not with {self.embedder.name!r} "
                f"({self.dimension}); open it with that one, or with reembed=True"
            )
        return epoch, identity == self.identity

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return unit vectors ``[len(texts), dimension]``."""
        known: Mapping[str, Vector] | None = getattr(self._embedded, "vectors", None)
        if known is None or not (texts and self.database.is_writing):
            return self.embedder.embed_documents(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            raise _MissingVectorsError(missing)
        return np.stack([known[text] for text in texts])

    def embedding_first(self, operate: Callable[[], T]) -> T:
        """Run an operation that writes, with no other writer waiting for the embedder.

        When the operation needs a vector inside its transaction, it is rolled back and run again
        with that vector.
        """
        if self.database.is_writing:
            return operate()
        known: dict[str, Vector] = {}
        for _ in range(_ATTEMPTS):
            self._embedded.vectors = known
            try:
                return operate()
            except _MissingVectorsError as error:
                texts = error.texts
            finally:
                self._embedded.vectors = None
            known.update(zip(texts, self.embedder.embed_documents(texts), strict=True))
        return operate()

    def embed_query(self, text: str) -> Vector:
        """Return a unit vector ``[dimension]``; of a text that is not blank."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError("a query needs text")
        return self.embedder.embed_query(text)

    def reembed(self, embedder: Embedder, progress: reembedding.Progress | None = None) -> None:
        """Replace every vector by one of another embedder, and start a new epoch."""
        before = self.embedder
        self._use(embedder)
        try:
            with reembedding.replaced_vectors(self.database, self.embed, progress) as connection:
                epoch = 1 + epoch_of(connection)
                record(connection, self.identity, epoch)
                connection.execute("UPDATE namespaces SET epoch = ?", (epoch,))
                self.indexes.clear(connection)
        except BaseException:
            self._use(before)
            raise
        self.epoch = epoch
        self.is_current = True
        self.scale = SCALES.get(embedder.name, DEFAULT)
        self.reset()
        self.indexes.prepare()

    def _use(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.dimension = int(embedder.dimension)
        self.refusals: Matrix | None = None  # vectors of typical ones, once they are needed

    # Transactions

    @contextmanager
    def reading(self, namespace: Namespace) -> Iterator[tuple[Connection, Space | None]]:
        """Open a consistent view of a namespace."""
        with self.database.read() as connection:
            space = find_space(connection, namespace)
            if space is not None and space.epoch != self.epoch:
                raise self._replaced_embedder()
            yield connection, space

    @contextmanager
    def writing(
        self, namespaces: Iterable[Namespace] = (), *, below: bool = False
    ) -> Iterator[Connection]:
        """Open a write transaction on some namespaces, or on everything if none is named.

        Args:
            namespaces: What is written to.
            below: Whether what lies below them is written to as well; then their tenants wait.
        """
        wanted = {scope_of(checked(namespace)) for namespace in namespaces}
        scopes: Iterable[Scope] = wanted or {()}
        if below:
            scopes = {scope[:1] for scope in wanted}
        with ExitStack() as stack:
            for scope in sorted(scopes):  # in one order, so that nobody waits for who waits for him
                connection = stack.enter_context(self.database.write(scope=scope))
            self.require_embedder(connection)
            yield connection

    @contextmanager
    def writing_to(
        self, namespace: Namespace, *, create: bool = False, flush: bool = True, wait: bool = True
    ) -> Iterator[tuple[Connection, Space | None]]:
        """Open a write transaction on a namespace; write pending recalls first, counters last."""
        with self.database.write(wait=wait, scope=scope_of(namespace)) as connection:
            space = find_space(connection, namespace)
            epoch = epoch_of(connection) if space is None else space.epoch
            if epoch != self.epoch:
                raise self._replaced_embedder()
            if space is None and create:
                space = create_space(connection, namespace, time.time(), self.epoch)
            accesses = self.pending.take(namespace) if flush else []
            self.database.on_end(self._follower(namespace, space, accesses))
            if space is None:
                yield connection, None
                return
            if accesses:
                write_accesses(connection, space, accesses, erasures_of(connection))
            yield connection, space
            self.indexes.settle(connection, space)
            space.save(connection)

    def _follower(
        self, namespace: Namespace, space: Space | None, accesses: Sequence[Access]
    ) -> Callable[[bool], None]:
        """Return a follower that applies a transaction to the index and the pending recalls."""
        before = 0 if space is None else space.revision

        def follow(committed: bool) -> None:
            if not committed:
                self.pending.note(namespace, *accesses)
            if space is None:
                return
            if committed:
                self.indexes.committed(space)
            else:
                self.indexes.rolled_back(space, before)

        return follow

    def together(self, namespaces: Iterable[Namespace], operate: Callable[[], T]) -> T:
        """Run an operation in one transaction; it may run again, see `embedding_first`."""

        def run() -> T:
            with self.writing(namespaces):
                return operate()

        return self.embedding_first(run)

    def flush(self, namespace: Namespace, *, wait: bool = True) -> None:
        """Write the pending recalls of a namespace; a failure is logged, they stay pending."""
        if namespace in self.pending.namespaces():
            try:
                with self.writing_to(namespace, wait=wait):
                    pass
            except EcsPluginsError as error:
                level = logging.WARNING if wait else logging.DEBUG
                logger.log(level, "retrieval hits could not be written yet: %s", error)

    def require_embedder(self, connection: Connection) -> None:
        """Refuse to go on with a file that another process has re-embedded.

        Raises:
            StorageError: It was.
        """
        if epoch_of(connection) != self.epoch:
            raise self._replaced_embedder()

    def _replaced_embedder(self) -> StorageError:
        return StorageError(
            f"{self.database.path} was re-embedded by another process; open it again with "
            "the new embedder"
        )

    # Erasing

    @staticmethod
    def note_scrub(connection: Connection) -> None:
        """Note in an erasing transaction that `scrub` has to follow, in case the process dies."""
        for name in (_SCRUB, _ERASURES):
            connection.execute(_COUNT, (name,))

    def note_receipt(self, receipt: ErasureReceipt) -> None:
        """Remember a receipt until `compact` has taken its content out of the files."""
        with self._noting:
            self._receipts = [each for each in self._receipts if each() is not None]
            self._receipts.append(weakref.ref(receipt))

    def scrub(self, *, vacuum: bool = False) -> bool:
        """Take erased content out of the model's cache and of the write-ahead log.

        Returns:
            Whether the log is empty; see `SqlDatabase.scrub`.
        """
        self.forget_read()
        self.tier_caches = IndexCache(_TIERS_BUDGET)
        done = self.database.scrub(vacuum=vacuum)
        if done:
            with self.database.write() as connection:
                connection.execute("DELETE FROM meta WHERE key = ?", (_SCRUB,))
        return done

    def _finish_interrupted_erasure(self) -> None:
        """Empty the write-ahead log after an erasure whose process was killed."""
        with self.database.read() as connection:
            wanted = connection.execute("SELECT 1 FROM meta WHERE key = ?", (_SCRUB,)).fetchone()
        if wanted is not None:
            self.scrub()

    # The whole file

    def compact(self) -> bool:
        """Rewrite the files without erased content; return False if another reader prevents it."""
        with self._noting:
            receipts, self._receipts = self._receipts, []
        done = False
        try:
            done = self.scrub(vacuum=True)
        finally:
            if not done:
                with self._noting:
                    self._receipts += receipts
        for each in receipts if done else ():
            receipt = each()
            if receipt is not None:
                receipt.scrubbed = True
        return done

    def close(self) -> None:
        """Write pending recalls, and close the file."""
        if self.closed:
            return
        self.closed = True
        try:
            for namespace in self.pending.namespaces():
                with self.writing_to(namespace):
                    pass
        except EcsPluginsError as error:
            logger.warning("retrieval hits could not be written and are lost: %s", error)
        self.database.close()
