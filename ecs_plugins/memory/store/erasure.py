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

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import founded, repeated
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.records import ERASED, ErasureReceipt
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.database import crc, dump, pack
from ecs_plugins.memory.store.inspection import joined_at
from ecs_plugins.memory.store.intake import check_room_to_pin, insert_pinned
from ecs_plugins.memory.store.reembedding import Embed
from ecs_plugins.memory.store.tiers import Metadata, Space, TierRow, earliest, shared
from ecs_plugins.memory.types import HotItem, Namespace, Observation, encode
from ecs_plugins.ranking.conversation import as_reply, asked_at_end

_QUOTE = 12  # characters from which on an erased text is looked for in recorded queries
_AMONG = "IN (SELECT value FROM json_each(?))"


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


def refolded(observations: Sequence[Observation], config: MemoryConfig) -> HotItem:
    """One item made of these observations alone, in their order."""
    first, *others = observations
    item = founded(first)
    for observation in others:
        item = repeated(item, observation, config)
    return item


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
                changed = {name}
                if change.text is not None:
                    changed |= self._reread([name], change.text)
                self._rewrite(message, change)
                affected = self._derive(space, frozenset(changed), frozenset())
                old = [message.text] if change.text is not None else []
                self._clean_record(space, (), affected, old)
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
        if change.text is not None:
            vector = self._embed([change.text])[0]
            memory = replace(memory, text=change.text, asked="", vector=vector, prior=None)
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

    def _pin_message(self, space: Space, name: str, pinned: bool) -> None:
        """Pin what a message stands in: its hot item moves to the cold tier, pinned."""
        connection = self._connection
        found = tiers.select(
            connection,
            "+live = 1 AND tier = 'hot' AND id IN (SELECT item FROM provenance WHERE message = ?)",
            (name,),
            dimension=self._dimension,
            members=True,
        )
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
            self._erase_memory(space, name)
            if evidence and behind:
                self._erase_messages(space, behind)
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
            queries=found("SELECT count(*) FROM queries WHERE namespace = ?")[0],
            namespaces=(space.namespace,),
        )
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
        among = (dump(list(ids)),)
        texts = self._connection.execute(f"SELECT text FROM messages WHERE id {_AMONG}", among)
        said = [text for (text,) in texts.fetchall()]
        replies = self._reread(ids)
        affected = self._derive(space, frozenset(ids) | replies, frozenset(ids))
        self._unask(space, {asked_at_end(text) for text in said})
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

    def _erase_memory(self, space: Space, name: str) -> None:
        """Erase every version of a memory; the messages behind it stay."""
        versions = tiers.versions(self._connection, name)
        tiers.delete(self._connection, space, versions)
        tiers.forget_provenance(self._connection, [name])
        self.note(memories_erased=(name,))
        self._clean_record(space, [name], {name}, [row.item.text for row in versions])

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
            since = min(joined[message] for message in changed if message in joined)
            rows = tiers.versions(self._connection, name)
            stale = [row for row in rows if row.version >= since]
            left = len(rows) - len(stale)
            for row in stale:
                members = [each for each, version in joined.items() if version <= row.version]
                left += self._derive_row(space, row, set(members) - gone)
            if rows and rows[0].tier == "cold":
                self.note(**{"memories_derived" if left else "memories_erased": (name,)})
        tiers.forget_provenance(self._connection, affected)
        return affected

    def _derive_row(self, space: Space, old: TierRow, members: Collection[str]) -> bool:
        """Replace a version by what its remaining messages say; returns whether any remain."""
        tiers.delete(self._connection, space, [old])
        left = log.observations(self._connection, members, self._dimension)
        if not left:
            self.note(hot_erased=int(old.tier == "hot"))
            return False
        metadata: Metadata | None = None
        for _, own, _ in left:
            metadata = own if metadata is None else shared(metadata, own)
        new = replace(
            old,
            metadata=metadata or {},
            changed=time.time(),
            expires=earliest(*(expires for _, _, expires in left)),
        )
        item = refolded([observation for observation, _, _ in left], self._config)
        if old.tier == "hot":
            item = replace(item, judged=min(old.hot.judged, item.evidence.support))
            tiers.insert(self._connection, space, replace(new, item=item), item.members)
            self.note(hot_derived=1)
        else:
            evidence = replace(item.evidence, hits=old.memory.evidence.hits)
            memory = replace(
                old.memory,
                vector=item.vector,
                text=item.text,
                asked=item.asked,
                evidence=evidence,
            )
            tiers.insert(self._connection, space, replace(new, item=memory))
        return True

    # The record

    def _clean_record(
        self, space: Space, ids: Iterable[str], affected: set[str], texts: Sequence[str]
    ) -> None:
        gone = {*ids, *self.receipt.memories_erased}
        self._mark_decisions(gone)
        self._erase_queries(space, gone | affected, texts)
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

    def _erase_queries(self, space: Space, used: set[str], texts: Sequence[str]) -> None:
        quotes = [text for text in texts if len(text) >= _QUOTE]
        for number, text, answer, recalled in self._connection.execute(
            "SELECT id, text, answer, recalled FROM queries WHERE namespace = ?", (space.id,)
        ).fetchall():
            said = f"{text}\n{answer or ''}"
            if (
                not used.isdisjoint(json.loads(recalled))
                or any(quote in said for quote in quotes)
                or (text in texts or answer in texts)
            ):
                self._connection.execute("DELETE FROM queries WHERE id = ?", (number,))
                self.note(queries=1)


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
