"""Erasing: single items, namespaces, what has expired, old log entries.

Erasing a message erases its text and vector from the log, and follows its provenance: every hot
item and every version of every memory that rests on it is derived anew from the messages that
remain, as if it had never been said, or is erased if none remain. What a language model once
wrote about a cluster is never kept, because nobody can tell which message it drew on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ecs_plugins.common.text import asked_at_end
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import namespaces, rereading, tiers
from ecs_plugins.memory.store.derivation import derived, is_strange
from ecs_plugins.memory.store.erased import Erased
from ecs_plugins.memory.store.erased_record import Content, erase_queries, mark_decisions
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space, key_of
from ecs_plugins.memory.store.retention import drop_old, expired
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import dump
from ecs_plugins.memory.types import Namespace
from ecs_plugins.storage.base import Connection

_AMONG = "IN (SELECT value FROM json_each(?))"
_MESSAGES = "SELECT id FROM messages WHERE namespace = ?"
_MEMORIES = "SELECT DISTINCT id FROM tiers WHERE namespace = ? AND tier = 'cold'"
_DECISIONS = "SELECT count(*) FROM decisions WHERE namespace = ?"
_DROP_QUERIES = "DELETE FROM queries WHERE namespace = ? RETURNING id"
_DROP_PROVENANCE = """
    DELETE FROM provenance
    WHERE item IN (SELECT id FROM tiers WHERE namespace = ?)
"""
_LOGGED = """
    SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message
    WHERE p.item = ?
"""


class Erasure:
    """Changes and erases within one write transaction.

    Attributes:
        erased: What is gone.
        changed: Namespaces that were changed, as they were saved: their indexes have to follow.
        dropped: Numbers of the namespaces deleted.
    """

    def __init__(self, store: MemoryStore, connection: Connection) -> None:
        self.store = store
        self.connection = connection
        self.erased = Erased()
        self.changed: list[Space] = []
        self.dropped: list[int] = []
        self.scrubbed = False
        self._gone: set[str] = set()
        self._affected: set[str] = set()
        self._contents: list[Content] = []

    @property
    def receipt(self) -> ErasureReceipt:
        """The proof of what is gone; whole when the transaction is over."""
        return self.erased.receipt(scrubbed=self.scrubbed)

    def save(self, space: Space) -> None:
        """Write the counters of a namespace that was changed."""
        self.store.indexes.settle(self.connection, space)
        space.save(self.connection)
        self.changed.append(space)

    def space_of(self, namespace: Namespace) -> Space:
        """The namespace of something that is stored."""
        space = namespaces.find_space(self.connection, namespace)
        assert space is not None
        return space

    # Erasing

    def delete(self, names: Iterable[str], *, evidence: bool) -> None:
        """Erase messages, and memories (with ``evidence``, also the messages behind these)."""
        messages: dict[Namespace, list[str]] = {}
        memories: dict[int, list[str]] = {}
        for name in dict.fromkeys(names):
            message = log.get(self.connection, name)
            if message is not None:
                messages.setdefault(message.namespace, []).append(name)
                continue
            versions = tiers.versions(self.connection, name)
            if not versions:
                raise unknown(name)
            number = versions[0].space
            memories.setdefault(number, []).append(name)
        spaces: dict[int, Space] = {}
        for namespace, ids in messages.items():
            space = self.space_of(namespace)
            spaces[space.id] = space
            self._erase_messages(space, ids)
        for number, ids in memories.items():
            if number not in spaces:
                spaces[number] = namespaces.space_by_id(self.connection, number)
            self._erase_memories(spaces[number], ids, evidence=evidence)
        for space in spaces.values():
            self.save(space)

    def _erase_memories(self, space: Space, names: Sequence[str], *, evidence: bool) -> None:
        behind = tiers.provenance(self.connection, names)
        erased: dict[str, list[Content]] = {}
        for name in names:
            if tiers.versions(self.connection, name):  # else it went with a message
                erased[name] = self._erase_memory(space, name)
        if evidence:
            messages = {message for name in erased for message in behind.get(name, ())}
            if messages:
                self._erase_messages(space, sorted(messages))
        for name, contents in erased.items():
            self.note_quotes(behind.get(name, ()), contents)

    def forget(self, namespace: Namespace, condition: Filter | None, *, below: bool) -> None:
        """Erase a namespace, or the messages in it that match; ``below``: what lies below too."""
        spaces = namespaces.list_spaces(self.connection, namespace)
        if not below:
            spaces = [space for space in spaces if space.namespace == namespace]
        if condition is not None:
            for space in spaces:
                self._forget_matching(space, condition)
                self.save(space)
            return
        if below:
            where, bounds = namespaces.under(namespace, "namespace")
        else:
            where = "namespace = ?"
            bounds = (key_of(namespace),)
        self._erase_items(where, bounds)
        for space in spaces:
            self._drop_namespace(space)

    def _erase_items(self, where: str, values: Sequence[object]) -> None:
        sql = f"DELETE FROM items WHERE {where}"
        gone = self.connection.execute(sql, values)
        self.erased.items += gone.rowcount

    def _forget_matching(self, space: Space, condition: Filter) -> None:
        messages = matching(self.connection, space, condition)
        if messages:
            self._erase_messages(space, messages)
        # Memories whose messages the log no longer has can only be judged by themselves.
        for row in tiers.tier_rows(self.connection, space.id, "cold"):
            name = row.item.id
            logged = self.connection.execute(_LOGGED, (name,)).fetchone()
            if logged is None and matches(row.metadata, condition):
                self._erase_memory(space, name)

    def _drop_namespace(self, space: Space) -> None:
        """Erase a namespace with everything in it, its name included."""
        erased = self.erased
        erased.messages.update(dict.fromkeys(self._column(_MESSAGES, space)))
        erased.memories.update(dict.fromkeys(self._column(_MEMORIES, space)))
        (decisions,) = self._column(_DECISIONS, space)
        erased.hot += space.count["hot"]
        erased.decisions += decisions
        erased.namespaces.append(space.namespace)
        queries = self._column(_DROP_QUERIES, space)
        erased.queries += len(queries)
        erased.note_rows("queries", queries)
        for table, number in (("messages", "seq"), ("tiers", "row")):
            sql = f"SELECT {number}, text, vector FROM {table} WHERE namespace = ?"
            self._note_contents(table, sql, space.id)
        self.connection.execute(_DROP_PROVENANCE, (space.id,))
        self.store.indexes.clear(self.connection, space.id)
        # All other tables follow their namespace.
        self.connection.execute("DELETE FROM namespaces WHERE id = ?", (space.id,))
        self.dropped.append(space.id)

    def _note_contents(self, table: str, sql: str, value: object) -> None:
        """Note rows of a table that are erased, and what stands in them."""
        for row, text, vector in self.connection.execute(sql, (value,)).fetchall():
            self.erased.note_rows(table, [row])
            self._contents.append(Content(text, vector))

    def _column(self, sql: str, space: Space) -> list[Any]:
        """The values of one column that a statement finds in a namespace."""
        rows = self.connection.execute(sql, (space.id,)).fetchall()
        return [value for (value,) in rows]

    def purge(self, namespace: Namespace, now: float) -> None:
        """Erase what has expired in a namespace, and what the log's retention ends."""
        self._erase_items("namespace = ? AND expires <= ?", (key_of(namespace), now))
        space = namespaces.find_space(self.connection, namespace)
        if space is None:
            return
        names = expired(self.connection, space.id, now)
        if names:
            self._erase_messages(space, names)
        retention = self.store.settings.log_retention
        if retention is not None:
            dropped = drop_old(self.connection, space, now - retention)
            self.erased.messages.update(dict.fromkeys(dropped))
        self.save(space)

    def _erase_messages(self, space: Space, ids: Collection[str]) -> None:
        """Erase messages of this namespace and follow their provenance."""
        store = self.store
        connection = self.connection
        erased = self.erased
        contents = self.contents_of(ids)
        replies = rereading.reread(store, connection, ids)
        gone = frozenset(ids)
        affected = self.derive(space, gone.union(replies), gone)
        questions = {asked_at_end(content.text) for content in contents}
        erased.note_rows("tiers", rereading.take_out(store, connection, space, questions))
        among = (dump(list(ids)),)
        connection.execute(f"DELETE FROM provenance WHERE message {_AMONG}", among)
        rows = connection.execute(
            f"DELETE FROM messages WHERE id {_AMONG} RETURNING seq, text, metadata", among
        ).fetchall()
        erased.note_rows("messages", [number for number, _, _ in rows])
        sizes = [log.size_of(text, metadata) for _, text, metadata in rows]
        space.grow(-len(sizes), -sum(sizes))
        erased.messages.update(dict.fromkeys(ids))
        erased.replies.update(dict.fromkeys(replies))
        self.clean_record(ids, affected, contents)

    def _erase_memory(self, space: Space, name: str) -> list[Content]:
        """Erase a memory and return what it said; the messages behind it stay."""
        contents = self.erase_versions(space, name)
        self.erased.memories[name] = None
        self.clean_record([name], {name}, contents)
        return contents

    def erase_versions(self, space: Space, name: str) -> list[Content]:
        """Erase every version of an item and return what they said."""
        sql = "SELECT row, text, vector FROM tiers WHERE id = ?"
        rows = self.connection.execute(sql, (name,)).fetchall()
        self.erased.note_rows("tiers", [row for row, _, _ in rows])
        versions = tiers.versions(self.connection, name)
        tiers.delete(self.connection, space, versions)
        tiers.forget_provenance(self.connection, [name])
        return [Content(text, vector) for _, text, vector in rows]

    def contents_of(self, ids: Collection[str]) -> list[Content]:
        """The texts of messages, and their vectors."""
        sql = f"SELECT text, vector FROM messages WHERE id {_AMONG}"
        rows = self.connection.execute(sql, (dump(list(ids)),))
        return [Content(text, vector) for text, vector in rows]

    def note_quotes(self, behind: Collection[str], contents: Sequence[Content]) -> None:
        """Note whether messages that stay still say what is erased of a memory."""
        texts = {content.text for content in contents}
        for left in self.contents_of(behind):
            if any(text in left.text for text in texts):
                self.erased.quoted = True

    # The tiers

    def derive(self, space: Space, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        """Derive what rests on changed messages without those that are gone; returns its ids."""
        connection = self.connection
        sql = f"SELECT item FROM provenance WHERE message {_AMONG}"
        rows = connection.execute(sql, (dump(list(changed)),)).fetchall()
        affected = {name for (name,) in rows}
        names = sorted(affected)
        behind = tiers.provenance(connection, names)
        for name in names:
            joined = behind.get(name, {})
            self._derive_item(space, name, joined, changed, gone)
        tiers.forget_provenance(connection, names)
        return affected

    def _derive_item(
        self,
        space: Space,
        name: str,
        joined: dict[str, int],
        changed: frozenset[str],
        gone: frozenset[str],
    ) -> None:
        """Derive the versions of an item that rest on changed messages.

        ``joined`` says with which version each of its messages joined.
        """
        touched = changed.intersection(joined)
        leaving = self._leaving(joined, touched, gone)
        since = min(joined[message] for message in touched)
        versions = tiers.versions(self.connection, name)
        kept = [row for row in versions if row.version < since]
        left = len(kept)
        for row in versions[len(kept) :]:
            members = {each for each, version in joined.items() if version <= row.version}
            left += self._derive_row(space, row, members - leaving)
        among = dump(list(leaving))
        self.connection.execute(
            f"DELETE FROM provenance WHERE item = ? AND message {_AMONG}", (name, among)
        )
        if not versions or versions[0].tier != "cold":
            return
        if left:
            self.erased.derived[name] = None
        else:
            self.erased.memories[name] = None

    def _leaving(
        self, joined: Collection[str], touched: Collection[str], gone: frozenset[str]
    ) -> set[str]:
        """The messages that an item loses: those that are gone, or that say something else now."""
        if gone:
            return set(gone.intersection(joined))
        connection = self.connection
        return {each for each in touched if is_strange(connection, each, joined, self.store)}

    def _derive_row(self, space: Space, old: TierRow, members: Collection[str]) -> bool:
        """Replace a version by what these of its messages say; returns whether there are any."""
        erased = self.erased
        tiers.delete(self.connection, space, [old])
        erased.note_rows("tiers", [old.row])
        erased.contents.append(old.item.text.encode())
        is_hot = old.tier == "hot"
        new = derived(self.connection, old, members, self.store)
        if new is None:
            erased.hot += int(is_hot)
            return False
        new = replace(new, changed=time.time())
        joined = new.hot.members if is_hot else ()
        tiers.insert(self.connection, space, new, joined)
        erased.hot_derived += int(is_hot)
        return True

    # The record

    def clean_record(
        self, ids: Iterable[str], affected: Collection[str], contents: Sequence[Content]
    ) -> None:
        """Note what the record has to forget, which `clean` does for all of it at once."""
        self._gone.update(ids)
        self._affected.update(affected)
        self._contents += contents

    def clean(self) -> None:
        """Take out of decisions and recorded queries what is gone."""
        store = self.store
        connection = self.connection
        store.note_scrub(connection)
        gone = self._gone.union(self.erased.memories)
        if not (gone or self._affected or self._contents):
            return
        for content in self._contents:
            self.erased.contents.append(content.text.encode())
            self.erased.contents.append(content.vector)
        mark_decisions(connection, gone, self.erased)
        erase_queries(
            connection,
            gone | self._affected,
            self._contents,
            self.erased,
            dimension=store.dimension,
            near=store.config.merge_threshold,
        )


@contextmanager
def erasing(
    store: MemoryStore,
    spaces: Iterable[Namespace] = (),
    *,
    below: bool = False,
    erases: bool = True,
) -> Iterator[Erasure]:
    """A write transaction that erases, or just changes; afterwards, the receipt is complete.

    Args:
        store: The memory.
        spaces: What it writes to; who writes elsewhere does not wait. Without any, to everything.
        below: Whether it writes to whatever lies below those as well.
        erases: Whether anything may be gone from the files.
    """
    with store.writing(spaces, below=below) as connection:
        erasure = Erasure(store, connection)
        yield erasure
        if erases:
            erasure.clean()
    store.database.on_end(partial(_finish, erasure, erases))


def _finish(erasure: Erasure, erases: bool, committed: bool) -> None:
    """Let the indexes follow, empty the log, and complete the receipt."""
    store = erasure.store
    indexes = store.indexes
    for space in erasure.changed:
        if committed:
            indexes.committed(space)
        else:
            indexes.drop(space.id)
    if not committed:
        return
    for number in erasure.dropped:
        indexes.drop(number)
    for namespace in erasure.erased.namespaces:
        store.pending.take(namespace)
    erasure.scrubbed = not erases or _scrub(store, erasure.erased)


def _scrub(store: MemoryStore, erased: Erased) -> bool:
    """Take what was erased out of the files; returns whether it is."""
    if not store.scrub():
        return False
    if not store.database.has_slack(erased.rows, erased.contents):
        return True
    return store.scrub(vacuum=True)


def namespace_of(connection: Connection, name: str) -> Namespace:
    """Where a message or an item stands.

    Raises:
        InvalidInputError: Nothing of such an id is stored.
    """
    message = log.get(connection, name)
    if message is not None:
        return message.namespace
    versions = tiers.versions(connection, name)
    if not versions:
        raise unknown(name)
    return namespaces.space_by_id(connection, versions[0].space).namespace


def matching(connection: Connection, space: Space, condition: Filter) -> list[str]:
    """The messages of a namespace that a filter matches, expired ones too."""
    ever = float("-inf")
    messages = log.log(connection, space.id, now=ever)
    return [message.id for message in messages if matches(message.metadata, condition)]


def unknown(name: str) -> InvalidInputError:
    """The error for an id of nothing that is stored."""
    return InvalidInputError(f"nothing is stored under the id {name!r}; it may be erased")
