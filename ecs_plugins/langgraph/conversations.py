"""The part of the store that holds conversations: puts become messages, searches recollections."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import Item, PutOp, SearchItem, SearchOp

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.conversation import Conversations, Entry
from ecs_plugins.integrations.recall import texts_behind
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.filters import checked_filter
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.records import Memory, Recollection
from ecs_plugins.memory.store.items import NewItem, StoredItem
from ecs_plugins.memory.store.messages import Message

_TEXT_KEYS = ("content", "text")


class StoredConversations:
    """Namespaces below a prefix, each a conversation.

    Args:
        memory: The open memory.
        prefix: What lies in it or below it is a conversation.
        threshold: Minimum cosine similarity of what a search recalls.
    """

    def __init__(self, memory: EntropicMemory, prefix: Namespace, threshold: float) -> None:
        self._conversations = Conversations(memory)
        self._memory = memory
        self._prefix = prefix
        self._threshold = threshold

    def covers(self, namespace: Namespace) -> bool:
        """Whether a namespace is a conversation."""
        return tuple(namespace[: len(self._prefix)]) == self._prefix

    def namespaces(self) -> list[Namespace]:
        """The conversations that something was said in."""
        return self._memory.namespaces(self._prefix)

    def check(self, ops: Sequence[PutOp]) -> None:
        """Refuse what is no message before anything is written.

        Raises:
            InvalidInputError: A value has no text, or holds no JSON.
        """
        for op in ops:
            if op.value is not None:
                entry = _entry(op)
                NewItem(op.namespace, entry.key, entry.value, ttl=entry.ttl)

    def write(self, ops: Sequence[PutOp]) -> None:
        """Carry out puts and deletions, in order. An unchanged message is left as it is."""
        for op in ops:
            with self._conversations.items.view() as view:
                old = view.get(op.namespace, op.key)
            if op.value is None:
                self._delete(op, old)
                continue
            entry = _entry(op)
            if old is not None:
                if old.value == entry.value and old.ttl == entry.ttl:
                    continue
                self._conversations.delete(old)
            self._conversations.append(op.namespace, [entry])

    def _delete(self, op: PutOp, old: StoredItem | None) -> None:
        if old is not None:
            self._conversations.delete(old)
        elif self._stored(op.namespace, op.key) is not None:
            self._memory.delete(op.key, evidence=True)

    def get(self, namespace: Namespace, key: str) -> Item | None:
        """What a search found under a key that nobody put: a memory, or a merged message."""
        found = self._stored(namespace, key)
        if found is None:
            return None
        value: dict[str, Any] = {**found.metadata, "content": found.text}
        changed = found.created if isinstance(found, Message) else found.changed
        return Item(
            value=value,
            key=key,
            namespace=namespace,
            created_at=_time(found.created),
            updated_at=_time(changed),
        )

    def _stored(self, namespace: Namespace, key: str) -> Message | Memory | None:
        found = self._memory.get(key)
        return found if found is not None and found.namespace == tuple(namespace) else None

    def recall(self, ops: Sequence[SearchOp]) -> dict[int, list[SearchItem]]:
        """What is remembered, for each search that reaches into conversations, by its identity."""
        return {id(op): self._recall(op) for op in ops}

    def _recall(self, op: SearchOp) -> list[SearchItem]:
        wanted = tuple(op.namespace_prefix)
        found = self._memory.namespaces(wanted or None)
        spaces = [namespace for namespace in found if self.covers(namespace)]
        count = op.offset + op.limit
        if not spaces or not op.query or not count:
            return []
        recollections = self._memory.recall(
            op.query,
            namespace=spaces[0],
            also=spaces[1:],
            k=count,
            threshold=self._threshold,
            filter=None if not op.filter else checked_filter(op.filter),
        )
        messages = [name for each in recollections for name in each.provenance]
        with self._conversations.items.view() as view:
            items = view.of_messages(messages)
        return [self._hit(each, items) for each in recollections]

    def _hit(self, found: Recollection, items: dict[str, StoredItem]) -> SearchItem:
        """One message as it was put; what was merged of several, under its own id."""
        only = items.get(found.provenance[0]) if len(found.provenance) == 1 else None
        if only is not None:
            return SearchItem(
                namespace=only.namespace,
                key=only.key,
                value=only.value,
                created_at=_time(only.created),
                updated_at=_time(only.updated),
                score=found.score,
            )
        stored = self._memory.get(found.id)
        created = stored.created if stored is not None else 0.0
        changed = stored.changed if isinstance(stored, Memory) else created
        return SearchItem(
            namespace=found.namespace,
            key=found.id,
            value={**found.metadata, "content": "\n".join(texts_behind(self._memory, found))},
            created_at=_time(created),
            updated_at=_time(changed),
            score=found.score,
        )


def _entry(op: PutOp) -> Entry:
    assert op.value is not None
    value = dict(op.value)
    key = next((name for name in _TEXT_KEYS if isinstance(value.get(name), str)), None)
    if key is None or not value[key].strip():
        raise InvalidInputError(
            "a message in a conversation is a mapping with 'content' (or 'text'), and optionally "
            f"'role'; got {value!r:.80}. Put other values outside of messages_under"
        )
    role = value.get("role", "user")
    return Entry(
        value=value,
        text=value[key],
        role=role if isinstance(role, str) else "user",
        text_key=key,
        metadata={name: part for name, part in value.items() if name != key},
        key=op.key,
        ttl=None if op.ttl is None else op.ttl * 60.0,
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
