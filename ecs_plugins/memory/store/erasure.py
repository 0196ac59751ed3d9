"""Erasure: what happens when a message must be gone, not hidden.

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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ecs_plugins.memory.admission import founded, repeated
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import ERASED, ErasureReceipt
from ecs_plugins.memory.store import cold_memories, hot_items, rows
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.rows import dump
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.types import HotItem, Observation

_QUOTE = 12  # characters from which on an erased text is looked for in recorded queries


@dataclass(slots=True)
class Erased:
    """What an erasure has removed so far."""

    messages: list[str] = field(default_factory=list)
    hot_erased: int = 0
    hot_derived: int = 0
    memories_erased: list[str] = field(default_factory=list)
    memories_derived: list[str] = field(default_factory=list)
    decisions: int = 0
    queries: int = 0
    snapshots: int = 0
    namespaces: list[Namespace] = field(default_factory=list)
    items: int = 0
    spaces: set[int] = field(default_factory=set)

    def receipt(self, at: float, *, scrubbed: bool) -> ErasureReceipt:
        """The receipt."""
        return ErasureReceipt(
            at=at,
            messages=tuple(self.messages),
            hot_erased=self.hot_erased,
            hot_derived=self.hot_derived,
            memories_erased=tuple(self.memories_erased),
            memories_derived=tuple(self.memories_derived),
            decisions=self.decisions,
            queries=self.queries,
            snapshots=self.snapshots,
            namespaces=tuple(self.namespaces),
            items=self.items,
            scrubbed=scrubbed,
        )


def refolded(observations: Sequence[Observation], config: MemoryConfig) -> HotItem:
    """One item made of these observations alone, in their order."""
    first, *others = observations
    item = founded(first)
    for observation in others:
        item = repeated(item, observation, config)
    return item


class Erasing:
    """Erases within one namespace and one transaction; the caller saves the namespace.

    Args:
        connection: Inside a write transaction.
        space: The namespace.
        config: How observations are merged.
        dimension: Length of the vectors.
        now: Seconds since 1970.
        erased: Where to count.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        space: Space,
        *,
        config: MemoryConfig,
        dimension: int,
        now: float,
        erased: Erased,
    ) -> None:
        self._connection = connection
        self._space = space
        self._config = config
        self._dimension = dimension
        self._now = now
        self._erased = erased

    def erase_messages(self, ids: Collection[str]) -> None:
        """Erase messages of this namespace and follow their provenance."""
        gone, ids = frozenset(ids), list(ids)
        texts = [
            text
            for (text,) in self._connection.execute(
                "SELECT text FROM messages WHERE id IN (SELECT value FROM json_each(?))",
                (dump(ids),),
            )
        ]
        affected = self._derive_hot_items(gone, gone) | self._derive_memories(gone, gone)
        for table in ("hot_members", "provenance"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE message IN (SELECT value FROM json_each(?))",
                (dump(ids),),
            )
        self._connection.execute(
            "DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))", (dump(ids),)
        )
        self._erased.messages += ids
        self._finish(ids, affected, texts)

    def rederive(self, message: str, old_text: str) -> None:
        """Derive anew what rests on a message whose row has been changed."""
        changed, gone = frozenset([message]), frozenset[str]()
        affected = self._derive_hot_items(changed, gone) | self._derive_memories(changed, gone)
        self._finish((), affected, [old_text])

    def erase_memory(self, name: str) -> None:
        """Erase every version of a memory; the messages behind it stay."""
        versions = cold_memories.versions(self._connection, name)
        self._drop_memory(name, [row.row for row in versions], live=any(v.live for v in versions))
        self._finish([name], {name}, [row.memory.text for row in versions])

    def _finish(self, ids: Iterable[str], affected: set[str], texts: Sequence[str]) -> None:
        gone = {*ids, *self._erased.memories_erased}
        self._mark_decisions(gone)
        self._erase_queries(gone | affected, texts)
        self._space.erasures += 1
        self._erased.spaces.add(self._space.id)

    def _remaining(
        self, members: Iterable[str], gone: frozenset[str]
    ) -> tuple[list[Observation], dict[str, object], float | None]:
        """The observations that are left, what their metadata agree on, their first expiry."""
        staying = set(members) - gone
        if not staying:
            return [], {}, None
        left = log.observations(self._connection, staying, self._dimension)
        metadata: rows.Metadata | None = None
        for _, own, _ in left:
            metadata = own if metadata is None else rows.shared(metadata, own)
        return (
            [observation for observation, _, _ in left],
            dict(metadata or {}),
            rows.earliest(*(expires for _, _, expires in left)),
        )

    # Hot items

    def _derive_hot_items(self, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        listed = hot_items.live_rows(self._connection, self._space.id, changed)
        hot_items.write_out(self._connection, self._space.id, listed)
        items = [*changed, *hot_items.items_with(self._connection, changed)]
        rows = self._connection.execute(
            "SELECT row, id, live, died, judged FROM hot_items"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (dump(items),),
        ).fetchall()
        affected = set()
        for row, name, live, died, judged in rows:
            affected.add(name)
            members = [
                member
                for (member,) in self._connection.execute(
                    "SELECT message FROM hot_members WHERE item = ?", (name,)
                )
            ] or [name]
            self._derive_hot(row, members, gone, live=bool(live), died=died, judged=judged)
        for name in affected:
            self._connection.execute(
                "DELETE FROM hot_members WHERE item = ?1"
                " AND NOT EXISTS (SELECT 1 FROM hot_items WHERE id = ?1)",
                (name,),
            )
        return affected

    def _derive_hot(
        self,
        row: int,
        members: Sequence[str],
        gone: frozenset[str],
        *,
        live: bool,
        died: int | None,
        judged: int,
    ) -> None:
        left, metadata, expires = self._remaining(members, gone)
        self._connection.execute("DELETE FROM hot_items WHERE row = ?", (row,))
        if not left:
            self._erased.hot_erased += live
            if live:
                self._space.rewrote("hot", -1)
            return
        item = refolded(left, self._config)
        item = replace(item, judged=min(judged, item.evidence.support))
        new = hot_items.insert_hot(
            self._connection,
            self._space,
            item,
            metadata=metadata,
            expires=expires,
            borrowed=len(item.members) == 1,
        )
        if len(item.members) > 1:
            hot_items.add_members(self._connection, ((item.id, m) for m in item.members))
        self._connection.execute(
            "UPDATE hot_items SET live = ?, died = ? WHERE row = ?", (int(live), died, new)
        )
        if live:
            self._space.rewrote("hot")
            self._erased.hot_derived += 1

    # Memories

    def _derive_memories(self, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        names = [
            name
            for (name,) in self._connection.execute(
                "SELECT DISTINCT memory FROM provenance"
                " WHERE message IN (SELECT value FROM json_each(?))",
                (dump(list(changed)),),
            )
        ]
        for name in names:
            self._derive_memory(name, changed, gone)
        return set(names)

    def _derive_memory(self, name: str, changed: frozenset[str], gone: frozenset[str]) -> None:
        joined = dict(
            self._connection.execute(
                "SELECT message, version FROM provenance WHERE memory = ?", (name,)
            ).fetchall()
        )
        since = min(version for message, version in joined.items() if message in changed)
        kept = False
        for old in cold_memories.versions(self._connection, name):
            if old.version < since:
                kept = True
                continue
            members = [message for message, version in joined.items() if version <= old.version]
            kept |= self._derive_version(old, members, gone)
        if kept:
            self._erased.memories_derived.append(name)
        else:
            self._erased.memories_erased.append(name)
            self._connection.execute("DELETE FROM provenance WHERE memory = ?", (name,))

    def _derive_version(
        self, old: cold_memories.ColdRow, members: Sequence[str], gone: frozenset[str]
    ) -> bool:
        left, metadata, expires = self._remaining(members, gone)
        self._connection.execute("DELETE FROM memories WHERE row = ?", (old.row,))
        if not left:
            if old.live:
                self._space.rewrote("cold", -1)
            return False
        item = refolded(left, self._config)
        evidence = replace(item.evidence, hits=old.memory.evidence.hits)
        new = cold_memories.insert_cold(
            self._connection,
            self._space,
            replace(old.memory, vector=item.vector, text=item.text, evidence=evidence),
            version=old.version,
            metadata=metadata,
            created=old.created,
            changed=self._now,
            expires=expires,
            born=old.born,
            judged=old.judged,
        )
        self._connection.execute(
            "UPDATE memories SET live = ?, died = ? WHERE row = ?", (int(old.live), old.died, new)
        )
        if old.live:
            self._space.rewrote("cold")
        return True

    def _drop_memory(self, name: str, rows: Sequence[int], *, live: bool) -> None:
        cold_memories.retire_cold(self._connection, rows, None)
        self._connection.execute("DELETE FROM provenance WHERE memory = ?", (name,))
        self._erased.memories_erased.append(name)
        if live:
            self._space.rewrote("cold", -1)

    # The record

    def _mark_decisions(self, gone: Collection[str]) -> None:
        found = self._connection.execute(
            "SELECT DISTINCT d.id, d.record FROM decision_items i JOIN decisions d"
            " ON d.id = i.decision WHERE i.item IN (SELECT value FROM json_each(?))",
            (dump(list(gone)),),
        ).fetchall()
        for number, record in found:
            self._connection.execute(
                "UPDATE decisions SET record = ?, erased = 1 WHERE id = ?",
                (dump(without(json.loads(record), gone)), number),
            )
        self._connection.execute(
            "DELETE FROM decision_items WHERE item IN (SELECT value FROM json_each(?))",
            (dump(list(gone)),),
        )
        self._erased.decisions += len(found)

    def _erase_queries(self, items: set[str], texts: Sequence[str]) -> None:
        quotes = [text for text in texts if len(text) >= _QUOTE]
        for number, text, answer, recalled in self._connection.execute(
            "SELECT id, text, answer, recalled FROM queries WHERE namespace = ?", (self._space.id,)
        ).fetchall():
            said = f"{text}\n{answer or ''}"
            if (
                not items.isdisjoint(json.loads(recalled))
                or any(q in said for q in quotes)
                or (text in texts or answer in texts)
            ):
                self._connection.execute("DELETE FROM queries WHERE id = ?", (number,))
                self._erased.queries += 1


def without(record: dict[str, object], gone: Collection[str]) -> dict[str, object]:
    """A decision's record with the ids of what is gone replaced."""

    def clean(value: object) -> object:
        return ERASED if value in gone else value

    cleaned = {
        key: clean(value) if isinstance(value, str) else value for key, value in record.items()
    }
    members = record["members"]
    assert isinstance(members, list)
    return cleaned | {"members": [clean(member) for member in members]}


def drop_namespace(connection: sqlite3.Connection, space: Space, erased: Erased) -> None:
    """Erase a namespace with everything in it, its name included."""
    number = (space.id,)
    erased.messages += [
        name for (name,) in connection.execute("SELECT id FROM messages WHERE namespace=?", number)
    ]
    erased.memories_erased += [
        name
        for (name,) in connection.execute(
            "SELECT DISTINCT id FROM memories WHERE namespace = ?", number
        )
    ]
    erased.hot_erased += space.hot.count
    for table in ("decisions", "queries", "snapshots"):
        count = connection.execute(
            f"SELECT count(*) FROM {table} WHERE namespace = ?", number
        ).fetchone()[0]
        setattr(erased, table, getattr(erased, table) + count)
    connection.execute(
        "DELETE FROM hot_members WHERE item IN (SELECT id FROM hot_items WHERE namespace = ?)",
        number,
    )
    connection.execute(
        "DELETE FROM provenance WHERE memory IN (SELECT id FROM memories WHERE namespace = ?)",
        number,
    )
    for table in (
        "snapshots", "queries", "decisions", "memories", "hot_items", "not_hot", "messages",
        "sleeps",
    ):  # fmt: skip
        connection.execute(f"DELETE FROM {table} WHERE namespace = ?", number)
    connection.execute("DELETE FROM namespaces WHERE id = ?", number)
    erased.namespaces.append(space.namespace)
    erased.spaces.add(space.id)
