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
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import admit, founded
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import ERASED, ErasureReceipt
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.database import crc, dump, pack
from ecs_plugins.memory.store.inspection import joined_at
from ecs_plugins.memory.store.intake import (
    check_room_to_pin,
    derived,
    evict_overflow,
    insert_pinned,
    refolded,
)
from ecs_plugins.memory.store.reembedding import Embed
from ecs_plugins.memory.store.tiers import Space, TierRow
from ecs_plugins.memory.types import Matrix, Namespace, encode
from ecs_plugins.ranking.conversation import as_reply, asked_at_end

_QUOTE = 12  # characters from which on an erased text is looked for in recorded queries
_AMONG = "IN (SELECT value FROM json_each(?))"


Said = tuple[str, bytes]
"""A text and the bytes of its vector."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be changed; None leaves it as it is."""

    text: str | None
    metadata: Mapping[str, object] | None
    pinned: bool | None

    @property
    def erases(self) -> bool:
        """Whether something of before will be gone."""
        return self.text is not None or self.metadata is not None


class Erasure:
    """Changes and erases within one write transaction.

    Args:
        connection: Inside the transaction.
        config: How observations are merged.
        dimension: Length of the vectors.
        embed: Embeds what is read otherwise than before.

    Attributes:
        receipt: What is gone.
        changed: Namespaces that were changed, as they were saved: their indexes have to follow.
        dropped: Numbers of the namespaces deleted.
        erased: Texts and vectors that are gone, as bytes.
        quoted: Whether messages that stay in the log say what was erased of a memory.
    """

    def __init__(
        self, connection: sqlite3.Connection, config: MemoryConfig, dimension: int, embed: Embed
    ) -> None:
        self._connection = connection
        self._config = config
        self._dimension = dimension
        self._embed = embed
        self.receipt = ErasureReceipt(time.time())
        self.changed: list[Space] = []
        self.dropped: list[int] = []
        self.erased: list[bytes] = []
        self.quoted = False

    def note(self, **more: Any) -> None:
        """Add numbers and ids to the receipt."""
        added = {name: getattr(self.receipt, name) + value for name, value in more.items()}
        self.receipt = replace(self.receipt, **added)

    def _save(self, space: Space) -> None:
        space.save(self._connection)
        self.changed.append(space)

    def _space_of(self, namespace: Namespace) -> Space:
        space = tiers.find_space(self._connection, namespace)
        assert space is not None
        return space

    # Changing

    def update(self, name: str, change: Change) -> None:
        """Change a message (and what rests on it) or a memory."""
        connection = self._connection
        message = log.get(connection, name)
        if message is None:
            live = [row for row in tiers.versions(connection, name, self._dimension) if row.live]
            if not live:
                raise _unknown(name)
            space = tiers.space_by_id(connection, live[0].space)
            self._update_memory(space, live[0], change)
        else:
            space = self._space_of(message.namespace)
            if change.erases:
                said = self._said([name]) if change.text is not None else []
                changed = frozenset([name])
                if change.text is not None:
                    changed |= self._reread([name], change.text)
                before = {each: self._live_on(each) for each in sorted(changed)}
                self._rewrite(message, change)
                affected = self._derive(space, changed, frozenset())
                for each, rows in before.items():
                    if rows and not self._live_on(each):
                        self._found_again(space, each, any(row.is_pinned for row in rows))
                self._clean_record(space, (), affected, said)
            if change.pinned is not None:
                self._pin_message(space, name, change.pinned)
        self._save(space)

    def _rewrite(self, message: log.Message, change: Change) -> None:
        if change.text is not None:
            self._write_text(message.id, change.text, message.asked)
        if change.metadata is not None:
            self._connection.execute(
                "UPDATE messages SET metadata = ? WHERE id = ?", (dump(change.metadata), message.id)
            )

    def _write_text(self, name: str, text: str, asked: str) -> None:
        """Write what a message says and replies to, with its vector."""
        data = pack(self._embed([as_reply(text, asked)])[0])
        self._connection.execute(
            "UPDATE messages SET text = ?, asked = ?, asker = iif(? = '', NULL, asker),"
            " text_crc = ?, vector = ?, vector_crc = ? WHERE id = ?",
            (text, asked, asked, crc(asked + text), data, crc(data), name),
        )

    def _reread(self, askers: Collection[str], now_asks: str = "") -> set[str]:
        """Take the question that is erased out of the replies to it; returns their ids.

        Args:
            askers: The messages that asked.
            now_asks: What the message says instead.
        """
        among = dump(list(askers))
        found = self._connection.execute(
            f"SELECT id, text FROM messages WHERE asker {_AMONG} AND NOT id {_AMONG}",
            (among, among),
        ).fetchall()
        for name, text in found:
            self._write_text(name, text, asked_at_end(now_asks))
        return {name for name, _ in found}

    def _update_memory(self, space: Space, old: TierRow, change: Change) -> None:
        connection, memory = self._connection, old.memory
        if change.pinned and not memory.pinned:
            check_room_to_pin(connection, space, self._config.cold_capacity)
        if change.pinned is not None:
            memory = replace(memory, pinned=change.pinned)
        if not change.erases:
            tiers.update(connection, old.row, memory)
            return
        now = time.time()
        new = replace(
            old,
            item=memory,
            version=old.version + 1,
            metadata=old.metadata if change.metadata is None else change.metadata,
            changed=now,
            born=None,
        )
        if change.text is None:
            tiers.delete(connection, space, [old])
            tiers.insert(connection, space, new)
            return
        vector = self._embed([change.text])[0]
        behind = tiers.provenance(connection, [memory.id]).get(memory.id, ())
        said = self._erase_versions(space, memory.id)
        self._note_quotes(behind, said)
        self._clean_record(space, (), {memory.id}, said)
        # A message says the new text from here on, so that nothing derives the old one again.
        ids, ttl = log.new_ids(1), None if old.expires is None else max(old.expires - now, 1e-3)
        roles = [each.role for name in behind if (each := log.get(connection, name))]
        role = roles[-1] if roles else "user"
        message = log.NewMessage(change.text, role=role, metadata=new.metadata, ttl=ttl)
        log.insert(connection, space, [message], ids, vector[None], now)
        space.step += 1
        evidence = replace(memory.evidence, edited=True)
        item = replace(
            memory, text=change.text, asked="", vector=vector, prior=None, evidence=evidence
        )
        tiers.insert(connection, space, replace(new, item=item), ids)

    def _pin_message(self, space: Space, name: str, pinned: bool) -> None:
        """Pin what a message stands in: its hot item moves to the cold tier, pinned."""
        connection = self._connection
        found = [row for row in self._live_on(name) if row.tier == "hot"]
        if not found:
            raise InvalidInputError(
                f"the message {name!r} is not in the hot tier; pin the memory it went into"
            )
        if pinned:
            hot = found[0]
            capacity = self._config.cold_capacity
            insert_pinned(connection, space, hot, members=hot.hot.members, capacity=capacity)
            tiers.delete(connection, space, [hot])
            tiers.forget_provenance(connection, [hot.item.id])

    # Erasing

    def delete(self, name: str, *, evidence: bool) -> None:
        """Erase a message, or a memory (with ``evidence``, also the messages behind it)."""
        message = log.get(self._connection, name)
        if message is not None:
            space = self._space_of(message.namespace)
            self._erase_messages(space, [name])
        else:
            versions = tiers.versions(self._connection, name)
            if not versions:
                raise _unknown(name)
            behind = tiers.provenance(self._connection, [name]).get(name, ())
            space = tiers.space_by_id(self._connection, versions[0].space)
            said = self._erase_memory(space, name)
            if evidence and behind:
                self._erase_messages(space, behind)
            else:
                self._note_quotes(behind, said)
        self._save(space)

    def forget(self, namespace: Namespace, condition: Filter | None, *, below: bool) -> None:
        """Erase a namespace, or the messages in it that match; ``below``: what lies below too."""
        found = tiers.list_spaces(self._connection, namespace)
        if not below:
            found = [space for space in found if space.namespace == namespace]
        if condition is None:
            where, bounds = tiers.under(namespace, "namespace")
            if not below:
                where, bounds = "namespace = ?", (encode(namespace),)
            self._erase_items(where, bounds)
        for space in found:
            if condition is None:
                self._drop_namespace(space)
            else:
                self._forget_matching(space, condition)
                self._save(space)

    def _erase_items(self, where: str, values: Sequence[object]) -> None:
        gone = self._connection.execute(f"DELETE FROM items WHERE {where}", values)
        self.note(items=gone.rowcount)

    def _forget_matching(self, space: Space, condition: Filter) -> None:
        messages = [
            message.id
            for message in log.log(self._connection, space.id, now=float("-inf"))
            if matches(message.metadata, condition)
        ]
        if messages:
            self._erase_messages(space, messages)
        # Memories whose messages the log no longer has can only be judged by themselves.
        for row in tiers.tier_rows(self._connection, space.id, "cold"):
            known = self._connection.execute(
                "SELECT 1 FROM provenance p JOIN messages m ON m.id = p.message WHERE p.item = ?",
                (row.item.id,),
            ).fetchone()
            if known is None and matches(row.metadata, condition):
                self._erase_memory(space, row.item.id)

    def _drop_namespace(self, space: Space) -> None:
        """Erase a namespace with everything in it, its name included."""
        connection, number = self._connection, (space.id,)

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
        self._erase_queries(set(), said)
        self.note(queries=len(queries))
        connection.execute(
            "DELETE FROM provenance WHERE item IN (SELECT id FROM tiers WHERE namespace = ?)",
            number,
        )
        # All other tables follow their namespace.
        connection.execute("DELETE FROM namespaces WHERE id = ?", number)
        self.dropped.append(space.id)

    def purge(self, now: float, retention: float | None) -> None:
        """Erase the messages and items that have expired, and what the log's retention ends."""
        self._erase_items("expires <= ?", (now,))
        expired: dict[int, list[str]] = {}
        for number, name in self._connection.execute(
            "SELECT namespace, id FROM messages WHERE expires <= ?", (now,)
        ):
            expired.setdefault(number, []).append(name)
        for number, names in expired.items():
            space = tiers.space_by_id(self._connection, number)
            self._erase_messages(space, names)
            self._save(space)
        if retention is not None:
            self.note(messages=_drop_old(self._connection, now - retention))

    def _erase_messages(self, space: Space, ids: Collection[str]) -> None:
        """Erase messages of this namespace and follow their provenance."""
        among, said = (dump(list(ids)),), self._said(ids)
        replies = self._reread(ids)
        affected = self._derive(space, frozenset(ids) | replies, frozenset(ids))
        self._unask(space, {asked_at_end(text) for text, _ in said})
        self._connection.execute(f"DELETE FROM provenance WHERE message {_AMONG}", among)
        self._connection.execute(f"DELETE FROM messages WHERE id {_AMONG}", among)
        self.note(messages=tuple(ids), replies=tuple(sorted(replies)))
        self._clean_record(space, ids, affected, said)

    def _unask(self, space: Space, questions: Collection[str]) -> None:
        """Take erased questions out of what rests on replies that the log has no more."""
        left = tiers.select(
            self._connection,
            f"namespace = ? AND asked != '' AND asked {_AMONG} AND EXISTS (SELECT 1 FROM provenance"
            " p LEFT JOIN messages m ON m.id = p.message WHERE p.item = tiers.id AND m.id IS NULL)",
            (space.id, dump(list(questions))),
        )
        for row in left:
            vector = self._embed([row.item.text])[0]
            tiers.delete(self._connection, space, [row])
            alone = replace(row.item, asked="", vector=vector)
            tiers.insert(self._connection, space, replace(row, item=alone))

    def _erase_memory(self, space: Space, name: str) -> list[Said]:
        """Erase a memory and return what it said; the messages behind it stay."""
        said = self._erase_versions(space, name)
        self.note(memories_erased=(name,))
        self._clean_record(space, [name], {name}, said)
        return said

    def _erase_versions(self, space: Space, name: str) -> list[Said]:
        said = self._connection.execute("SELECT text, vector FROM tiers WHERE id = ?", (name,))
        texts = said.fetchall()
        tiers.delete(self._connection, space, tiers.versions(self._connection, name))
        tiers.forget_provenance(self._connection, [name])
        return texts

    def _said(self, ids: Collection[str]) -> list[Said]:
        """The texts of messages, and their vectors."""
        return self._connection.execute(
            f"SELECT text, vector FROM messages WHERE id {_AMONG}", (dump(list(ids)),)
        ).fetchall()

    def _note_quotes(self, behind: Collection[str], said: Sequence[Said]) -> None:
        """Note whether messages that stay still say what is erased of a memory."""
        left = [text for text, _ in self._said(behind)]
        self.quoted |= any(text in each for each in left for text, _ in said)

    # The tiers

    def _derive(self, space: Space, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        """Derive what rests on changed messages without those that are gone; returns its ids."""
        affected = {
            name
            for (name,) in self._connection.execute(
                f"SELECT item FROM provenance WHERE message {_AMONG}", (dump(list(changed)),)
            )
        }
        for name in sorted(affected):
            joined = joined_at(self._connection, name)
            leaving = gone or frozenset(each for each in changed if self._is_strange(each, joined))
            since = min(joined[message] for message in changed if message in joined)
            rows = tiers.versions(self._connection, name)
            stale = [row for row in rows if row.version >= since]
            left = len(rows) - len(stale)
            for row in stale:
                members = [each for each, version in joined.items() if version <= row.version]
                left += self._derive_row(space, row, set(members) - leaving)
            self._connection.execute(
                f"DELETE FROM provenance WHERE item = ? AND message {_AMONG}",
                (name, dump(list(leaving))),
            )
            if rows and rows[0].tier == "cold":
                self.note(**{"memories_derived" if left else "memories_erased": (name,)})
        tiers.forget_provenance(self._connection, affected)
        return affected

    def _is_strange(self, name: str, members: Collection[str]) -> bool:
        """Whether a message says something else than the others behind an item."""
        found = log.observations(self._connection, members, self._dimension)
        rest = [each for each, _, _ in found if each.id != name]
        own = [each for each, _, _ in found if each.id == name]
        if not rest or not own:
            return False
        item = refolded(rest, self._config)
        cosine = float(item.vector @ own[0].vector)
        admission = admit(own[0], config=self._config, nearest_hot=(item, cosine))
        return admission.kind == "append"

    def _found_again(self, space: Space, name: str, pinned: bool) -> None:
        """Let a message that parted from all others found an item of its own."""
        connection = self._connection
        message = log.get(connection, name)
        ((observation, metadata, expires),) = log.observations(connection, [name], self._dimension)
        assert message is not None
        item = founded(observation)
        row = TierRow(item, metadata, message.created, time.time(), expires)
        if pinned:
            capacity = self._config.cold_capacity
            insert_pinned(connection, space, row, members=item.members, capacity=capacity)
        else:
            tiers.insert(connection, space, row, item.members)
            evict_overflow(connection, space, self._config)

    def _live_on(self, message: str) -> list[TierRow]:
        """The items in a tier that rest on a message."""
        return tiers.select(
            self._connection,
            "+live = 1 AND id IN (SELECT item FROM provenance WHERE message = ?)",
            (message,),
            dimension=self._dimension,
            members=True,
        )

    def _derive_row(self, space: Space, old: TierRow, members: Collection[str]) -> bool:
        """Replace a version by what these of its messages say; returns whether there are any."""
        tiers.delete(self._connection, space, [old])
        self.erased.append(old.item.text.encode())
        new = derived(self._connection, old, members, self._config, self._dimension)
        if new is None:
            self.note(hot_erased=int(old.tier == "hot"))
            return False
        joined = new.hot.members if new.tier == "hot" else ()
        tiers.insert(self._connection, space, replace(new, changed=time.time()), joined)
        self.note(hot_derived=int(new.tier == "hot"))
        return True

    # The record

    def _clean_record(
        self, space: Space, ids: Iterable[str], affected: set[str], said: Sequence[Said]
    ) -> None:
        gone = {*ids, *self.receipt.memories_erased}
        self._mark_decisions(gone)
        self._erase_queries(gone | affected, said)
        space.erasures += 1

    def _mark_decisions(self, gone: Collection[str]) -> None:
        among = (dump(list(gone)),)
        found = self._connection.execute(
            "SELECT DISTINCT d.id, d.record FROM decision_items i JOIN decisions d"
            f" ON d.id = i.decision WHERE i.item {_AMONG}",
            among,
        ).fetchall()
        for number, record in found:
            self._connection.execute(
                "UPDATE decisions SET record = ?, erased = 1 WHERE id = ?",
                (dump(without(json.loads(record), gone)), number),
            )
        self._connection.execute(f"DELETE FROM decision_items WHERE item {_AMONG}", among)
        self.note(decisions=len(found))

    def _erase_queries(self, used: set[str], said: Sequence[Said]) -> None:
        """Erase the recorded queries, of every namespace, that used, quote or repeat what goes."""
        self.erased += [each for text, vector in said for each in (text.encode(), vector)]
        texts = {text for text, _ in said}
        quotes = [text for text in texts if len(text) >= _QUOTE]
        vectors, near = _matrix(said, self._dimension), self._config.merge_threshold
        gone = []
        for number, text, answer, recalled, vector in self._connection.execute(
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
        self._connection.executemany("DELETE FROM queries WHERE id = ?", gone)
        self.note(queries=len(gone))


def _matrix(said: Sequence[Said], dimension: int) -> Matrix:
    """The vectors that are whole; damaged ones can be erased too."""
    whole = b"".join(vector for _, vector in said if len(vector) == 4 * dimension)
    return np.frombuffer(whole, dtype="<f4").reshape(-1, dimension)


def without(record: dict[str, object], gone: Collection[str]) -> dict[str, object]:
    """A decision's record with the ids of what is gone replaced."""

    def clean(value: object) -> object:
        return ERASED if isinstance(value, str) and value in gone else value

    members = record["members"]
    assert isinstance(members, list)
    cleaned = {key: clean(value) for key, value in record.items()}
    return cleaned | {"members": [clean(member) for member in members]}


def _unknown(name: str) -> InvalidInputError:
    return InvalidInputError(f"nothing is stored under the id {name!r}; it may be erased")


def _drop_old(connection: sqlite3.Connection, before: float) -> tuple[str, ...]:
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
