"""Changing and erasing: single items, namespaces, what has expired, old log entries.

Erasing a message erases its text and vector from the log, and follows its provenance: every hot
item and every version of every memory that rests on it is derived anew from the messages that
remain, as if it had never been said, or is erased if none remain. What a language model once
wrote about a cluster is never kept, because nobody can tell which message it drew on. Decisions
stay, with the ids of what was erased replaced by ``"erased"``; recorded queries and answers that
used an affected item, or that quote an erased text, go.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ecs_plugins.common.text import as_reply, asked_at_end
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import ERASED, ErasureReceipt
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import namespaces, tiers
from ecs_plugins.memory.store.derivation import derived, is_strange
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space, key_of
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import crc, dump, packed
from ecs_plugins.memory.types import Matrix, Namespace
from ecs_plugins.storage.base import Connection

_QUOTE = 12  # characters from which on an erased text is looked for in recorded queries
_AMONG = "IN (SELECT value FROM json_each(?))"

Said = tuple[str, bytes]
"""A text and the bytes of its vector."""


class Erasure:
    """Changes and erases within one write transaction.

    Attributes:
        receipt: What is gone.
        changed: Namespaces that were changed, as they were saved: their indexes have to follow.
        dropped: Numbers of the namespaces deleted.
        erased: Texts and vectors that are gone, as bytes.
        quoted: Whether messages that stay in the log say what was erased of a memory.
    """

    def __init__(self, store: MemoryStore, connection: Connection) -> None:
        self.store = store
        self.connection = connection
        self.receipt = ErasureReceipt(time.time(), scrubbed=False)
        self.changed: list[Space] = []
        self.dropped: list[int] = []
        self.erased: list[bytes] = []
        self.quoted = False
        self._gone: set[str] = set()
        self._affected: set[str] = set()
        self._said: list[Said] = []

    def note(self, **more: Any) -> None:
        """Add numbers and ids to the receipt."""
        added = {name: getattr(self.receipt, name) + value for name, value in more.items()}
        self.receipt = replace(self.receipt, **added)

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

    def delete(self, name: str, *, evidence: bool) -> None:
        """Erase a message, or a memory (with ``evidence``, also the messages behind it)."""
        message = log.get(self.connection, name)
        if message is not None:
            space = self.space_of(message.namespace)
            self._erase_messages(space, [name])
        else:
            versions = tiers.versions(self.connection, name)
            if not versions:
                raise unknown(name)
            behind = tiers.provenance(self.connection, [name]).get(name, ())
            space = namespaces.space_by_id(self.connection, versions[0].space)
            said = self._erase_memory(space, name)
            if evidence and behind:
                self._erase_messages(space, behind)
            else:
                self.note_quotes(behind, said)
        self.save(space)

    def forget(self, namespace: Namespace, condition: Filter | None, *, below: bool) -> None:
        """Erase a namespace, or the messages in it that match; ``below``: what lies below too."""
        found = namespaces.list_spaces(self.connection, namespace)
        if not below:
            found = [space for space in found if space.namespace == namespace]
        if condition is None:
            where, bounds = namespaces.under(namespace, "namespace")
            if not below:
                where, bounds = "namespace = ?", (key_of(namespace),)
            self._erase_items(where, bounds)
        for space in found:
            if condition is None:
                self._drop_namespace(space)
            else:
                self._forget_matching(space, condition)
                self.save(space)

    def _erase_items(self, where: str, values: Sequence[object]) -> None:
        gone = self.connection.execute(f"DELETE FROM items WHERE {where}", values)
        self.note(items=gone.rowcount)

    def _forget_matching(self, space: Space, condition: Filter) -> None:
        messages = [
            message.id
            for message in log.log(self.connection, space.id, now=float("-inf"))
            if matches(message.metadata, condition)
        ]
        if messages:
            self._erase_messages(space, messages)
        # Memories whose messages the log no longer has can only be judged by themselves.
        for row in tiers.tier_rows(self.connection, space.id, "cold"):
            known = self.connection.execute(
                "SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message WHERE p.item = ?",
                (row.item.id,),
            ).fetchone()
            if known is None and matches(row.metadata, condition):
                self._erase_memory(space, row.item.id)

    def _drop_namespace(self, space: Space) -> None:
        """Erase a namespace with everything in it, its name included."""
        connection, number = self.connection, (space.id,)

        def found(sql: str) -> tuple[Any, ...]:
            return tuple(value for (value,) in connection.execute(sql, number))

        self.note(
            messages=found("SELECT id FROM messages WHERE namespace = ?"),
            memories_erased=found(
                "SELECT DISTINCT id FROM tiers WHERE namespace = ? AND tier = 'cold'"
            ),
            hot_erased=space.count["hot"],
            decisions=found("SELECT count(*) FROM decisions WHERE namespace = ?")[0],
            namespaces=(space.namespace,),
        )
        queries = found("DELETE FROM queries WHERE namespace = ? RETURNING id")
        said = connection.execute(
            "SELECT text, vector FROM messages WHERE namespace = ?1"
            " UNION ALL SELECT text, vector FROM tiers WHERE namespace = ?1",
            number,
        ).fetchall()
        self._said += said
        self.note(queries=len(queries))
        connection.execute(
            "DELETE FROM provenance WHERE item IN (SELECT id FROM tiers WHERE namespace = ?)",
            number,
        )
        self.store.indexes.clear(connection, space.id)
        # All other tables follow their namespace.
        connection.execute("DELETE FROM namespaces WHERE id = ?", number)
        self.dropped.append(space.id)

    def purge(self, now: float) -> None:
        """Erase the messages and items that have expired, and what the log's retention ends."""
        self._erase_items("expires <= ?", (now,))
        expired: dict[int, list[str]] = {}
        for number, name in self.connection.execute(
            "SELECT namespace, id FROM messages WHERE expires <= ?", (now,)
        ):
            expired.setdefault(number, []).append(name)
        for number, names in expired.items():
            space = namespaces.space_by_id(self.connection, number)
            self._erase_messages(space, names)
            self.save(space)
        retention = self.store.settings.log_retention
        if retention is not None:
            self.note(messages=_drop_old(self.connection, now - retention))

    def _erase_messages(self, space: Space, ids: Collection[str]) -> None:
        """Erase messages of this namespace and follow their provenance."""
        among, said = (dump(list(ids)),), self.said_by(ids)
        replies = self.reread(ids)
        affected = self.derive(space, frozenset(ids) | replies, frozenset(ids))
        self._unask(space, {asked_at_end(text) for text, _ in said})
        self.connection.execute(f"DELETE FROM provenance WHERE message {_AMONG}", among)
        self.connection.execute(f"DELETE FROM messages WHERE id {_AMONG}", among)
        log.forget_claims(self.connection, ids)
        self.note(messages=tuple(ids), replies=tuple(sorted(replies)))
        self.clean_record(ids, affected, said)

    def write_text(self, name: str, text: str, asked: str) -> None:
        """Write what a message says and replies to, with its vector."""
        vector = self.store.embed([as_reply(text, asked)])[0]
        self.connection.execute(
            "UPDATE messages SET text = ?, asked = ?, asker = CASE WHEN ? = '' THEN NULL"
            " ELSE asker END, text_crc = ?, vector = ?, vector_crc = ? WHERE id = ?",
            (text, asked, asked, crc(asked + text), *packed(vector), name),
        )
        log.forget_claims(self.connection, [name])
        said = self.connection.execute(f"{log.SAID} WHERE id = ?", (name,))
        log.write_claims(self.connection, said)

    def reread(self, askers: Collection[str], now_asks: str = "") -> set[str]:
        """Take an erased question out of the replies to it, which are returned by id.

        What is said in its place is ``now_asks``.
        """
        among = dump(list(askers))
        found = self.connection.execute(
            f"SELECT id, text FROM messages WHERE asker {_AMONG} AND NOT id {_AMONG}",
            (among, among),
        ).fetchall()
        for name, text in found:
            self.write_text(name, text, asked_at_end(now_asks))
        return {name for name, _ in found}

    def _unask(self, space: Space, questions: Collection[str]) -> None:
        """Take erased questions out of what rests on replies that the log has no more."""
        left = tiers.select(
            self.connection,
            f"namespace = ? AND asked != '' AND asked {_AMONG} AND EXISTS (SELECT 1 FROM provenance"
            " p LEFT JOIN messages m ON m.id = p.message WHERE p.item = tiers.id AND m.id IS NULL)",
            (space.id, dump(list(questions))),
        )
        for row in left:
            vector = self.store.embed([row.item.text])[0]
            tiers.delete(self.connection, space, [row])
            alone = replace(row.item, asked="", vector=vector)
            tiers.insert(self.connection, space, replace(row, item=alone))

    def _erase_memory(self, space: Space, name: str) -> list[Said]:
        """Erase a memory and return what it said; the messages behind it stay."""
        said = self.erase_versions(space, name)
        self.note(memories_erased=(name,))
        self.clean_record([name], {name}, said)
        return said

    def erase_versions(self, space: Space, name: str) -> list[Said]:
        """Erase every version of an item and return what they said."""
        said = self.connection.execute("SELECT text, vector FROM tiers WHERE id = ?", (name,))
        texts: list[Said] = said.fetchall()
        tiers.delete(self.connection, space, tiers.versions(self.connection, name))
        tiers.forget_provenance(self.connection, [name])
        return texts

    def said_by(self, ids: Collection[str]) -> list[Said]:
        """The texts of messages, and their vectors."""
        sql = f"SELECT text, vector FROM messages WHERE id {_AMONG}"
        said: list[Said] = self.connection.execute(sql, (dump(list(ids)),)).fetchall()
        return said

    def note_quotes(self, behind: Collection[str], said: Sequence[Said]) -> None:
        """Note whether messages that stay still say what is erased of a memory."""
        left = [text for text, _ in self.said_by(behind)]
        self.quoted |= any(text in each for each in left for text, _ in said)

    # The tiers

    def derive(self, space: Space, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        """Derive what rests on changed messages without those that are gone; returns its ids."""
        store = self.store
        affected = {
            name
            for (name,) in self.connection.execute(
                f"SELECT item FROM provenance WHERE message {_AMONG}", (dump(list(changed)),)
            )
        }
        for name in sorted(affected):
            joined = tiers.provenance(self.connection, [name]).get(name, {})
            leaving = gone or frozenset(
                each for each in changed if is_strange(self.connection, each, joined, store)
            )
            since = min(version for message, version in joined.items() if message in changed)
            rows = tiers.versions(self.connection, name)
            stale = [row for row in rows if row.version >= since]
            left = len(rows) - len(stale)
            for row in stale:
                members = [each for each, version in joined.items() if version <= row.version]
                left += self._derive_row(space, row, set(members) - leaving)
            self.connection.execute(
                f"DELETE FROM provenance WHERE item = ? AND message {_AMONG}",
                (name, dump([each for each in joined if each in leaving])),
            )
            if rows and rows[0].tier == "cold":
                self.note(**{"memories_derived" if left else "memories_erased": (name,)})
        tiers.forget_provenance(self.connection, affected)
        return affected

    def _derive_row(self, space: Space, old: TierRow, members: Collection[str]) -> bool:
        """Replace a version by what these of its messages say; returns whether there are any."""
        tiers.delete(self.connection, space, [old])
        self.erased.append(old.item.text.encode())
        new = derived(self.connection, old, members, self.store)
        if new is None:
            self.note(hot_erased=int(old.tier == "hot"))
            return False
        joined = new.hot.members if new.tier == "hot" else ()
        tiers.insert(self.connection, space, replace(new, changed=time.time()), joined)
        self.note(hot_derived=int(new.tier == "hot"))
        return True

    # The record

    def clean_record(
        self, ids: Iterable[str], affected: Collection[str], said: Sequence[Said]
    ) -> None:
        """Note what the record has to forget, which `clean` does for all of it at once."""
        self._gone |= {*ids, *self.receipt.memories_erased}
        self._affected |= {*affected}
        self._said += said

    def clean(self) -> None:
        """Take out of decisions and recorded queries what is gone."""
        self.store.note_scrub(self.connection)
        if self._gone | self._affected or self._said:
            self._mark_decisions(self._gone)
            self._erase_queries(self._gone | self._affected, self._said)

    def _mark_decisions(self, gone: Collection[str]) -> None:
        among = (dump(list(gone)),)
        found = self.connection.execute(
            "SELECT DISTINCT d.id, d.record FROM decision_items i JOIN decisions d"
            f" ON d.id = i.decision WHERE i.item {_AMONG}",
            among,
        ).fetchall()
        for number, record in found:
            self.connection.execute(
                "UPDATE decisions SET record = ?, erased = 1 WHERE id = ?",
                (dump(without(json.loads(record), gone)), number),
            )
        self.connection.execute(f"DELETE FROM decision_items WHERE item {_AMONG}", among)
        self.note(decisions=len(found))

    def _erase_queries(self, used: set[str], said: Sequence[Said]) -> None:
        """Erase the recorded queries, of every namespace, that used, quote or repeat what goes."""
        self.erased += [each for text, vector in said for each in (text.encode(), vector)]
        texts = {text for text, _ in said}
        quotes = [text for text in texts if len(text) >= _QUOTE]
        vectors, near = _matrix(said, self.store.dimension), self.store.config.merge_threshold
        gone = []
        for number, text, answer, recalled, vector in self.connection.execute(
            "SELECT id, text, answer, recalled, vector FROM queries"
        ):
            asked = f"{text}\n{answer or ''}"
            if (
                not used.isdisjoint(json.loads(recalled))
                or any(quote in asked for quote in quotes)
                or (text in texts or answer in texts)
                or (len(vectors) and (vectors @ np.frombuffer(vector, "<f4")).max() >= near)
            ):
                gone.append((number,))
                self.erased += [text.encode(), (answer or "").encode(), vector]
        self.connection.executemany("DELETE FROM queries WHERE id = ?", gone)
        self.note(queries=len(gone))


@contextmanager
def erasing(store: MemoryStore, *, erases: bool = True) -> Iterator[Erasure]:
    """A write transaction that erases, or just changes; afterwards, the receipt is complete."""
    with store.writing() as connection:
        erasure = Erasure(store, connection)
        yield erasure
        if erases:
            erasure.clean()
    store.database.on_end(partial(_finish, erasure, erases))


def _finish(erasure: Erasure, erases: bool, committed: bool) -> None:
    """Let the indexes follow, empty the log, and complete the receipt."""
    store, receipt = erasure.store, erasure.receipt
    for space in erasure.changed:
        if committed:
            store.indexes.committed(space)
        else:
            store.indexes.drop(space.id)
    if not committed:
        return
    for number in erasure.dropped:
        store.indexes.drop(number)
    for namespace in receipt.namespaces:
        store.pending.take(namespace)
    scrubbed = True
    if erases:
        scrubbed = store.scrub()
        if scrubbed and store.database.has_slack(erasure.erased):
            scrubbed = store.scrub(vacuum=True)
    erasure.receipt = replace(receipt, scrubbed=scrubbed and not erasure.quoted)


def purge(store: MemoryStore) -> ErasureReceipt:
    """Erase the messages and items that have expired, and end the log's retention."""
    now = time.time()
    if store.settings.log_retention is None and not has_expired(store, now):
        return ErasureReceipt(now)
    with erasing(store) as erasure:
        erasure.purge(now)
    return erasure.receipt


def has_expired(store: MemoryStore, now: float) -> bool:
    """Whether a message or an item has expired and is still there."""
    with store.database.read() as connection:
        found = connection.execute(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE expires <= ?1)"
            " OR EXISTS (SELECT 1 FROM items WHERE expires <= ?1)",
            (now,),
        ).fetchone()
    return found is not None


def _matrix(said: Sequence[Said], dimension: int) -> Matrix:
    """The vectors that are whole; damaged ones can be erased too."""
    whole = b"".join(vector for _, vector in said if len(vector) == 4 * dimension)
    return np.frombuffer(whole, dtype="<f4").reshape(-1, dimension)


def without(record: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """A decision's record with the ids of what is gone replaced."""
    ends = {name: ERASED for name in ("candidate_id", "target_id") if record.get(name) in gone}
    members = [ERASED if each in gone else each for each in record["members"]]
    return {**record, **ends, "members": members}


def unknown(name: str) -> InvalidInputError:
    """The error for an id of nothing that is stored."""
    return InvalidInputError(f"nothing is stored under the id {name!r}; it may be erased")


def _drop_old(connection: Connection, before: float) -> tuple[str, ...]:
    """End the retention of log entries, and of the old versions that only history needs.

    This is not erasure: what a memory made of a message stays.
    """
    connection.execute("DELETE FROM tiers WHERE live = 0 AND changed < ?", (before,))
    connection.execute("DELETE FROM provenance WHERE item NOT IN (SELECT id FROM tiers)")
    gone = connection.execute(
        "DELETE FROM messages WHERE created < ? AND NOT EXISTS ("
        "SELECT 1 FROM provenance p JOIN tiers t ON t.id = p.item AND t.tier = 'hot'"
        " WHERE p.message = messages.id) RETURNING id",
        (before,),
    )
    return tuple(name for (name,) in gone.fetchall())
