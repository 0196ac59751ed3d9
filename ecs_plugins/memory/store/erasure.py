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
from ecs_plugins.memory.store.retention import drop_old, expired, has_expired
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import dump
from ecs_plugins.memory.types import Namespace
from ecs_plugins.storage.base import Connection

_AMONG = "IN (SELECT value FROM json_each(?))"


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
            memories.setdefault(versions[0].space, []).append(name)
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
        if condition is None:
            where, bounds = namespaces.under(namespace, "namespace")
            if not below:
                where, bounds = "namespace = ?", (key_of(namespace),)
            self._erase_items(where, bounds)
        for space in spaces:
            if condition is None:
                self._drop_namespace(space)
            else:
                self._forget_matching(space, condition)
                self.save(space)

    def _erase_items(self, where: str, values: Sequence[object]) -> None:
        gone = self.connection.execute(f"DELETE FROM items WHERE {where}", values)
        self.erased.items += gone.rowcount

    def _forget_matching(self, space: Space, condition: Filter) -> None:
        messages = matching(self.connection, space, condition)
        if messages:
            self._erase_messages(space, messages)
        # Memories whose messages the log no longer has can only be judged by themselves.
        for row in tiers.tier_rows(self.connection, space.id, "cold"):
            in_the_log = self.connection.execute(
                "SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message WHERE p.item = ?",
                (row.item.id,),
            ).fetchone()
            if in_the_log is None and matches(row.metadata, condition):
                self._erase_memory(space, row.item.id)

    def _drop_namespace(self, space: Space) -> None:
        """Erase a namespace with everything in it, its name included."""
        connection, erased = self.connection, self.erased
        for name in self._column("SELECT id FROM messages WHERE namespace = ?", space):
            erased.messages[name] = None
        memories = "SELECT DISTINCT id FROM tiers WHERE namespace = ? AND tier = 'cold'"
        for name in self._column(memories, space):
            erased.memories[name] = None
        (decisions,) = self._column("SELECT count(*) FROM decisions WHERE namespace = ?", space)
        erased.hot += space.count["hot"]
        erased.decisions += decisions
        erased.namespaces.append(space.namespace)
        queries = self._column("DELETE FROM queries WHERE namespace = ? RETURNING id", space)
        erased.queries += len(queries)
        erased.note_rows("queries", queries)
        for table, number in (("messages", "seq"), ("tiers", "row")):
            stored = connection.execute(
                f"SELECT {number}, text, vector FROM {table} WHERE namespace = ?", (space.id,)
            ).fetchall()
            erased.note_rows(table, (row for row, _, _ in stored))
            self._contents += [Content(text, vector) for _, text, vector in stored]
        connection.execute(
            "DELETE FROM provenance WHERE item IN (SELECT id FROM tiers WHERE namespace = ?)",
            (space.id,),
        )
        self.store.indexes.clear(connection, space.id)
        # All other tables follow their namespace.
        connection.execute("DELETE FROM namespaces WHERE id = ?", (space.id,))
        self.dropped.append(space.id)

    def _column(self, sql: str, space: Space) -> list[Any]:
        return [value for (value,) in self.connection.execute(sql, (space.id,)).fetchall()]

    def purge(self, now: float) -> None:
        """Erase the messages and items that have expired, and what the log's retention ends."""
        self._erase_items("expires <= ?", (now,))
        for number, names in expired(self.connection, now).items():
            space = namespaces.space_by_id(self.connection, number)
            self._erase_messages(space, names)
            self.save(space)
        retention = self.store.settings.log_retention
        if retention is not None:
            for name in drop_old(self.connection, now - retention):
                self.erased.messages[name] = None

    def _erase_messages(self, space: Space, ids: Collection[str]) -> None:
        """Erase messages of this namespace and follow their provenance."""
        connection = self.connection
        among = (dump(list(ids)),)
        contents = self.contents_of(ids)
        replies = rereading.reread(self.store, connection, ids)
        affected = self.derive(space, frozenset(ids).union(replies), frozenset(ids))
        questions = {asked_at_end(content.text) for content in contents}
        self.erased.note_rows("tiers", rereading.take_out(self.store, connection, space, questions))
        connection.execute(f"DELETE FROM provenance WHERE message {_AMONG}", among)
        gone = connection.execute(f"DELETE FROM messages WHERE id {_AMONG} RETURNING seq", among)
        self.erased.note_rows("messages", (row for (row,) in gone.fetchall()))
        log.forget_claims(connection, ids)
        self.erased.messages.update(dict.fromkeys(ids))
        self.erased.replies.update(dict.fromkeys(replies))
        self.clean_record(ids, affected, contents)

    def _erase_memory(self, space: Space, name: str) -> list[Content]:
        """Erase a memory and return what it said; the messages behind it stay."""
        contents = self.erase_versions(space, name)
        self.erased.memories[name] = None
        self.clean_record([name], {name}, contents)
        return contents

    def erase_versions(self, space: Space, name: str) -> list[Content]:
        """Erase every version of an item and return what they said."""
        stored = self.connection.execute(
            "SELECT row, text, vector FROM tiers WHERE id = ?", (name,)
        ).fetchall()
        self.erased.note_rows("tiers", (row for row, _, _ in stored))
        tiers.delete(self.connection, space, tiers.versions(self.connection, name))
        tiers.forget_provenance(self.connection, [name])
        return [Content(text, vector) for _, text, vector in stored]

    def contents_of(self, ids: Collection[str]) -> list[Content]:
        """The texts of messages, and their vectors."""
        sql = f"SELECT text, vector FROM messages WHERE id {_AMONG}"
        return [Content(*row) for row in self.connection.execute(sql, (dump(list(ids)),))]

    def note_quotes(self, behind: Collection[str], contents: Sequence[Content]) -> None:
        """Note whether messages that stay still say what is erased of a memory."""
        texts = {content.text for content in contents}
        for left in self.contents_of(behind):
            self.erased.quoted |= any(text in left.text for text in texts)

    # The tiers

    def derive(self, space: Space, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        """Derive what rests on changed messages without those that are gone; returns its ids."""
        rows = self.connection.execute(
            f"SELECT item FROM provenance WHERE message {_AMONG}", (dump(list(changed)),)
        )
        affected = {name for (name,) in rows.fetchall()}
        behind = tiers.provenance(self.connection, sorted(affected))
        for name in sorted(affected):
            self._derive_item(space, name, behind.get(name, {}), changed, gone)
        tiers.forget_provenance(self.connection, affected)
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
        self.connection.execute(
            f"DELETE FROM provenance WHERE item = ? AND message {_AMONG}",
            (name, dump(list(leaving))),
        )
        if versions and versions[0].tier == "cold":
            noted = self.erased.derived if left else self.erased.memories
            noted[name] = None

    def _leaving(
        self, joined: Collection[str], touched: Collection[str], gone: frozenset[str]
    ) -> set[str]:
        """The messages that an item loses: those that are gone, or that say something else now."""
        if gone:
            return set(gone.intersection(joined))
        connection, store = self.connection, self.store
        return {each for each in touched if is_strange(connection, each, joined, store)}

    def _derive_row(self, space: Space, old: TierRow, members: Collection[str]) -> bool:
        """Replace a version by what these of its messages say; returns whether there are any."""
        tiers.delete(self.connection, space, [old])
        self.erased.note_rows("tiers", [old.row])
        self.erased.contents.append(old.item.text.encode())
        new = derived(self.connection, old, members, self.store)
        if new is None:
            self.erased.hot += int(old.tier == "hot")
            return False
        joined = new.hot.members if new.tier == "hot" else ()
        tiers.insert(self.connection, space, replace(new, changed=time.time()), joined)
        self.erased.hot_derived += int(new.tier == "hot")
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
        store, connection = self.store, self.connection
        store.note_scrub(connection)
        gone = self._gone.union(self.erased.memories)
        if not (gone or self._affected or self._contents):
            return
        for content in self._contents:
            self.erased.contents += [content.text.encode(), content.vector]
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
    store: MemoryStore, spaces: Iterable[Namespace] = (), *, erases: bool = True
) -> Iterator[Erasure]:
    """A write transaction that erases, or just changes; afterwards, the receipt is complete.

    Args:
        store: The memory.
        spaces: What it writes to; who writes elsewhere does not wait. Without any, to everything.
        erases: Whether anything may be gone from the files.
    """
    with store.writing(spaces) as connection:
        erasure = Erasure(store, connection)
        yield erasure
        if erases:
            erasure.clean()
    store.database.on_end(partial(_finish, erasure, erases))


def _finish(erasure: Erasure, erases: bool, committed: bool) -> None:
    """Let the indexes follow, empty the log, and complete the receipt."""
    store = erasure.store
    for space in erasure.changed:
        if committed:
            store.indexes.committed(space)
        else:
            store.indexes.drop(space.id)
    if not committed:
        return
    for number in erasure.dropped:
        store.indexes.drop(number)
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


def delete(store: MemoryStore, names: Sequence[str], *, evidence: bool) -> ErasureReceipt:
    """Erase messages and what rests on them alone, or memories: all of them, or nothing."""
    with store.database.read() as connection:
        spaces = {namespace_of(connection, name) for name in names}
        going = list(names)
        if evidence:
            for behind in tiers.provenance(connection, names).values():
                going += behind
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
        with store.database.read() as connection:
            for space in namespaces.list_spaces(connection, namespace):
                going = matching(connection, space, condition)
                texts += rereading.foreseen(connection, going)
    spaces = () if below else (namespace,)
    with store.embedded(texts), erasing(store, spaces) as erasure:
        erasure.forget(namespace, condition, below=below)
    return erasure.receipt


def purge(store: MemoryStore) -> ErasureReceipt:
    """Erase the messages and items that have expired, and end the log's retention."""
    now = time.time()
    if store.settings.log_retention is None and not has_expired(store, now):
        return ErasureReceipt(now)
    texts: list[str] = []
    with store.database.read() as connection:
        for names in expired(connection, now).values():
            texts += rereading.foreseen(connection, names)
    with store.embedded(texts), erasing(store) as erasure:
        erasure.purge(now)
    return erasure.receipt


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
    messages = log.log(connection, space.id, now=float("-inf"))
    return [message.id for message in messages if matches(message.metadata, condition)]


def unknown(name: str) -> InvalidInputError:
    """The error for an id of nothing that is stored."""
    return InvalidInputError(f"nothing is stored under the id {name!r}; it may be erased")
