"""Entropic Memory as a LangChain chat message history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from typing_extensions import override

from ecs_plugins.integrations.plain import as_json
from ecs_plugins.integrations.sessions import Entry, Session
from ecs_plugins.langchain.messages import own_words, role_of, speaker_metadata, text_of
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import ErasureReceipt


class EntropicChatMessageHistory(BaseChatMessageHistory):
    """All messages of one session in order, and a memory of them.

    ```python
    chain = RunnableWithMessageHistory(
        prompt | model,
        lambda session_id: EntropicChatMessageHistory(memory, ("u1",), session_id),
        input_messages_key="input", history_messages_key="history",
    )
    ```

    ``messages`` is the full log of the session, verbatim, tool calls included. The memory holds the
    words of the user and of the assistant in every session of the namespace, within its bounds.

    Args:
        memory: The open memory; stays the caller's to close.
        namespace: Namespace of the memory.
        session_id: Id of the conversation.

    Raises:
        InvalidInputError: The namespace or the session id cannot be one.
    """

    def __init__(
        self,
        memory: EntropicMemory,
        namespace: Sequence[str],
        session_id: str,
    ) -> None:
        super().__init__()
        self._session = Session(memory, namespace, session_id, "langchain")

    @property
    @override
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """Log of the session, oldest message first."""
        dumped = []
        for entry in self._session.entries():
            data = {**entry.value["data"], "content": entry.value["content"]}
            dumped.append({"type": entry.value["type"], "data": data})
        return messages_from_dict(dumped)

    @override
    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Log messages, and remember the words of the user and the assistant.

        A message whose id and text are in the log is not logged again: a turn that is tried anew is
        stored once.
        """
        logged: set[tuple[str, str]] = set()
        if any(message.id for message in messages):
            logged = {_identity(message) for message in self.messages if message.id}
        fresh = [message for message in messages if _identity(message) not in logged]
        self._session.append([_entry(message) for message in fresh])

    @override
    def clear(self) -> None:
        """Erase the session: its log, its messages and everything that rests on them alone."""
        self.erase()

    def erase(self) -> ErasureReceipt:
        """Do as `clear`, and return a receipt."""
        return self._session.clear()


def _identity(message: BaseMessage) -> tuple[str, str]:
    """Return the id and the text of a message: an edited one may keep its id."""
    return message.id or "", text_of(message)


def _entry(message: BaseMessage) -> Entry:
    data: dict[str, Any] = as_json(message_to_dict(message)["data"])
    content = data.pop("content")
    text = own_words(message)
    return Entry(
        value={"type": message.type, "content": content, "data": data},
        text=text or "",
        role=role_of(message),
        text_key="content" if text is not None and content == text else None,
        metadata=speaker_metadata(message),
    )
