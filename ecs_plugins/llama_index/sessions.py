"""Logs of sessions, each message an item by key, and the memories that they are in.

The text of a log entry is a message of the memory, which goes through hot tier, sleep phases and
cold tier. It is stored once, in the message, so changing or erasing the message changes or erases
the entry.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.integrations.plain import as_json
from ecs_plugins.llama_index.messages import remembered, speaker_metadata, text_of
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store.items import NewItem, StoredItem
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.storage.addresses import is_address, without_password

_log = logging.getLogger(__name__)

SESSION = "session"
"""Metadata key of the conversation that a message belongs to."""

_KIND = "llama_index"  # of items: others do not see them


class Session:
    """One conversation of a user, with its own log. All conversations share a memory."""

    def __init__(
        self,
        memory: EntropicMemory,
        namespace: Sequence[str],
        session_id: str,
    ) -> None:
        self.memory = memory
        self.namespace = checked(namespace)
        self.session_id = session_id
        self._log = checked((*self.namespace, session_id))

    def append(self, messages: Sequence[ChatMessage]) -> None:
        """Log messages and remember their texts, in order: all of them, or nothing."""
        items: list[NewItem] = []
        drafts: dict[int, NewMessage] = {}
        for number, message in enumerate(messages):
            role, text = remembered(message)
            value, text_key = _logged(message, text)
            key = uuid.uuid4().hex
            items.append(NewItem(self._log, key, value, text_key=text_key, kind=_KIND))
            if role and text:
                metadata = {**speaker_metadata(message, role), SESSION: self.session_id}
                drafts[number] = NewMessage(text, role, metadata)

        # All that can be refused has been, before anything is written.
        def write() -> None:
            ids = self.memory.add([*drafts.values()], namespace=self.namespace)
            for number, id in zip(drafts, ids, strict=True):
                items[number] = replace(items[number], message=id)
            self.memory.items.write(items)

        self.memory.items.together([self.namespace, self._log], write)

    def entries(self) -> list[StoredItem]:
        """Return the log, oldest entry first."""
        with self.memory.items.view(kind=_KIND) as view:
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


def _logged(message: ChatMessage, text: str | None) -> tuple[dict[str, Any], str | None]:
    """Return the value of a log entry, and the key under which exactly the text stands."""
    data = _data_of(message)
    value: dict[str, Any] = {"data": data}
    blocks = data["blocks"]
    if not text or len(blocks) != 1 or blocks[0].get("text") != text:
        return value, None
    value["content"] = blocks[0].pop("text")
    return value, "content"


def _data_of(message: ChatMessage) -> dict[str, Any]:
    """Return the fields of a message in JSON types."""
    try:
        data: dict[str, Any] = as_json(message.model_dump(mode="json"))
    except (ValueError, RecursionError):  # pydantic knows no form for something in it
        _log.warning("only the text of a message is logged: the rest has no JSON")
        plain = ChatMessage(role=message.role, content=text_of(message))
        data = plain.model_dump(mode="json")
    return data


def to_message(item: StoredItem) -> ChatMessage:
    """Return the message of an entry."""
    data = item.value["data"]
    if "content" in item.value:
        data["blocks"][0]["text"] = item.value["content"]
    return ChatMessage.model_validate(data)


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
