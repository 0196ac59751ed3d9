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
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ecs_plugins.memory.admission import founded, repeated
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import ERASED, ErasureReceipt
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.rows import Metadata, dump, earliest, shared
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.types import HotItem, Observation

_QUOTE = 12  # characters from which on an erased text is looked for in recorded queries
_AMONG = "IN (SELECT value FROM json_each(?))"


@dataclass(slots=True)
class Erased:
    """What an erasure has removed so far; for the attributes see `ErasureReceipt`.

    Attributes:
        spaces: Namespaces that were changed, as they were saved.
        dropped: Numbers of the namespaces deleted.
    """

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
    spaces: list[Space] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)

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


class Erasure:
    """Erases within one namespace and one transaction; `save` ends it.

    Args:
        connection: Inside a write transaction.
        space: The namespace.
        config: How observations are merged.
        dimension: Length of the vectors.
        erased: Where to count.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        space: Space,
        config: MemoryConfig,
        dimension: int,
        erased: Erased,
    ) -> None:
        self._connection = connection
        self._space = space
        self._config = config
        self._dimension = dimension
        self._erased = erased

    def erase_messages(self, ids: Collection[str]) -> None:
        """Erase messages of this namespace and follow their provenance."""
        among = (dump(list(ids)),)
        texts = [
            text
            for (text,) in self._connection.execute(
                f"SELECT text FROM messages WHERE id {_AMONG}", among
            )
        ]
        affected = self._derive(frozenset(ids), frozenset(ids))
        self._connection.execute(f"DELETE FROM provenance WHERE message {_AMONG}", among)
        self._connection.execute(f"DELETE FROM messages WHERE id {_AMONG}", among)
        self._erased.messages += ids
        self._clean_record(ids, affected, texts)

    def rederive(self, message: str, old_text: str) -> None:
        """Derive anew what rests on a message whose row has been changed."""
        affected = self._derive(frozenset([message]), frozenset())
        self._clean_record((), affected, [old_text])

    def erase_memory(self, name: str) -> None:
        """Erase every version of a memory; the messages behind it stay."""
        versions = tiers.versions(self._connection, name)
        tiers.delete(self._connection, self._space, versions)
        tiers.forget_provenance(self._connection, [name])
        self._erased.memories_erased.append(name)
        self._clean_record([name], {name}, [row.item.text for row in versions])

    def save(self) -> None:
        """Save the namespace, and note that its index has to follow."""
        self._space.save(self._connection)
        self._erased.spaces.append(self._space)

    # The tiers

    def _derive(self, changed: frozenset[str], gone: frozenset[str]) -> set[str]:
        """Derive what rests on changed messages without those that are gone; returns its ids."""
        affected = {
            name
            for (name,) in self._connection.execute(
                f"SELECT item FROM provenance WHERE message {_AMONG}", (dump(list(changed)),)
            )
        }
        for name in sorted(affected):
            joined = dict(
                self._connection.execute(
                    "SELECT message, version FROM provenance WHERE item = ?", (name,)
                ).fetchall()
            )
            since = min(joined[message] for message in changed if message in joined)
            rows = tiers.versions(self._connection, name)
            stale = [row for row in rows if row.version >= since]
            left = len(rows) - len(stale)
            for row in stale:
                members = [each for each, version in joined.items() if version <= row.version]
                left += self._derive_row(row, set(members) - gone)
            if rows and rows[0].tier == "cold":
                (self._erased.memories_derived if left else self._erased.memories_erased).append(
                    name
                )
        tiers.forget_provenance(self._connection, affected)
        return affected

    def _derive_row(self, old: TierRow, members: Collection[str]) -> bool:
        """Replace a version by what its remaining messages say; returns whether any remain."""
        tiers.delete(self._connection, self._space, [old])
        left = log.observations(self._connection, members, self._dimension)
        if not left:
            self._erased.hot_erased += old.tier == "hot"
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
            tiers.insert(self._connection, self._space, replace(new, item=item), item.members)
            self._erased.hot_derived += 1
        else:
            evidence = replace(item.evidence, hits=old.memory.evidence.hits)
            memory = replace(old.memory, vector=item.vector, text=item.text, evidence=evidence)
            tiers.insert(self._connection, self._space, replace(new, item=memory))
        return True

    # The record

    def _clean_record(self, ids: Iterable[str], affected: set[str], texts: Sequence[str]) -> None:
        gone = {*ids, *self._erased.memories_erased}
        self._mark_decisions(gone)
        self._erase_queries(gone | affected, texts)
        self._space.erasures += 1

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
        self._erased.decisions += len(found)

    def _erase_queries(self, items: set[str], texts: Sequence[str]) -> None:
        quotes = [text for text in texts if len(text) >= _QUOTE]
        for number, text, answer, recalled in self._connection.execute(
            "SELECT id, text, answer, recalled FROM queries WHERE namespace = ?", (self._space.id,)
        ).fetchall():
            said = f"{text}\n{answer or ''}"
            if (
                not items.isdisjoint(json.loads(recalled))
                or any(quote in said for quote in quotes)
                or (text in texts or answer in texts)
            ):
                self._connection.execute("DELETE FROM queries WHERE id = ?", (number,))
                self._erased.queries += 1


def without(record: dict[str, object], gone: Collection[str]) -> dict[str, object]:
    """A decision's record with the ids of what is gone replaced."""

    def clean(value: object) -> object:
        return ERASED if isinstance(value, str) and value in gone else value

    members = record["members"]
    assert isinstance(members, list)
    cleaned = {key: clean(value) for key, value in record.items()}
    return cleaned | {"members": [clean(member) for member in members]}


def drop_namespace(connection: sqlite3.Connection, space: Space, erased: Erased) -> None:
    """Erase a namespace with everything in it, its name included."""
    number = (space.id,)

    def ids(sql: str) -> list[str]:
        return [name for (name,) in connection.execute(sql, number)]

    erased.messages += ids("SELECT id FROM messages WHERE namespace = ?")
    erased.memories_erased += ids(
        "SELECT DISTINCT id FROM tiers WHERE namespace = ? AND tier = 'cold'"
    )
    erased.hot_erased += space.count["hot"]
    for table in ("decisions", "queries"):
        counted = connection.execute(f"SELECT count(*) FROM {table} WHERE namespace = ?", number)
        setattr(erased, table, getattr(erased, table) + counted.fetchone()[0])
    connection.execute(
        "DELETE FROM provenance WHERE item IN (SELECT id FROM tiers WHERE namespace = ?)", number
    )
    for table in ("queries", "decisions", "tiers", "messages", "sleeps"):
        connection.execute(f"DELETE FROM {table} WHERE namespace = ?", number)
    connection.execute("DELETE FROM namespaces WHERE id = ?", number)
    erased.namespaces.append(space.namespace)
    erased.dropped.append(space.id)
