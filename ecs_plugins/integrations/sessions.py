"""Logs of sessions, each message an item by key, and the memories that they are in.

The text of a log entry is a message of the memory, which goes through hot tier, sleep phases and
cold tier. It is stored once, in the message, so changing or erasing the message changes or erases
the entry.
"""

from __future__ import annotations

import atexit
import os
import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store.items import NewItem, StoredItem
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.storage.addresses import is_address, without_password

SESSION = "session"
"""Metadata key of the conversation that a message belongs to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a log.

    Attributes:
        value: The message in JSON types, without the text under ``text_key``.
        text: Words to remember; empty if there are none.
        role: Author of these words.
        text_key: Key of the value under which exactly the text stands.
        metadata: Metadata of the remembered message.
    """

    value: Mapping[str, Any]
    text: str = ""
    role: str = "user"
    text_key: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


class Session:
    """One conversation of a user, with its own log. All conversations share a memory.

    Logs of another ``kind``, such as another framework's, are not seen.
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
        self.kind = kind
        self._log = checked((*self.namespace, session_id))

    def append(self, entries: Sequence[Entry]) -> None:
        """Log messages and remember their texts, in order: all of them, or nothing."""
        items: list[NewItem] = []
        drafts: dict[int, NewMessage] = {}
        for number, entry in enumerate(entries):
            key = uuid.uuid4().hex
            value, text_key = dict(entry.value), entry.text_key
            items.append(NewItem(self._log, key, value, text_key=text_key, kind=self.kind))
            if entry.text:
                metadata = {**entry.metadata, SESSION: self.session_id}
                drafts[number] = NewMessage(entry.text, entry.role, metadata)

        # All that can be refused has been, before anything is written.
        def write() -> None:
            ids = self.memory.add([*drafts.values()], namespace=self.namespace)
            for number, id in zip(drafts, ids, strict=True):
                items[number] = replace(items[number], message=id)
            self.memory.items.write(items)

        self.memory.items.together([self.namespace, self._log], write)

    def entries(self) -> list[StoredItem]:
        """Return the log, oldest entry first."""
        with self.memory.items.view(kind=self.kind) as view:
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
