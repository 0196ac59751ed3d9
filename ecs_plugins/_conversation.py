"""Conversations in a memory file: the stable log by key, and the memory that is made of it.

A log entry is an item (`ecs_plugins.memory.items`); its text, if it has one, is a message that
goes through hot tier, sleep phases and cold tier. The text is stored once, in the message, so
changing or erasing the message changes or erases the entry.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.items import Items, NewItem, StoredItem
from ecs_plugins.memory.messages import NewMessage
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import ErasureReceipt


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry to be logged.

    Attributes:
        value: What is logged, a JSON object.
        text: What is remembered of it; blank is nothing.
        role: Who said it.
        text_key: Key of the value that holds exactly ``text``; None if none does.
        metadata: JSON values to filter recollections by.
        key: Under which the entry is found; a fresh one by default.
        ttl: Seconds to live; None is for ever.
    """

    value: dict[str, Any]
    text: str
    role: str
    text_key: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    ttl: float | None = None


class Conversations:
    """The conversations of an open memory. Thread-safe.

    A process that is killed between the message and its entry leaves a message that is
    remembered, and can be erased with its namespace, but is missing in the log.

    Args:
        memory: Where they are kept.
    """

    def __init__(self, memory: EntropicMemory) -> None:
        self.memory = memory
        self.items = Items(memory)

    def append(self, namespace: Namespace, entries: Sequence[Entry]) -> None:
        """Log entries and remember their texts, in order.

        Raises:
            InvalidInputError: A value is no JSON object; nothing was written.
            ModelError: The embedder failed; nothing was written.
        """
        drafts = [
            None
            if not entry.text.strip()
            else NewMessage(
                text=entry.text, role=entry.role, metadata=entry.metadata, ttl=entry.ttl
            )
            for entry in entries
        ]
        for entry in entries:
            NewItem(namespace, entry.key, entry.value, ttl=entry.ttl)  # refused before writing
        said = [draft for draft in drafts if draft is not None]
        ids = iter(self.memory.add(said, namespace=namespace))
        rows = []
        for entry, draft in zip(entries, drafts, strict=True):
            message = None if draft is None else next(ids)
            text_key = entry.text_key if message is not None else None
            rows.append(
                NewItem(
                    namespace,
                    entry.key,
                    entry.value,
                    ttl=entry.ttl,
                    message=message,
                    text_key=text_key,
                )
            )
        if rows:
            self.items.write(rows)

    def log(self, namespace: Namespace) -> list[StoredItem]:
        """The entries of one conversation, oldest first."""
        with self.items.view() as view:
            return [item for item in view.find(namespace) if item.namespace == namespace]

    def delete(self, item: StoredItem) -> ErasureReceipt | None:
        """Erase an entry, and everything that rests on it alone; the receipt if it had a text."""
        if item.message is None:
            self.items.write(deletes=[(item.namespace, item.key)])
            return None
        return self.memory.delete(item.message)

    def clear(self, namespace: Namespace, *, below: bool = False) -> ErasureReceipt:
        """Erase a conversation, its log and its memory; with ``below`` those below it too."""
        receipt = self.memory.forget(namespace, below=below)
        if below:
            self.items.forget(namespace)
        else:
            deletes = [(item.namespace, item.key) for item in self.log(namespace)]
            if deletes:
                self.items.write(deletes=deletes)
        return receipt
