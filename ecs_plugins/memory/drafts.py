"""Drafts: texts, mappings and messages of other packages, as callers pass them to ``add``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.near_texts import word_list
from ecs_plugins.memory.store.messages import NewMessage

Draft: TypeAlias = str | NewMessage | Mapping[str, object] | tuple[str, str] | object
"""Argument of ``add``: a text, a `NewMessage`, a mapping as chat models take it, a
pair of a role and a text, or a message of LangChain or LlamaIndex."""

_ATTRIBUTES = ("role", "metadata", "writer", "at", "ttl")
_KEYS = word_list(
    """
    content text role metadata writer at ttl name type id status example artifact
    additional_kwargs response_metadata usage_metadata reasoning_content annotations audio
    tool_calls invalid_tool_calls tool_call_id function_call refusal
    """
)
"""Keys of messages; another one is probably mistyped."""

_CALLS = ("tool_calls", "invalid_tool_calls", "tool_call_id", "function_call", "refusal")
_ROLES = {"human": "user", "ai": "assistant", "chatbot": "assistant", "model": "assistant"}
_PAIR_ROLES = ("user", "human", "assistant", "ai", "system", "developer", "tool", "function")


def drafted(messages: Draft | Sequence[Draft], **defaults: object) -> list[NewMessage]:
    """Return messages in one form, without those that only call tools.

    Args:
        messages: One, or several. ``("user", "text")`` is one.
        **defaults: Attributes for what a message does not say.

    Raises:
        InvalidInputError: One of them cannot be kept; the error names it and the reason.
    """
    given = {key: value for key, value in defaults.items() if value is not None}
    if _is_one(messages):
        messages = [messages]
    elif not isinstance(messages, Iterable):
        raise InvalidInputError(f"messages are texts or mappings, got {messages!r:.80}")
    drafts: list[NewMessage] = []
    for number, message in enumerate(messages):
        try:
            draft = _draft(message, given)
        except InvalidInputError as error:
            raise InvalidInputError(f"message {number} of the batch: {error}") from None
        if draft is not None:
            drafts.append(draft)
    return drafts


def moment(at: object) -> object:
    """Return a time as seconds, from a `datetime` or an ISO text with a zone; else as it is."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InvalidInputError(
                f"at is no time: {at!r:.80}; write it as 2025-01-31T10:00:00+00:00"
            ) from None
    if not isinstance(at, datetime):
        return at
    if at.tzinfo is None:
        written = at.isoformat()
        raise InvalidInputError(
            f"at is {written}, without a zone; write {written}+00:00, or give seconds"
        )
    return at.timestamp()


def _is_one(messages: object) -> bool:
    """Return True for one message, False for a list."""
    is_plain = isinstance(messages, str | NewMessage | Mapping)
    return is_plain or _is_pair(messages) or hasattr(messages, "content")


def _is_pair(message: object) -> bool:
    """Return True for a role with a text, LangChain's shorthand for a message."""
    if not isinstance(message, tuple) or len(message) != 2:
        return False
    return message[0] in _PAIR_ROLES


def _draft(message: Draft, defaults: Mapping[str, object]) -> NewMessage | None:
    """Return one message in one form; None if it says nothing in words."""
    if isinstance(message, NewMessage):
        return message
    fields = _fields_of(message)
    content = fields.get("content", fields.get("text"))
    text = text_of(content)
    is_silent = not isinstance(content, str) or any(fields.get(key) for key in _CALLS)
    if not text and is_silent:
        return None
    own = {key: fields[key] for key in _ATTRIBUTES if fields.get(key) is not None}
    attributes: dict[str, Any] = {**defaults, **own}
    attributes["at"] = moment(attributes.get("at"))
    if fields.get("name") is not None:
        metadata = attributes.get("metadata") or {}
        attributes["metadata"] = {"name": fields["name"], **metadata}
    return NewMessage(text, **attributes)


def _fields_of(message: Any) -> Mapping[str, Any]:
    """Return a message as the mapping that chat models take, with its role under one name."""
    if isinstance(message, str):
        return {"content": message}
    if _is_pair(message):
        fields = {"role": message[0], "content": message[1]}
    elif isinstance(message, Mapping):
        fields = dict(message)
        for key in fields.keys() - _KEYS:
            raise InvalidInputError(f"a message has no key {key!r}; use content and {_ATTRIBUTES}")
    elif hasattr(message, "content"):
        carried = getattr(message, "additional_kwargs", {})
        role = getattr(message, "role", None) or getattr(message, "type", None)
        fields = {"content": message.content, "role": getattr(role, "value", role)}
        for key in ("name", *_CALLS):
            fields[key] = getattr(message, key, None) or carried.get(key)
    else:
        raise InvalidInputError(
            "a message is a text, a mapping with content and role, a pair of role and text, or a "
            f"message of LangChain or LlamaIndex, got {message!r:.80}"
        )
    kind = fields.get("type")
    if fields.get("role") is None and kind != "message":  # a message of LangChain's, written down
        fields["role"] = kind
    fields["role"] = role_named(fields["role"])
    return fields


def role_named(name: Any) -> Any:
    """Return the role under one name for all frameworks; anything but a text stays as it is.

    >>> role_named("AIMessageChunk")
    'assistant'
    """
    if not isinstance(name, str):
        return name
    of_whole = name.removesuffix("MessageChunk")
    if of_whole != name:
        name = of_whole.lower()
    return _ROLES.get(name, name)


def text_of(content: object) -> Any:
    """Return the text of a content: its text blocks, joined by spaces. Other values stay."""
    if content is None:
        return ""
    if not isinstance(content, list | tuple):
        return content
    texts = []
    for block in content:
        text = block.get("text") if isinstance(block, Mapping) else block
        if isinstance(text, str):
            texts.append(text)
    return " ".join(texts)
