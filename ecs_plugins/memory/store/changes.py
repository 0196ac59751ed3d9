"""Changing and erasing: single items, whole namespaces, what has expired, old log entries.

Each function works inside one write transaction of `SqliteStore.erasing`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.store import items, spaces, tiers
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.erasure import Erased, Erasure, drop_namespace
from ecs_plugins.memory.store.intake import check_room_to_pin, insert_pinned
from ecs_plugins.memory.store.rows import crc, dump, pack
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.types import Vector


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be changed; None leaves it as it is. A text comes with its vector."""

    text: str | None
    metadata: Mapping[str, object] | None
    vector: Vector | None
    pinned: bool | None


def _unknown(name: str) -> InvalidInputError:
    return InvalidInputError(f"nothing is stored under the id {name!r}; it may be erased")


def _space_of(connection: sqlite3.Connection, namespace: Namespace) -> Space:
    space = spaces.find(connection, namespace)
    assert space is not None
    return space


def update(
    connection: sqlite3.Connection,
    name: str,
    change: Change,
    config: MemoryConfig,
    dimension: int,
    erased: Erased,
) -> None:
    """Change a message (and what rests on it) or a memory."""
    message = log.get(connection, name)
    if message is None:
        live = [row for row in tiers.versions(connection, name, dimension) if row.live]
        if not live:
            raise _unknown(name)
        space = spaces.by_id(connection, live[0].space)
        _update_memory(connection, space, live[0], change, config)
    else:
        space = _space_of(connection, message.namespace)
        if change.text is not None or change.metadata is not None:
            _rewrite(connection, name, change)
            old = message.text if change.text is not None else ""
            Erasure(connection, space, config, dimension, erased).rederive(name, old)
        if change.pinned is not None:
            _pin_message(connection, space, name, change.pinned, config, dimension)
    Erasure(connection, space, config, dimension, erased).save()


def _rewrite(connection: sqlite3.Connection, name: str, change: Change) -> None:
    if change.text is not None and change.vector is not None:
        data = pack(change.vector)
        connection.execute(
            "UPDATE messages SET text = ?, text_crc = ?, vector = ?, vector_crc = ? WHERE id = ?",
            (change.text, crc(change.text), data, crc(data), name),
        )
    if change.metadata is not None:
        connection.execute(
            "UPDATE messages SET metadata = ? WHERE id = ?", (dump(change.metadata), name)
        )


def _update_memory(
    connection: sqlite3.Connection, space: Space, old: TierRow, change: Change, config: MemoryConfig
) -> None:
    memory = old.memory
    if change.pinned and not memory.pinned:
        check_room_to_pin(connection, space, config.cold_capacity)
    if change.pinned is not None:
        memory = replace(memory, pinned=change.pinned)
    if change.text is None and change.metadata is None:
        tiers.update(connection, old.row, memory)
        return
    if change.text is not None and change.vector is not None:
        memory = replace(memory, text=change.text, vector=change.vector)
    new = replace(
        old,
        item=memory,
        version=old.version + 1,
        metadata=old.metadata if change.metadata is None else change.metadata,
        changed=time.time(),
        born=None,
    )
    tiers.delete(connection, space, [old])
    tiers.insert(connection, space, new)


def _pin_message(
    connection: sqlite3.Connection,
    space: Space,
    name: str,
    pinned: bool,
    config: MemoryConfig,
    dimension: int,
) -> None:
    """Pin what a message stands in: its hot item moves to the cold tier, pinned."""
    found = tiers.select(
        connection,
        "live = 1 AND tier = 'hot' AND id IN (SELECT item FROM provenance WHERE message = ?)",
        (name,),
        dimension=dimension,
        members=True,
    )
    if not found:
        raise InvalidInputError(
            f"the message {name!r} is not in the hot tier; pin the memory it went into"
        )
    if pinned:
        hot = found[0]
        capacity = config.cold_capacity
        insert_pinned(connection, space, hot, members=hot.hot.members, capacity=capacity)
        tiers.delete(connection, space, [hot])
        tiers.forget_provenance(connection, [hot.item.id])


def delete(
    connection: sqlite3.Connection,
    name: str,
    config: MemoryConfig,
    dimension: int,
    erased: Erased,
    *,
    evidence: bool,
) -> None:
    """Erase a message, or a memory (with ``evidence``, also the messages behind it)."""
    message = log.get(connection, name)
    if message is not None:
        space = _space_of(connection, message.namespace)
        erasure = Erasure(connection, space, config, dimension, erased)
        erasure.erase_messages([name])
    else:
        versions = tiers.versions(connection, name)
        if not versions:
            raise _unknown(name)
        behind = tiers.provenance(connection, [name]).get(name, ())
        space = spaces.by_id(connection, versions[0].space)
        erasure = Erasure(connection, space, config, dimension, erased)
        erasure.erase_memory(name)
        if evidence and behind:
            erasure.erase_messages(behind)
    erasure.save()


def forget(
    connection: sqlite3.Connection,
    namespace: Namespace,
    condition: Filter | None,
    config: MemoryConfig,
    dimension: int,
    erased: Erased,
    *,
    below: bool,
) -> None:
    """Erase a namespace, or the messages in it that match; ``below``: what lies below too."""
    found = spaces.listed(connection, namespace)
    if not below:
        found = [space for space in found if space.namespace == namespace]
    if condition is None:
        erased.items += items.erase_items(connection, namespace, below=below)
    for space in found:
        if condition is None:
            drop_namespace(connection, space, erased)
        else:
            erasure = Erasure(connection, space, config, dimension, erased)
            _forget_matching(connection, space, condition, erasure)
            erasure.save()


def _forget_matching(
    connection: sqlite3.Connection, space: Space, condition: Filter, erasure: Erasure
) -> None:
    messages = [
        message.id
        for message in log.log(connection, space.id, now=float("-inf"))
        if matches(message.metadata, condition)
    ]
    if messages:
        erasure.erase_messages(messages)
    # Memories whose messages the log no longer has can only be judged by themselves.
    for row in tiers.tier_rows(connection, space.id, "cold"):
        known = connection.execute(
            "SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message WHERE p.item = ?",
            (row.item.id,),
        ).fetchone()
        if known is None and matches(row.metadata, condition):
            erasure.erase_memory(row.item.id)


def any_expired(connection: sqlite3.Connection, now: float) -> bool:
    """Whether a message or an item has expired and is still there."""
    found = connection.execute(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE expires <= ?1)"
        " OR EXISTS (SELECT 1 FROM items WHERE expires <= ?1)",
        (now,),
    ).fetchone()
    return found is not None


def purge(
    connection: sqlite3.Connection,
    now: float,
    retention: float | None,
    config: MemoryConfig,
    dimension: int,
    erased: Erased,
) -> None:
    """Erase the messages and items that have expired, and drop what the log's retention ends."""
    erased.items += items.expire_items(connection, now)
    expired: dict[int, list[str]] = {}
    for number, name in connection.execute(
        "SELECT namespace, id FROM messages WHERE expires <= ?", (now,)
    ):
        expired.setdefault(number, []).append(name)
    for number, names in expired.items():
        space = spaces.by_id(connection, number)
        erasure = Erasure(connection, space, config, dimension, erased)
        erasure.erase_messages(names)
        erasure.save()
    if retention is not None:
        erased.messages += _drop_old(connection, now - retention)


def _drop_old(connection: sqlite3.Connection, before: float) -> list[str]:
    """End the retention of log entries, and of the old versions that only history needs.

    This is not erasure: what a memory made of a message stays.
    """
    connection.execute("DELETE FROM tiers WHERE live = 0 AND changed < ?", (before,))
    connection.execute("DELETE FROM provenance WHERE item NOT IN (SELECT id FROM tiers)")
    return [
        name
        for (name,) in connection.execute(
            "DELETE FROM messages WHERE created < ? AND NOT EXISTS ("
            "SELECT 1 FROM provenance p JOIN tiers t ON t.id = p.item AND t.tier = 'hot'"
            " WHERE p.message = messages.id) RETURNING id",
            (before,),
        ).fetchall()
    ]
