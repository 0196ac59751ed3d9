"""Messages as a model is shown them: copies with a note, and without marks of their authors."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AnyMessage

from ecs_plugins.common.inert import without_marks

Block = str | dict[str, Any]
"""A part of a message's content."""


def without_marks_in(message: AnyMessage) -> AnyMessage:
    """A message whose author cannot pass anything off as recalled; as it is if nobody tried."""
    content = message.content
    changed: str | list[Block]
    if isinstance(content, str):
        changed = without_marks(content)
    else:
        changed = [_inert_part(part) for part in content]
    if changed == content:
        return message
    return message.model_copy(update={"content": changed})


def _inert_part(part: Block) -> Block:
    if isinstance(part, str):
        return without_marks(part)
    text = part.get("text")
    if not isinstance(text, str):
        return part
    return {**part, "text": without_marks(text)}


def with_note(message: AnyMessage, note: str) -> AnyMessage:
    """A copy of a message with a note before what it says."""
    content = message.content
    before = f"{note}\n\n"
    if isinstance(content, str):
        return message.model_copy(update={"content": before + content})
    blocks = [{"type": "text", "text": before}, *content]
    return message.model_copy(update={"content": blocks})
