"""The conversations of an `EntropicStore`: puts become messages, searches recollections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from langgraph.store.base import GetOp, PutOp, SearchItem, SearchOp

from ecs_plugins.integrations.conversation import Entry, append, foreseen
from ecs_plugins.integrations.recall import traced_recall
from ecs_plugins.langgraph.operations import RecalledItem
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.statements import texts_behind
from ecs_plugins.memory.store.items import Address, StoredItem
from ecs_plugins.memory.store.search import Shaper
from ecs_plugins.memory.types import Namespace

Puts: TypeAlias = Sequence[tuple[PutOp, Entry | None]]
"""Messages that are put; those without an entry are deleted."""


@dataclass
class _Planned:
    """Plan for messages that are put.

    Attributes:
        gone: Items to replace or delete.
        unlogged: Deletes of memories that have only their own id.
        entries: Entries to add, by namespace.
    """

    gone: list[StoredItem] = field(default_factory=list)
    unlogged: list[PutOp] = field(default_factory=list)
    entries: dict[Namespace, list[Entry]] = field(default_factory=dict)


class Conversations:
    """The namespaces below a prefix, whose items are messages; without a prefix, there are none.

    Attributes:
        prefix: Namespace above them.
    """

    def __init__(
        self,
        memory: EntropicMemory,
        prefix: Namespace | None,
        *,
        threshold: float | None,
        shaper: Shaper | None,
    ) -> None:
        self.prefix = prefix
        self._memory = memory
        self._threshold = threshold
        self._shaper = shaper

    def hold(self, namespace: Sequence[str]) -> bool:
        """Return True if items of a namespace are messages."""
        if self.prefix is None:
            return False
        return tuple(namespace[: len(self.prefix)]) == self.prefix

    def namespaces(self, prefix: Namespace | None = None) -> list[Namespace]:
        """Return the namespaces of conversations, equal to ``prefix`` or below it."""
        if self.prefix is None:
            return []
        spaces = self._memory.namespaces(prefix or self.prefix)
        return [namespace for namespace in spaces if self.hold(namespace)]

    def get(self, op: GetOp | PutOp) -> Memory | None:
        """Return the memory with the key of an operation as its id, from its namespace."""
        if not self.hold(op.namespace):
            return None
        remembered = self._memory.get(op.key)
        if remembered is None or remembered.namespace != tuple(op.namespace):
            return None
        return remembered

    def foreseen(self, puts: Puts) -> list[str]:
        """Return the texts that putting or deleting messages would embed."""
        planned = self._planned(puts)
        erased = [item.message for item in planned.gone if item.message is not None]
        erased += [op.key for op in planned.unlogged]
        texts: list[str] = []
        for namespace, new in planned.entries.items():
            texts += foreseen(self._memory, namespace, new)
        if erased:
            texts += self._memory.items.foreseen(puts[0][0].namespace, erased=erased)
        return texts

    def put(self, puts: Puts) -> None:
        """Put messages, or delete those without an entry.

        An unchanged message is left as it is.
        """
        planned = self._planned(puts)
        self._delete(planned.gone, planned.unlogged)
        for namespace, new in planned.entries.items():
            append(self._memory, namespace, new)

    def _planned(self, puts: Puts) -> _Planned:
        planned = _Planned()
        with self._memory.items.view() as view:
            for op, entry in puts:
                item = view.get(op.namespace, op.key)
                if _is_unchanged(item, entry):
                    continue
                if item is not None:
                    planned.gone.append(item)
                if entry is not None:
                    planned.entries.setdefault(op.namespace, []).append(entry)
                elif item is None:
                    planned.unlogged.append(op)
        return planned

    def _delete(self, gone: Sequence[StoredItem], unlogged: Sequence[PutOp]) -> None:
        """Erase items with their messages, and memories that have only their own id."""
        messages: list[str] = []
        others: list[Address] = []
        for item in gone:
            if item.message is None:
                others.append((item.namespace, item.key))
            else:
                messages.append(item.message)
        if messages:
            self._memory.delete(*messages)
        if others:
            self._memory.items.write(deletes=others)
        for op in unlogged:
            if self.get(op) is not None:
                self._memory.delete(op.key, evidence=True)

    def search(self, op: SearchOp) -> list[SearchItem]:
        """Return the memories of the conversations that a search reaches."""
        spaces = self.namespaces(tuple(op.namespace_prefix) or None)
        count = op.offset + op.limit
        if not spaces or not op.query or not count:
            return []
        recollections = traced_recall(
            self._memory,
            op.query,
            namespace=spaces[0],
            also=spaces[1:],
            k=count,
            threshold=self._threshold,
            shaper=self._shaper,
            filter=op.filter or None,
        )
        messages = [name for each in recollections for name in each.provenance]
        with self._memory.items.view() as view:
            items = view.of_messages(messages)
        hits = [self._hit(each, items) for each in recollections]
        return [hit for hit in hits if hit is not None]

    def _hit(self, recollection: Memory, items: Mapping[str, StoredItem]) -> SearchItem | None:
        """Return a message as it was put, or a memory of several messages under its own id.

        None if it has been erased since.
        """
        if len(recollection.provenance) == 1:
            item = items.get(recollection.provenance[0])
            if item is not None:
                return RecalledItem(recollection, item)
        remembered = self._memory.get(recollection.id)
        if remembered is None:
            return None
        texts = texts_behind(self._memory, recollection)
        value = {**recollection.metadata, "content": "\n".join(texts)}
        return RecalledItem(recollection, remembered, value)


def _is_unchanged(item: StoredItem | None, entry: Entry | None) -> bool:
    if item is None or entry is None:
        return False
    if item.ttl != entry.ttl:
        return False
    return item.value == entry.value
