"""LangChain messages as the middlewares see them: turns, questions, views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage


def last_question(messages: Sequence[BaseMessage]) -> int | None:
    """Index of the last message of the user."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage):
            return index
    return None


def turns_of(messages: Sequence[AnyMessage]) -> list[list[AnyMessage]]:
    """Messages cut before each message of the user; tool calls stay with their results."""
    turns: list[list[AnyMessage]] = []
    for message in messages:
        if not turns or isinstance(message, HumanMessage):
            turns.append([])
        turns[-1].append(message)
    return turns


def with_note(message: HumanMessage, note: str) -> HumanMessage:
    """A copy of a user's message with a note before what the user says."""
    content: str | list[Any]
    if isinstance(message.content, str):
        content = f"{note}\n\n{message.content}"
    else:
        content = [{"type": "text", "text": f"{note}\n\n"}, *message.content]
    return message.model_copy(update={"content": content})


def transcript(messages: Sequence[BaseMessage]) -> str:
    """What was said in some messages, for a model that judges whether it still matters."""
    return "\n".join(line for message in messages if (line := _line(message)))


def _line(message: BaseMessage) -> str:
    text = str(message.text).strip()
    if isinstance(message, ToolMessage):
        return f"{message.name or 'tool'}: {text}"
    if isinstance(message, AIMessage):
        calls = "; ".join(f"{call['name']}({call['args']})" for call in message.tool_calls)
        return f"assistant: {' '.join(part for part in (text, calls) if part)}"
    return f"{'user' if isinstance(message, HumanMessage) else message.type}: {text}"
