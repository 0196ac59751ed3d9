"""LlamaIndex messages as the memory classes see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock

from ecs_plugins.integrations.conversation import Entry
from ecs_plugins.integrations.recall import said
from ecs_plugins.memory.store.items import StoredItem

_USER = (MessageRole.USER,)
_ASSISTANT = (MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL)


def text_of(message: ChatMessage) -> str:
    """The text of a message, without what is no text."""
    return "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))


def role_of(message: ChatMessage) -> str | None:
    """``user`` or ``assistant`` for what is to be remembered; None for all else."""
    if message.role in _USER:
        return "user"
    calls = message.additional_kwargs.get("tool_calls") or any(
        isinstance(block, ToolCallBlock) for block in message.blocks
    )
    return "assistant" if message.role in _ASSISTANT and not calls else None


def last_question(messages: Sequence[ChatMessage]) -> int | None:
    """Index of the last message of the user."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role in _USER:
            return index
    return None


def to_entry(message: ChatMessage) -> Entry:
    """A message as an entry of the log."""
    role = role_of(message)
    text = said(text_of(message)) if role else None
    data: dict[str, Any] = message.model_dump(mode="json")
    only = data["blocks"][0] if len(data["blocks"]) == 1 else {}
    value: dict[str, Any] = {"data": data}
    key = None
    if text is not None and only.get("block_type") == "text" and only.get("text") == text:
        data["blocks"][0] = {name: part for name, part in only.items() if name != "text"}
        value["content"], key = text, "content"
    return Entry(value=value, text=text or "", role=role or "other", text_key=key)


def to_message(item: StoredItem) -> ChatMessage:
    """The message behind an entry of the log."""
    data = item.value["data"]
    if "content" in item.value:
        data["blocks"][0]["text"] = item.value["content"]
    return ChatMessage.model_validate(data)


def with_note(message: ChatMessage, note: str) -> ChatMessage:
    """A copy of a message with a note before what it says."""
    return message.model_copy(
        update={"blocks": [TextBlock(text=f"{note}\n\n"), *message.blocks]}, deep=True
    )


def turns_of(messages: Sequence[ChatMessage]) -> list[list[int]]:
    """Indices of messages, cut before each message of the user; tool calls keep their results."""
    turns: list[list[int]] = []
    for index, message in enumerate(messages):
        if not turns or message.role in _USER:
            turns.append([])
        turns[-1].append(index)
    return turns


def size_text(message: ChatMessage) -> str:
    """All that a model reads of a message, tool calls included, to count its tokens."""
    calls = [
        f"{block.tool_name}({block.tool_kwargs})"
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    asked = message.additional_kwargs.get("tool_calls")
    return "\n".join([text_of(message), *calls, *([str(asked)] if asked else [])])
