"""Changing and erasing single items, whole namespaces, what has expired and old log entries."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store import cold_memories, hot_items, spaces
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.admitting import check_room_to_pin, insert_pinned
from ecs_plugins.memory.store.core import Core
from ecs_plugins.memory.store.erasure import Erased, Erasing, drop_namespace
from ecs_plugins.memory.store.item_transfer import erase_items
from ecs_plugins.memory.store.items import any_expired, expire_items
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.rows import dump
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vectors import crc, pack
from ecs_plugins.memory.types import ColdMemory, Vector


def _unknown(name: str) -> InvalidInputError:
    return InvalidInputError(f"nothing is stored under the id {name!r}; it may be erased")


class Editing:
    """The changes to what is stored, apart from adding and sleeping.

    Args:
        core: The open memory.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def _erasing(self, connection: sqlite3.Connection, space: Space, erased: Erased) -> Erasing:
        return Erasing(
            connection,
            space,
            config=self._core.config,
            dimension=self._core.dimension,
            now=time.time(),
            erased=erased,
        )

    def _finish(self, connection: sqlite3.Connection, space: Space, erased: Erased) -> None:
        erased.snapshots += self._core.indexes.snapshots.remove(connection, space.id)
        space.save(connection)

    # Erasing

    def delete(self, name: str, *, evidence: bool) -> ErasureReceipt:
        """Erase a message, or a memory (with ``evidence``, also the messages behind it)."""
        erased = Erased()
        with self._core.erasing() as connection:
            message = log.get(connection, name)
            if message is not None:
                space = self._space(connection, message.namespace)
                self._erasing(connection, space, erased).erase_messages([name])
            else:
                versions = cold_memories.versions(connection, name)
                if not versions:
                    raise _unknown(name)
                space = spaces.by_id(connection, versions[0].space)
                erasing = self._erasing(connection, space, erased)
                behind = cold_memories.provenance_of(connection, [name]).get(name, ())
                erasing.erase_memory(name)
                if evidence and behind:
                    erasing.erase_messages(behind)
            self._finish(connection, space, erased)
        return self._core.finish_erasure(erased)

    def forget(
        self, namespace: Namespace, condition: Filter | None, *, below: bool
    ) -> ErasureReceipt:
        """Erase a namespace, or the messages in it that match; ``below``: what lies below too."""
        erased = Erased()
        with self._core.erasing() as connection:
            found = (
                spaces.listed(connection, namespace)
                if below
                else [space for space in [spaces.find(connection, namespace)] if space is not None]
            )
            if condition is None:
                erased.items += erase_items(connection, namespace, below=below)
            for space in found:
                if condition is None:
                    drop_namespace(connection, space, erased)
                else:
                    self._forget_matching(connection, space, condition, erased)
        if condition is None:
            for space in found:
                self._core.pending.discard(space.namespace)
                self._core.indexes.drop(space.id)
        return self._core.finish_erasure(erased)

    def _forget_matching(
        self, connection: sqlite3.Connection, space: Space, condition: Filter, erased: Erased
    ) -> None:
        messages = [
            message.id
            for message in log.log(connection, space.id, now=float("-inf"))
            if matches(message.metadata, condition)
        ]
        erasing = self._erasing(connection, space, erased)
        if messages:
            erasing.erase_messages(messages)
        # Memories whose messages the log no longer has can only be judged by themselves.
        for row in cold_memories.cold_tier(connection, space.id):
            behind = cold_memories.provenance_of(connection, [row.memory.id]).get(row.memory.id, ())
            known = log.observations(connection, behind, self._core.dimension)
            if not known and matches(row.metadata, condition):
                erasing.erase_memory(row.memory.id)
        self._finish(connection, space, erased)

    def purge(self) -> ErasureReceipt:
        """Erase the messages that have expired, and drop what the log's retention ends."""
        erased = Erased()
        now = time.time()
        with self._core.database.read() as connection:
            due = connection.execute(
                "SELECT 1 FROM messages WHERE expires <= ? LIMIT 1", (now,)
            ).fetchone()
            items_due = any_expired(connection, now)
        retention = self._core.store.log_retention
        if due is None and retention is None and not items_due:
            return erased.receipt(now, scrubbed=True)
        with self._core.erasing() as connection:
            erased.items += expire_items(connection, now)
            expired: dict[int, list[str]] = {}
            for number, name in connection.execute(
                "SELECT namespace, id FROM messages WHERE expires <= ?", (now,)
            ):
                expired.setdefault(number, []).append(name)
            for number, names in expired.items():
                space = spaces.by_id(connection, number)
                self._erasing(connection, space, erased).erase_messages(names)
                self._finish(connection, space, erased)
            if retention is not None:
                erased.messages += _drop_old(connection, now - retention)
        return self._core.finish_erasure(erased)

    # Changing

    def update(
        self,
        name: str,
        *,
        text: str | None,
        metadata: Mapping[str, object] | None,
        pinned: bool | None,
    ) -> None:
        """Change a message (and what rests on it) or a memory."""
        changed = NewMessage(text if text is not None else "-", metadata=metadata or {})
        vector = None if text is None else self._core.embed([text])[0]
        erased = Erased()
        erases = text is not None or metadata is not None
        with self._core.erasing() if erases else self._core.writing() as connection:
            message = log.get(connection, name)
            versions = [] if message else cold_memories.versions(connection, name)
            if message is None and not any(version.live for version in versions):
                raise _unknown(name)
            space = (
                self._space(connection, message.namespace)
                if message
                else spaces.by_id(connection, versions[0].space)
            )
            new_text = None if text is None else changed.text
            new_metadata = None if metadata is None else changed.metadata
            if message is None:
                self._update_memory(
                    connection, space, versions[-1], new_text, new_metadata, vector, pinned
                )
            else:
                if new_text is not None or new_metadata is not None:
                    _rewrite(connection, name, new_text, new_metadata, vector)
                    old = message.text if new_text is not None else ""
                    self._erasing(connection, space, erased).rederive(name, old)
                if pinned is not None:
                    self._pin_message(connection, space, name, pinned)
            self._finish(connection, space, erased)
        if erases:
            self._core.finish_erasure(erased)

    def _update_memory(
        self,
        connection: sqlite3.Connection,
        space: Space,
        old: cold_memories.ColdRow,
        text: str | None,
        metadata: Mapping[str, object] | None,
        vector: Vector | None,
        pinned: bool | None,
    ) -> None:
        old = cold_memories.cold_rows(connection, [old.row], self._core.dimension)[old.row]
        if pinned and not old.memory.pinned:
            check_room_to_pin(connection, space, self._core.config.cold_capacity)
        memory = replace(
            old.memory,
            text=old.memory.text if text is None else text,
            vector=old.memory.vector if vector is None else vector,
            pinned=old.memory.pinned if pinned is None else pinned,
        )
        if text is None and metadata is None:
            cold_memories.update_cold(connection, old.row, memory)
            return
        cold_memories.insert_cold(
            connection,
            space,
            memory,
            version=old.version + 1,
            metadata=old.metadata if metadata is None else metadata,
            created=old.created,
            changed=time.time(),
            expires=old.expires,
            judged=old.judged,
        )
        cold_memories.retire_cold(connection, [old.row], None)
        space.rewrote("cold")

    def _pin_message(
        self, connection: sqlite3.Connection, space: Space, name: str, pinned: bool
    ) -> None:
        """Pin what a message stands in: its hot item moves to the cold tier, pinned."""
        items = [name, *hot_items.items_with(connection, [name])]
        rows = hot_items.live_rows(connection, space.id, items)
        if not rows:
            raise InvalidInputError(
                f"the message {name!r} is not in the hot tier; pin the memory it went into"
            )
        if not pinned:
            return
        hot = hot_items.hot_rows(connection, space.id, rows, self._core.dimension)[rows[0]]
        members = hot_items.members_of_items(connection, [hot.item.id]).get(
            hot.item.id, (hot.item.id,)
        )
        memory = ColdMemory(
            id=log.new_ids(1)[0],
            vector=hot.item.vector,
            evidence=hot.item.evidence,
            text=hot.item.text,
            pinned=True,
        )
        insert_pinned(
            connection,
            space,
            memory,
            members=members,
            metadata=hot.metadata,
            expires=hot.expires,
            capacity=self._core.config.cold_capacity,
            now=time.time(),
        )
        hot_items.delete_hot(connection, space.id, [hot.row])
        space.rewrote("hot", -1)

    @staticmethod
    def _space(connection: sqlite3.Connection, namespace: Namespace) -> Space:
        space = spaces.find(connection, namespace)
        assert space is not None
        return space


def _rewrite(
    connection: sqlite3.Connection,
    name: str,
    text: str | None,
    metadata: Mapping[str, object] | None,
    vector: Vector | None,
) -> None:
    if text is not None and vector is not None:
        data = pack(vector)
        connection.execute(
            "UPDATE messages SET text = ?, text_crc = ?, vector = ?, vector_crc = ? WHERE id = ?",
            (text, crc(text), data, crc(data), name),
        )
    if metadata is not None:
        connection.execute("UPDATE messages SET metadata = ? WHERE id = ?", (dump(metadata), name))


def _drop_old(connection: sqlite3.Connection, before: float) -> Collection[str]:
    """End the retention of log entries, and of the old versions that only undo and history need.

    This is not erasure: what a memory made of a message stays.
    """
    connection.execute(
        "DELETE FROM hot_items WHERE live = 0 AND died IN (SELECT id FROM sleeps WHERE at < ?)",
        (before,),
    )
    connection.execute("DELETE FROM memories WHERE live = 0 AND changed < ?", (before,))
    connection.execute("DELETE FROM hot_members WHERE item NOT IN (SELECT id FROM hot_items)")
    connection.execute("DELETE FROM provenance WHERE memory NOT IN (SELECT id FROM memories)")
    old = [
        name
        for (name,) in connection.execute(
            "SELECT id FROM messages m WHERE created < ?"
            " AND NOT EXISTS (SELECT 1 FROM hot_items h WHERE h.id = m.id)"
            " AND NOT EXISTS (SELECT 1 FROM hot_messages x"
            " WHERE x.namespace = m.namespace AND x.message = m.seq)"
            " AND NOT EXISTS (SELECT 1 FROM hot_members x WHERE x.message = m.id)",
            (before,),
        )
    ]
    connection.execute(
        "DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))", (dump(old),)
    )
    return old
