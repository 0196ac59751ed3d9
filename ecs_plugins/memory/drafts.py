"""Drafts: texts, mappings and messages of other packages, as callers pass them to ``add``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.messages import NewMessage

Draft: TypeAlias = str | NewMessage | Mapping[str, object] | tuple[str, str] | object
"""Argument of ``add``: a text, a `NewMessage`, a mapping as chat models take it, a
pair of a role and a text, or a message of LangChain or LlamaIndex."""

_KEYS = ("content", "text", "role", "metadata", "writer", "at", "ttl", "name")
_OF_CALLS = (
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_id",
    "function_call",
    "refusal",
    "audio",
    "annotations",
)
"""Keys of messages of chat models in place of which they may say nothing."""
_BESIDE = (
    "type",
    "id",
    "status",
    "example",
    "artifact",
    "additional_kwargs",
    "response_metadata",
    "usage_metadata",
    "reasoning_content",
)
"""Keys of written down messages that are nothing to be remembered."""
_CALLING = ("tool", "call", "refusal")
"""Parts of the names of blocks that call a tool, answer a call, or refuse."""
_ROLES = {"human": "user", "ai": "assistant", "chatbot": "assistant", "model": "assistant"}
_PAIR_ROLES = ("user", "human", "assistant", "ai", "system", "developer", "tool", "function")
_OF_A_CHUNK = "MessageChunk"


def drafted(messages: Draft | Sequence[Draft], **defaults: object) -> list[NewMessage]:
    """Return messages in one form, without those that only call tools.

    Args:
        messages: One, or several. ``("user", "text")`` is one.
        **defaults: Attributes for what a message does not say.

    Raises:
        InvalidInputError: Of several, it says which one cannot be kept, and why; or a role stands
            among them, as if it were a text.
    """
    given = {key: value for key, value in defaults.items() if value is not None}
    if "at" in given:
        given["at"] = moment(given["at"])
    if _is_one(messages):
        only = _draft(messages, given)
        return [] if only is None else [only]
    if not isinstance(messages, Iterable):
        raise InvalidInputError(f"messages are texts or mappings, got {messages!r:.80}")
    _check_roles(messages)
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
    if isinstance(messages, str | NewMessage | Mapping) or _is_pair(messages):
        return True
    return _is_of_framework(messages)


def _check_roles(messages: Iterable[object]) -> None:
    """Refuse a role and a text in a form that is taken for two texts."""
    if not isinstance(messages, Sequence) or len(messages) != 2:
        return
    role, text = messages
    if role in _PAIR_ROLES and not _is_one(text):
        raise InvalidInputError(f"the text of a pair of role and text is a text, got {text!r:.80}")
    if role in _PAIR_ROLES and isinstance(text, str):
        raise InvalidInputError(f"a list holds messages; write ({role!r}, {text!r:.80}) for one")


def _is_pair(message: object) -> bool:
    """Return True for a role with a text, LangChain's shorthand for a message."""
    if not isinstance(message, tuple) or len(message) != 2:
        return False
    role, text = message
    return role in _PAIR_ROLES and isinstance(text, str)


def _is_of_framework(message: object) -> bool:
    """Return True for a message of LangChain (with a ``type``) or LlamaIndex (with a ``role``)."""
    has_kind = hasattr(message, "type") or hasattr(message, "role")
    return has_kind and hasattr(message, "content")


def _draft(message: Draft, defaults: Mapping[str, object]) -> NewMessage | None:
    """Return one message in one form; None if it only calls tools."""
    if isinstance(message, NewMessage):
        return message
    if isinstance(message, str):
        return NewMessage(message, **defaults)  # type: ignore[arg-type]
    fields = _fields_of(message)
    _check_keys(fields)
    content = fields.get("content", fields.get("text"))
    text = text_of(content)
    if not text and (_has_calls(content) or any(key in fields for key in _OF_CALLS)):
        return None
    own = _attributes(fields)
    if "at" in own:
        own["at"] = moment(own["at"])
    attributes = {**defaults, **own}
    name = fields.get("name")
    if name is not None:
        metadata = attributes.get("metadata") or {}
        attributes["metadata"] = {"name": name, **metadata}
    return NewMessage(text, **attributes)


def _check_keys(fields: Mapping[str, object]) -> None:
    for key in fields:
        if key not in _KEYS and key not in _OF_CALLS and key not in _BESIDE:
            keys = ", ".join(_KEYS)
            raise InvalidInputError(f"a message has no key {str(key)!r}; use {keys}")


_ATTRIBUTES = ("role", "metadata", "writer", "at", "ttl")


def _attributes(fields: Mapping[str, object]) -> dict[str, Any]:
    """Return the attributes of a `NewMessage` in a mapping, without its text."""
    given = {key: fields.get(key) for key in _ATTRIBUTES}
    kind = fields.get("type")
    if given["role"] is None and kind != "message":  # a message of LangChain's, written down
        given["role"] = kind
    given["role"] = role_named(given["role"])
    return {key: value for key, value in given.items() if value is not None}


def _fields_of(message: object) -> Mapping[str, object]:
    """Return a message as the mapping that chat models take."""
    if isinstance(message, Mapping):
        return message
    if isinstance(message, tuple) and _is_pair(message):
        role, text = message
        return {"role": role, "content": text}
    if _is_of_framework(message):
        return _framework_fields(message)
    raise InvalidInputError(
        f"a message is a text, a NewMessage, a mapping with content and role, a pair of role and "
        f"text, or a message of LangChain or LlamaIndex, got {message!r:.80}"
    )


def _framework_fields(message: Any) -> dict[str, object]:
    """Return a message of LangChain or LlamaIndex as the mapping that chat models take."""
    named = getattr(message, "role", None) or getattr(message, "type", "")
    fields: dict[str, object] = {"content": message.content}
    fields["role"] = str(getattr(named, "value", named))
    carried = getattr(message, "additional_kwargs", {})
    for key in ("name", "tool_calls", "invalid_tool_calls"):
        value = getattr(message, key, None) or carried.get(key)
        if value:
            fields[key] = value
    if _has_calls(getattr(message, "blocks", None)):
        fields.setdefault("tool_calls", True)
    return fields


def role_named(name: Any) -> Any:
    """Return the role under one name for all frameworks; anything but a text stays as it is.

    >>> role_named("AIMessageChunk")
    'assistant'
    """
    if not isinstance(name, str):
        return name
    of_whole = name.removesuffix(_OF_A_CHUNK)
    if of_whole != name:
        name = of_whole.lower()
    return _ROLES.get(name, name)


def _has_calls(content: object) -> bool:
    """Return True if a content has blocks that call tools or return their results."""
    if not isinstance(content, list | tuple):
        return False
    for block in content:
        kind = getattr(block, "block_type", "")
        if isinstance(block, Mapping):
            kind = block.get("type", "")
        if any(part in str(kind) for part in _CALLING):
            return True
    return False


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
