"""Erasing messages, memories, namespaces, filtered messages and expired content.

Erasing a message deletes its text and vector from the log. Every hot item and every version of a
memory that rests on the message is then derived anew from the messages that remain, or deleted if
none remain. A text that a language model wrote about a cluster is never kept, because nobody can
tell which message it drew on.

A reply keeps a copy of its question, and its vector is that of both. When the question is erased or
changed, text and vector of the reply are made anew.

Decisions stay, with the ids of erased items replaced by ``"erased"``. Recorded queries that used,
quoted or repeated erased content are deleted. Foreign keys delete the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from ecs_plugins.common.text import as_reply, asked_at_end
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import ERASED, ErasureReceipt
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import namespaces, tiers
from ecs_plugins.memory.store.derivation import derived
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space, decode, key_of
from ecs_plugins.memory.store.outdated import forget_edges
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import crc, crc_of, dump, has_length, packed_half, vector_in
from ecs_plugins.memory.types import Namespace
from ecs_plugins.storage.base import Connection

_AMONG = "IN (SELECT value FROM json_each(?))"
_WRITE = """
    UPDATE messages SET
        text = ?1, asked = ?2, asker = CASE WHEN ?2 = '' THEN NULL ELSE asker END,
        text_crc = ?3, vector = ?4, vector_crc = ?5
    WHERE id = ?6
"""
_ASKED_BY_NONE = f"""
    namespace = ? AND asked != '' AND asked {_AMONG} AND EXISTS (
        SELECT 1 FROM provenance p LEFT JOIN messages m ON m.id = p.message
        WHERE p.item = tiers.id AND m.id IS NULL
    )
"""


def write_texts(
    store: MemoryStore, connection: Connection, texts: Mapping[str, str], asked: str
) -> None:
    """Write texts of messages by id and the question that they reply to, with their vectors."""
    vectors = store.embed([as_reply(text, asked) for text in texts.values()])
    for (name, text), vector in zip(texts.items(), vectors, strict=True):
        data, vector_crc = packed_half(vector)
        values = (text, asked, crc_of((asked, text)), data, vector_crc, name)
        connection.execute(_WRITE, values)
    forget_edges(connection, [*texts])


def reread(
    store: MemoryStore, connection: Connection, askers: Collection[str], now_asks: str = ""
) -> list[str]:
    """Take an erased question out of the replies to it, which are returned by id.

    What is said in its place is ``now_asks``.
    """
    among = dump(list(askers))
    replies = connection.execute(
        f"SELECT id, text FROM messages WHERE asker {_AMONG} AND NOT id {_AMONG}", (among, among)
    ).fetchall()
    if replies:
        write_texts(store, connection, dict(replies), asked_at_end(now_asks))
    return sorted(name for name, _ in replies)


def take_out(
    store: MemoryStore, connection: Connection, space: Space, questions: Collection[str]
) -> list[int]:
    """Take erased questions out of items whose replies have left the log; return their rows."""
    wanted = [question for question in questions if question]
    if not wanted:
        return []
    left = tiers.select(connection, _ASKED_BY_NONE, (space.id, dump(wanted)))
    vectors = store.embed([row.item.text for row in left]) if left else ()
    for row, vector in zip(left, vectors, strict=True):
        tiers.delete(connection, space, [row])
        alone = replace(row.item, asked="", vector=vector)
        tiers.insert(connection, space, replace(row, item=alone))
    return [row.row for row in left]


P = ParamSpec("P")
T = TypeVar("T")

_MOST_LOCKS = 64
"""Most namespaces that a purge locks one by one; beyond that it locks everything."""

_QUOTE = 12
"""Least characters of an erased text that a recorded query quotes."""

_MESSAGES = "SELECT id FROM messages WHERE namespace = ?"
_MEMORIES = "SELECT DISTINCT id FROM tiers WHERE namespace = ? AND tier = 'cold'"
_DECISIONS = "SELECT id FROM decisions WHERE namespace = ?"
_DROP_QUERIES = "DELETE FROM queries WHERE namespace = ? RETURNING id"
_DROP_PROVENANCE = """
    DELETE FROM provenance
    WHERE item IN (SELECT id FROM tiers WHERE namespace = ?)
"""
_LOGGED = """
    SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message
    WHERE p.item = ?
"""
_MENTIONING = f"""
    SELECT DISTINCT d.id, d.record
    FROM decision_items i JOIN decisions d ON d.id = i.decision
    WHERE i.item {_AMONG}
"""
_MARK = "UPDATE decisions SET record = ?, record_crc = ?, erased = 1 WHERE id = ?"
_HAS_EXPIRED = """
    SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE expires <= ?1)
        OR EXISTS (SELECT 1 FROM items WHERE expires <= ?1)
"""
_DUE = """
    SELECT key FROM namespaces WHERE id IN (SELECT namespace FROM messages WHERE expires <= ?1)
    UNION SELECT namespace FROM items WHERE expires <= ?1
"""
_OLD = """
    SELECT key FROM namespaces WHERE id IN (SELECT namespace FROM messages WHERE created < ?1)
        OR id IN (SELECT namespace FROM tiers WHERE live = 0 AND changed < ?1)
"""
_EXPIRED = "SELECT id FROM messages WHERE +namespace = ? AND expires <= ? ORDER BY seq"
_DROP_VERSIONS = """
    DELETE FROM tiers WHERE namespace = ? AND live = 0 AND changed < ?
    RETURNING id
"""
_DROP_OLD = """
    DELETE FROM messages WHERE namespace = ? AND created < ? AND NOT EXISTS (
        SELECT 1 FROM provenance p JOIN tiers t ON t.id = p.item AND t.tier = 'hot'
        WHERE p.message = messages.id
    )
    RETURNING id, text, metadata
"""


# Operations


def repeatable(erase: Callable[Concatenate[MemoryStore, P], T]) -> Callable[..., T]:
    """Let an operation that erases run again with missing vectors, or after freeing disk space."""

    @wraps(erase)
    def run(store: MemoryStore, *args: P.args, **options: P.kwargs) -> T:
        operate = partial(erase, store, *args, **options)
        return store.database.making_room(partial(store.embedding_first, operate))

    return run


@repeatable
def delete(store: MemoryStore, names: Sequence[str], *, evidence: bool) -> ErasureReceipt:
    """Erase messages and memories by id: all of them, or nothing.

    Args:
        store: The memory.
        names: Ids of messages and memories.
        evidence: Whether to erase the messages behind a memory as well.
    """
    with store.database.read() as connection:
        spaces = {namespace_of(connection, name) for name in names}
    with erasing(store, spaces) as erasure:
        erasure.delete(names, evidence=evidence)
    return erasure.receipt


@repeatable
def forget(
    store: MemoryStore, namespace: Namespace, condition: Filter | None, *, below: bool
) -> ErasureReceipt:
    """Erase a namespace with all its content, or only the messages that match a filter."""
    with erasing(store, [namespace], below=below) as erasure:
        erasure.forget(namespace, condition, below=below)
    return erasure.receipt


@repeatable
def purge(store: MemoryStore) -> ErasureReceipt:
    """Erase expired messages and items, and apply the retention of the log."""
    now = time.time()
    with store.database.read() as connection:
        spaces = _due(connection, now, store.settings.log_retention)
    if not spaces:
        return ErasureReceipt(now, scrubbed=True)
    locked = spaces if len(spaces) <= _MOST_LOCKS else ()
    with erasing(store, locked) as erasure:
        for namespace in sorted(spaces):
            erasure.purge(namespace, now)
    return erasure.receipt


def has_expired(store: MemoryStore, now: float) -> bool:
    """Return True if an expired message or item is still stored."""
    with store.database.read() as connection:
        return connection.execute(_HAS_EXPIRED, (now,)).fetchone() is not None


# One transaction


class Content(NamedTuple):
    """A stored text, and the bytes of its vector."""

    text: str
    vector: bytes


class Erasure:
    """Erasures and changes within one write transaction.

    Attributes:
        receipt: Ids and counts so far.
        is_quoted: Whether messages that stay still say the text of an erased memory.
        changed: Saved namespaces, whose indexes have to follow.
        dropped: Numbers of the deleted namespaces.
    """

    def __init__(self, store: MemoryStore, connection: Connection) -> None:
        self.store = store
        self.connection = connection
        self.receipt = ErasureReceipt(time.time())
        self.is_quoted = False
        self.changed: list[Space] = []
        self.dropped: list[int] = []
        self._gone: set[str] = set()
        self._affected: set[str] = set()
        self._contents: list[Content] = []

    def save(self, space: Space) -> None:
        """Write the counters of a changed namespace."""
        self.store.indexes.settle(self.connection, space)
        space.save(self.connection)
        self.changed.append(space)

    def space_of(self, namespace: Namespace) -> Space:
        """Return the namespace of a stored message."""
        space = namespaces.find_space(self.connection, namespace)
        assert space is not None
        return space

    def delete(self, names: Iterable[str], *, evidence: bool) -> None:
        """Erase messages and memories; with ``evidence`` also the messages of the memories."""
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

    def forget(self, namespace: Namespace, condition: Filter | None, *, below: bool) -> None:
        """Erase a namespace, or its matching messages; ``below`` includes namespaces below it."""
        spaces = namespaces.list_spaces(self.connection, namespace)
        if not below:
            spaces = [space for space in spaces if space.namespace == namespace]
        if condition is not None:
            for space in spaces:
                self._forget_matching(space, condition)
                self.save(space)
            return
        if below:
            self._erase_items(*namespaces.under(namespace, "namespace"))
        else:
            self._erase_items("namespace = ?", (key_of(namespace),))
        for space in spaces:
            self._drop_namespace(space)

    def purge(self, namespace: Namespace, now: float) -> None:
        """Erase the expired content of a namespace, and apply the retention of the log."""
        self._erase_items("namespace = ? AND expires <= ?", (key_of(namespace), now))
        space = namespaces.find_space(self.connection, namespace)
        if space is None:
            return
        names = _expired(self.connection, space.id, now)
        if names:
            self._erase_messages(space, names)
        retention = self.store.settings.log_retention
        if retention is not None:
            dropped = _drop_old(self.connection, space, now - retention)
            self.receipt.messages += tuple(dropped)
        self.save(space)

    def _forget_matching(self, space: Space, condition: Filter) -> None:
        messages = log.log(self.connection, space.id, now=float("-inf"))
        matching = [each.id for each in messages if matches(each.metadata, condition)]
        if matching:
            self._erase_messages(space, matching)
        # A memory whose messages have left the log is judged by its own metadata.
        for row in tiers.tier_rows(self.connection, space.id, "cold"):
            name = row.item.id
            logged = self.connection.execute(_LOGGED, (name,)).fetchone()
            if logged is None and matches(row.metadata, condition):
                self._erase_memory(space, name)

    def _erase_items(self, where: str, values: Sequence[object]) -> None:
        sql = f"DELETE FROM items WHERE {where} RETURNING space"
        kinds = [kind for (kind,) in self.connection.execute(sql, values)]
        self.receipt.items += len(kinds) - kinds.count("parts")

    def _drop_namespace(self, space: Space) -> None:
        """Erase a namespace with all its content and its name."""
        receipt = self.receipt
        receipt.messages += tuple(self._column(_MESSAGES, space))
        receipt.memories_erased += tuple(self._column(_MEMORIES, space))
        receipt.hot_erased += space.count["hot"]
        receipt.decisions += len(self._column(_DECISIONS, space))
        receipt.queries += len(self._column(_DROP_QUERIES, space))
        receipt.namespaces += (space.namespace,)
        for table in ("messages", "tiers"):
            sql = f"SELECT text, vector FROM {table} WHERE namespace = ?"
            self._contents += map(Content._make, self.connection.execute(sql, (space.id,)))
        self.connection.execute(_DROP_PROVENANCE, (space.id,))
        self.store.indexes.clear(self.connection, space.id)
        # Foreign keys empty the other tables.
        self.connection.execute("DELETE FROM namespaces WHERE id = ?", (space.id,))
        self.dropped.append(space.id)

    def _column(self, sql: str, space: Space) -> list[Any]:
        """Return one column of the rows that a statement finds in a namespace."""
        rows = self.connection.execute(sql, (space.id,)).fetchall()
        return [value for (value,) in rows]

    def _erase_messages(self, space: Space, ids: Collection[str]) -> None:
        """Erase messages of a namespace, and derive anew the items that rest on them."""
        store = self.store
        connection = self.connection
        contents = self.contents_of(ids)
        replies = reread(store, connection, ids)
        gone = frozenset(ids)
        affected = self.derive(space, gone.union(replies), gone)
        questions = {asked_at_end(content.text) for content in contents}
        take_out(store, connection, space, questions)
        among = (dump(list(ids)),)
        connection.execute(f"DELETE FROM provenance WHERE message {_AMONG}", among)
        rows = connection.execute(
            f"DELETE FROM messages WHERE id {_AMONG} RETURNING text, metadata", among
        ).fetchall()
        sizes = [log.size_of(text, metadata) for text, metadata in rows]
        space.grow(-len(sizes), -sum(sizes))
        self.receipt.messages += tuple(ids)
        self.receipt.replies += tuple(replies)
        self.clean_record(ids, affected, contents)

    def _erase_memories(self, space: Space, names: Sequence[str], *, evidence: bool) -> None:
        behind = tiers.provenance(self.connection, names)
        erased = [name for name in names if tiers.versions(self.connection, name)]
        for name in erased:  # the others went with a message
            self._erase_memory(space, name)
        if evidence:
            messages = {message for name in erased for message in behind.get(name, ())}
            if messages:
                self._erase_messages(space, sorted(messages))
        for name in erased:
            self.note_quotes(behind.get(name, ()))

    def _erase_memory(self, space: Space, name: str) -> None:
        """Erase a memory; its messages stay."""
        contents = self.erase_versions(space, name)
        self.receipt.memories_erased += (name,)
        self.clean_record([name], {name}, contents)

    def erase_versions(self, space: Space, name: str) -> list[Content]:
        """Erase every version of an item and return their contents."""
        sql = "SELECT text, vector FROM tiers WHERE id = ?"
        contents = [*map(Content._make, self.connection.execute(sql, (name,)))]
        tiers.delete(self.connection, space, tiers.versions(self.connection, name))
        tiers.forget_provenance(self.connection, [name])
        return contents

    def contents_of(self, ids: Collection[str]) -> list[Content]:
        """Return the texts and vectors of messages."""
        sql = f"SELECT text, vector FROM messages WHERE id {_AMONG}"
        return [*map(Content._make, self.connection.execute(sql, (dump(list(ids)),)))]

    def note_quotes(self, behind: Collection[str]) -> None:
        """Note if messages of an erased memory stay, which still say its text."""
        if self.contents_of(behind):
            self.is_quoted = True

    # Derivation

    def derive(self, space: Space, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        """Derive the items that rest on changed messages, without erased ones; return their ids."""
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

        ``joined`` maps each message of the item to the version with which it joined.
        """
        touched = changed.intersection(joined)
        leaving = gone.intersection(joined)
        if not gone and len(joined) > 1:  # a changed message gets an item of its own
            leaving = touched
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
            self.receipt.memories_derived += (name,)
        else:
            self.receipt.memories_erased += (name,)

    def _derive_row(self, space: Space, old: TierRow, members: Collection[str]) -> bool:
        """Replace a version by one derived from some messages; return False without any."""
        tiers.delete(self.connection, space, [old])
        is_hot = old.tier == "hot"
        new = derived(self.connection, old, members, self.store)
        if new is None:
            self.receipt.hot_erased += int(is_hot)
            return False
        new = replace(new, changed=time.time())
        tiers.insert(self.connection, space, new, new.hot.members if is_hot else ())
        self.receipt.hot_derived += int(is_hot)
        return True

    # Decisions and queries

    def clean_record(
        self, ids: Iterable[str], affected: Collection[str], contents: Sequence[Content]
    ) -> None:
        """Note ids and contents that `clean` takes out of decisions and queries."""
        self._gone.update(ids)
        self._affected.update(affected)
        self._contents += contents

    def clean(self) -> None:
        """Take erased ids and contents out of decisions and recorded queries."""
        self.store.note_scrub(self.connection)
        erased = dict.fromkeys(self.receipt.memories_erased)
        derived = dict.fromkeys(self.receipt.memories_derived)
        self.receipt.memories_erased = tuple(erased)
        self.receipt.memories_derived = tuple(name for name in derived if name not in erased)
        gone = self._gone.union(erased)
        if gone or self._affected or self._contents:
            self._mark_decisions(gone)
            self._erase_queries(gone | self._affected)

    def _mark_decisions(self, gone: Collection[str]) -> None:
        """Replace erased ids in the decisions that mention them."""
        ids = (dump(list(gone)),)
        changed = []
        for number, record in self.connection.execute(_MENTIONING, ids).fetchall():
            stored = dump(without(json.loads(record), gone))
            changed.append((stored, crc(stored), number))
        self.connection.executemany(_MARK, changed)
        self.connection.execute(f"DELETE FROM decision_items WHERE item {_AMONG}", ids)
        self.receipt.decisions += len(changed)

    def _erase_queries(self, used: Collection[str]) -> None:
        """Erase recorded queries that used, quote or repeat erased content, in every namespace."""
        texts = {content.text for content in self._contents}
        quotes = [text for text in texts if len(text) >= _QUOTE]
        vectors = _matrix(self._contents, self.store.dimension)
        near = self.store.config.merge_threshold
        gone = []
        queries = self.connection.execute("SELECT id, text, answer, recalled, vector FROM queries")
        for number, text, answer, recalled, vector in queries:
            words = f"{text}\n{answer or ''}"
            if (
                not frozenset(used).isdisjoint(json.loads(recalled))
                or not texts.isdisjoint((text, answer))
                or any(quote in words for quote in quotes)
                or (vectors @ np.frombuffer(vector, "<f4")).max(initial=-1.0) >= near
            ):
                gone.append((number,))
        self.connection.executemany("DELETE FROM queries WHERE id = ?", gone)
        self.receipt.queries += len(gone)


@contextmanager
def erasing(
    store: MemoryStore,
    spaces: Iterable[Namespace] = (),
    *,
    below: bool = False,
    erases: bool = True,
) -> Iterator[Erasure]:
    """Open a write transaction that erases or changes content.

    Args:
        store: The memory.
        spaces: Namespaces to lock; without any, everything is locked.
        below: Whether to lock the namespaces below those as well.
        erases: Whether content may leave the files.
    """
    with store.writing(spaces, below=below) as connection:
        erasure = Erasure(store, connection)
        yield erasure
        if erases:
            erasure.clean()
    store.database.on_end(partial(_finish, erasure, erases))


def _finish(erasure: Erasure, erases: bool, committed: bool) -> None:
    """Update the indexes and empty the write-ahead log after the transaction."""
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
    for namespace in erasure.receipt.namespaces:
        store.pending.take(namespace)
    if not erases:
        erasure.receipt.scrubbed = True
        return
    if not erasure.is_quoted:
        store.note_receipt(erasure.receipt)
    store.scrub()


# Lookups


def namespace_of(connection: Connection, name: str) -> Namespace:
    """Return the namespace of a message or an item.

    Raises:
        InvalidInputError: Nothing is stored under the id.
    """
    message = log.get(connection, name)
    if message is not None:
        return message.namespace
    versions = tiers.versions(connection, name)
    if not versions:
        raise unknown(name)
    return namespaces.space_by_id(connection, versions[0].space).namespace


def unknown(name: str) -> InvalidInputError:
    """Return the error for an id without content."""
    return InvalidInputError(f"nothing is stored under the id {name!r}; it may be erased")


def without(record: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """Return the record of a decision with erased ids replaced."""
    changed = dict(record)
    for name in ("candidate_id", "target_id"):
        if record.get(name) in gone:
            changed[name] = ERASED
    changed["members"] = [ERASED if each in gone else each for each in record["members"]]
    return changed


def _matrix(contents: Sequence[Content], dimension: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the undamaged vectors of contents ``[n, dimension]``."""
    whole = [each.vector for each in contents if has_length(each.vector, dimension)]
    vectors = [vector_in(data, dimension) for data in whole]
    return np.array(vectors, dtype=np.float32).reshape(-1, dimension)


def _due(connection: Connection, now: float, retention: float | None) -> set[Namespace]:
    """Return the namespaces with expired content, or with log entries past their retention."""
    keys = connection.execute(_DUE, (now,)).fetchall()
    if retention is not None:
        keys += connection.execute(_OLD, (now - retention,)).fetchall()
    return {decode(key) for (key,) in keys}


def _expired(connection: Connection, space: int, now: float) -> list[str]:
    """Return the expired messages of a namespace."""
    return [name for (name,) in connection.execute(_EXPIRED, (space, now))]


def _drop_old(connection: Connection, space: Space, before: float) -> list[str]:
    """Delete log entries past their retention, and old versions; return the ids of the messages.

    This is not erasure: memories that rest on the messages stay.
    """
    versions = connection.execute(_DROP_VERSIONS, (space.id, before)).fetchall()
    tiers.forget_provenance(connection, {name for (name,) in versions})
    gone = connection.execute(_DROP_OLD, (space.id, before)).fetchall()
    sizes = [log.size_of(text, metadata) for _, text, metadata in gone]
    space.grow(-len(sizes), -sum(sizes))
    return [name for name, _, _ in gone]
