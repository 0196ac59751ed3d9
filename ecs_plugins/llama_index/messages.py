"""Messages of LlamaIndex: authors, and texts for a model."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ContentBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from ecs_plugins.common.inert import without_marks
from ecs_plugins.common.text import well_formed
from ecs_plugins.integrations.notes import without_notes
from ecs_plugins.integrations.plain import as_json
from ecs_plugins.integrations.sessions import Entry
from ecs_plugins.memory.store.items import StoredItem

_log = logging.getLogger(__name__)

_ASSISTANT = (MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL)

_SCRATCHPAD = re.compile(r"^(?:Thought|Observation):", re.MULTILINE)


def is_user(message: ChatMessage) -> bool:
    """Return True if the user said it."""
    return message.role == MessageRole.USER


def text_of(message: ChatMessage) -> str:
    """Return the text of a message."""
    texts = [block.text for block in message.blocks if isinstance(block, TextBlock)]
    return "\n".join(texts)


def visible_texts(messages: Sequence[ChatMessage]) -> set[str]:
    """Return the texts of messages, as a model reads them and as they are remembered."""
    texts = {text_of(message) for message in messages}
    for message in messages:
        own = without_notes(own_words(message))
        texts.add(own or "")
    return texts


def with_note(
    messages: list[ChatMessage],
    note: str,
    question: int | None,
) -> list[ChatMessage]:
    """Return the messages with a block of notes before the question, or as the last message."""
    if not note:
        return messages
    if question is None:
        return [*messages, ChatMessage(role="user", content=note)]
    message = messages[question]
    blocks = [TextBlock(text=f"{note}\n\n"), *message.blocks]
    shown = list(messages)
    shown[question] = message.model_copy(update={"blocks": blocks}, deep=True)
    return shown


def without_marks_in(message: ChatMessage) -> ChatMessage:
    """Return a message in which nothing looks like the tags of recalled notes."""
    blocks = [_inert_block(block) for block in message.blocks]
    if blocks == message.blocks:
        return message
    return message.model_copy(update={"blocks": blocks})


def _inert_block(block: ContentBlock) -> ContentBlock:
    if not isinstance(block, TextBlock):
        return block
    text = without_marks(block.text)
    return block.model_copy(update={"text": text})


def own_words(message: ChatMessage) -> str:
    """Return the text of a message; of a `ReActAgent`, the text after the last ``Answer:``.

    The notes hold what tools returned, which anybody may have written, ``Answer:`` included. The
    answer is their last part.
    """
    text = text_of(message)
    if message.role not in _ASSISTANT or not _SCRATCHPAD.search(text):
        return text
    _, mark, answer = f"\n{text}".rpartition("\nAnswer:")
    return answer if mark else ""


def remembered(message: ChatMessage) -> tuple[str | None, str | None]:
    """Return ``user`` or ``assistant``, and their words; None for all others."""
    if is_user(message):
        return "user", without_notes(text_of(message))
    if message.role not in _ASSISTANT or _calls_tools(message):
        return None, None
    return "assistant", without_notes(own_words(message))


def _calls_tools(message: ChatMessage) -> bool:
    if message.additional_kwargs.get("tool_calls"):
        return True
    return any(isinstance(block, ToolCallBlock) for block in message.blocks)


def speaker_metadata(message: ChatMessage, role: str) -> dict[str, object]:
    """Return the speaker: ``role``, and ``name`` if the message has one."""
    metadata: dict[str, object] = {"role": role}
    name = message.additional_kwargs.get("name")
    if isinstance(name, str) and name:
        metadata["name"] = well_formed(name)
    return metadata


def all_text(message: ChatMessage) -> str:
    """Return all that a model reads of a message, to count its tokens."""
    parts = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif isinstance(block, ThinkingBlock):
            parts.append(block.content or "")
        elif isinstance(block, ToolCallBlock):
            parts.append(f"{block.tool_name}({block.tool_kwargs})")
    calls = message.additional_kwargs.get("tool_calls")
    if calls:
        parts.append(str(calls))
    return "\n".join(parts)


def log_entry(message: ChatMessage) -> Entry:
    """Return the entry of a message in the log of its session."""
    role, text = remembered(message)
    data = _data_of(message)
    value: dict[str, Any] = {"data": data}
    if not role or not text:
        return Entry(value)
    text_key, blocks = None, data["blocks"]
    if len(blocks) == 1 and blocks[0].get("text") == text:
        value["content"] = blocks[0].pop("text")
        text_key = "content"
    return Entry(value, text, role, text_key, speaker_metadata(message, role))


def _data_of(message: ChatMessage) -> dict[str, Any]:
    """Return the fields of a message in JSON types."""
    try:
        data: dict[str, Any] = as_json(message.model_dump(mode="json"))
    except ValueError:  # pydantic knows no form for something in it
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
