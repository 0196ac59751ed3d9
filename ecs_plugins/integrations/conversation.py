"""Conversations: turns, a log of entries by key, and their messages in a memory.

A log entry is an item (`ecs_plugins.memory.store.items`); its text, if it has one, is a message
that goes through hot tier, sleep phases and cold tier. The text is stored once, in the message, so
changing or erasing the message changes or erases the entry.
"""

from __future__ import annotations

import atexit
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store.items import NewItem, StoredItem
from ecs_plugins.memory.store.messages import MAX_TEXT, NewMessage
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.types import Namespace
from ecs_plugins.storage.addresses import is_address, without_password

SESSION = "session"
"""Metadata key of the conversation that a message belongs to."""

MessageT = TypeVar("MessageT")


def last_index(
    messages: Sequence[MessageT],
    wanted: Callable[[MessageT], bool],
) -> int | None:
    """Return the index of the last message that is wanted, such as the user's latest."""
    for index in reversed(range(len(messages))):
        if wanted(messages[index]):
            return index
    return None


def turns(
    messages: Sequence[MessageT],
    begins: Callable[[MessageT], bool],
) -> list[list[int]]:
    """Return the indices of messages by turn; tool calls stay with their results."""
    cut: list[list[int]] = []
    for index, message in enumerate(messages):
        if not cut or begins(message):
            cut.append([])
        cut[-1].append(index)
    return cut


def _new_key() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Entry:
    """New entry of a log.

    Attributes:
        value: What is logged, a JSON object.
        text: What is remembered of it; blank is nothing.
        text_key: Key of the value that holds exactly ``text``; None if none does.
    """

    value: dict[str, Any]
    text: str
    role: str
    text_key: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    key: str = field(default_factory=_new_key)
    ttl: float | None = None


def append(
    memory: EntropicMemory,
    namespace: Namespace,
    entries: Sequence[Entry],
    *,
    log: Namespace | None = None,
    kind: str = "",
) -> None:
    """Log entries and remember their texts, in order: all of them, or nothing."""
    if not entries:
        return
    place = log or namespace
    items: list[NewItem] = []
    drafts: list[NewMessage] = []
    remembered: list[int] = []
    for index, entry in enumerate(entries):
        items.append(NewItem(place, entry.key, entry.value, ttl=entry.ttl, kind=kind))
        if _is_remembered(entry):
            remembered.append(index)
            drafts.append(_draft(entry))
    # All that can be refused has been, before anything is written.
    texts = memory.items.foreseen(namespace, drafts)
    with memory.items.together(texts, [namespace, place]):
        ids = memory.add(drafts, namespace=namespace)
        for index, id in zip(remembered, ids, strict=True):
            text_key = entries[index].text_key
            items[index] = replace(items[index], message=id, text_key=text_key)
        memory.items.write(items)


def foreseen(memory: EntropicMemory, namespace: Namespace, entries: Sequence[Entry]) -> list[str]:
    """Return the texts that logging some entries would embed."""
    drafts = [_draft(entry) for entry in entries if _is_remembered(entry)]
    return memory.items.foreseen(namespace, drafts)


def _is_remembered(entry: Entry) -> bool:
    """Return True if a text can be remembered; one that is too long is only logged."""
    if len(entry.text) > MAX_TEXT:
        return False
    return bool(entry.text.strip())


def _draft(entry: Entry) -> NewMessage:
    return NewMessage(
        text=entry.text,
        role=entry.role,
        metadata=entry.metadata,
        ttl=entry.ttl,
    )


class Session:
    """One conversation of a user, with its own log. All conversations share a memory.

    ``kind`` names the framework that wrote the log; others do not see it.
    """

    def __init__(
        self,
        memory: EntropicMemory,
        namespace: Sequence[str],
        session_id: str,
        kind: str,
    ) -> None:
        self.memory = memory
        self.namespace = checked(namespace)
        self.session_id = session_id
        self._kind = kind
        self._log = checked((*self.namespace, session_id))

    def append(self, entries: Sequence[Entry]) -> None:
        """Log entries and remember their texts."""
        marked = []
        for entry in entries:
            metadata = {"role": entry.role, **entry.metadata, SESSION: self.session_id}
            marked.append(replace(entry, metadata=metadata))
        append(self.memory, self.namespace, marked, log=self._log, kind=self._kind)

    def entries(self) -> list[StoredItem]:
        """Return the log, oldest entry first."""
        with self.memory.items.view(kind=self._kind) as view:
            items = view.find(self._log)
        return [item for item in items if item.namespace == self._log]

    def drop(self, entries: Sequence[StoredItem]) -> None:
        """Remove entries from the log; their messages stay in the memory."""
        addresses = [(entry.namespace, entry.key) for entry in entries]
        if addresses:
            self.memory.items.write(deletes=addresses)

    def clear(self) -> ErasureReceipt:
        """Erase the log, its messages and everything that rests on them alone.

        A memory of messages of several sessions is derived anew from the others.
        """
        own = {SESSION: self.session_id}
        receipt = self.memory.forget(self.namespace, filter=own)
        self.drop(self.entries())
        return receipt


# Memories by path, one per file and process: what is written down as a path finds the memory that
# this process has open already, with its embedder and settings.

_lock = threading.Lock()
_open_memories: weakref.WeakValueDictionary[str, EntropicMemory] = weakref.WeakValueDictionary()


def known_path(memory: EntropicMemory) -> str:
    """Register an open memory under its path, and return the path."""
    if not isinstance(memory, EntropicMemory):
        raise ConfigurationError(f"memory is an EntropicMemory, got {memory!r:.80}; open it first")
    key = _real_path(memory.path)
    with _lock:
        _open_memories[key] = memory
    return key


def memory_of(path: str | os.PathLike[str]) -> EntropicMemory:
    """Return the open memory of a path; open it with the default embedder if necessary.

    A memory that is opened here is closed at exit. One that was written with another embedder has
    to be opened with that, and made known, first.
    """
    key = _real_path(path)
    with _lock:
        memory = _open_memories.get(key)
        if memory is None or memory.closed:
            memory = EntropicMemory.open(path if is_address(path) else key)
            _open_memories[key] = memory
            atexit.register(memory.close)
        return memory


def _real_path(path: str | os.PathLike[str]) -> str:
    if os.fspath(path) == ":memory:":
        raise ConfigurationError(
            "a memory without a file cannot be found again by its path; open it with a path"
        )
    if is_address(path):
        return without_password(path)
    return os.path.realpath(path)
