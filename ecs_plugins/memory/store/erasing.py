"""What callers erase: by ids, by namespace or filter, and by time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store import namespaces, rereading, tiers
from ecs_plugins.memory.store.erasure import erasing, matching, namespace_of
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.retention import due, expired
from ecs_plugins.memory.types import Namespace

_MOST_LOCKS = 64
"""Of more namespaces, everything is locked: a server has room for so many locks."""


def delete(store: MemoryStore, names: Sequence[str], *, evidence: bool) -> ErasureReceipt:
    """Erase messages and what rests on them alone, or memories: all of them, or nothing."""
    with store.database.read() as connection:
        spaces = {namespace_of(connection, name) for name in names}
        going = tiers.with_behind(connection, names) if evidence else names
        texts = rereading.foreseen(connection, going)
    with store.embedded(texts), erasing(store, spaces) as erasure:
        erasure.delete(names, evidence=evidence)
    return erasure.receipt


def forget(
    store: MemoryStore, namespace: Namespace, condition: Filter | None, *, below: bool
) -> ErasureReceipt:
    """Erase a namespace with everything in it, or the messages in it that a filter matches."""
    texts: list[str] = []
    if condition is not None:
        texts = _foreseen(store, namespace, condition)
    with store.embedded(texts), erasing(store, [namespace], below=below) as erasure:
        erasure.forget(namespace, condition, below=below)
    return erasure.receipt


def _foreseen(store: MemoryStore, namespace: Namespace, condition: Filter) -> list[str]:
    """The texts of which vectors are needed to erase what a filter matches."""
    texts = []
    with store.database.read() as connection:
        for space in namespaces.list_spaces(connection, namespace):
            going = matching(connection, space, condition)
            texts += rereading.foreseen(connection, going)
    return texts


def purge(store: MemoryStore) -> ErasureReceipt:
    """Erase the messages and items that have expired, and end the log's retention."""
    now = time.time()
    texts: list[str] = []
    with store.database.read() as connection:
        spaces = due(connection, now, store.settings.log_retention)
        for space in namespaces.list_spaces(connection):
            if space.namespace in spaces:
                texts += rereading.foreseen(connection, expired(connection, space.id, now))
    if not spaces:
        return ErasureReceipt(now)
    locked = spaces if len(spaces) <= _MOST_LOCKS else ()
    with store.embedded(texts), erasing(store, locked) as erasure:
        for namespace in sorted(spaces):
            erasure.purge(namespace, now)
    return erasure.receipt
