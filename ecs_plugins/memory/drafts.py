"""What callers hand to ``add``: texts, mappings, and messages as other packages have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.messages import NewMessage

Draft: TypeAlias = str | NewMessage | Mapping[str, object] | tuple[str, str] | object
"""What callers may hand to ``add``: a text, a `NewMessage`, a mapping as chat models take it, a
pair of a role and a text, or a message of LangChain or LlamaIndex."""

_KEYS = ("content", "text", "role", "metadata", "writer", "at", "ttl", "name")
_OF_CALLS = ("tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations")
"""Keys of messages of chat models that say nothing to be remembered."""
_ROLES = {"human": "user", "ai": "assistant"}
_PAIR_ROLES = ("user", "human", "assistant", "ai", "system", "tool")


def drafted(messages: Draft | Sequence[Draft], **defaults: object) -> list[NewMessage]:
    """Messages in one form; what calls tools and says nothing is left out.

    Args:
        messages: One, or several. ``("user", "text")`` is one.
        **defaults: Attributes for what a message does not say.

    Raises:
        InvalidInputError: Of several, it says which one cannot be kept, and why.
    """
    given = {key: value for key, value in defaults.items() if value is not None}
    if "at" in given:
        given["at"] = moment(given["at"])
    if _is_one(messages):
        only = _draft(messages, given)
        return [] if only is None else [only]
    if not isinstance(messages, Iterable):
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
    """A time as seconds: of a date, or of an ISO text, that say their zone; else as it is."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InvalidInputError(f"at is no time: {at!r:.80}") from None
    if not isinstance(at, datetime):
        return at
    if at.tzinfo is None:
        written = at.isoformat()
        raise InvalidInputError(
            f"at is {written}, without a zone; write {written}+00:00, or give seconds"
        )
    return at.timestamp()


def _is_one(messages: object) -> bool:
    """Whether something is one message and no list of them."""
    if isinstance(messages, str | NewMessage | Mapping) or _is_pair(messages):
        return True
    return _is_of_framework(messages)


def _is_pair(message: object) -> bool:
    """Whether it is a role and a text, LangChain's shorthand for a message."""
    if not isinstance(message, tuple) or len(message) != 2:
        return False
    role, text = message
    return role in _PAIR_ROLES and isinstance(text, str)


def _is_of_framework(message: object) -> bool:
    """Whether it is a message of LangChain (with a ``type``) or LlamaIndex (with a ``role``)."""
    has_kind = hasattr(message, "type") or hasattr(message, "role")
    return has_kind and hasattr(message, "content")


def _draft(message: Draft, defaults: Mapping[str, object]) -> NewMessage | None:
    """One message in one form; None if it calls tools and says nothing."""
    if isinstance(message, NewMessage):
        return message
    if isinstance(message, str):
        return NewMessage(message, **defaults)  # type: ignore[arg-type]
    fields = _fields_of(message)
    _check_keys(fields)
    text = _text_of(fields.get("content", fields.get("text")))
    calls = any(key in fields for key in _OF_CALLS)
    if calls and not text:
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
        if key not in _KEYS and key not in _OF_CALLS:
            keys = ", ".join(_KEYS)
            raise InvalidInputError(f"a message has no key {str(key)!r}; use {keys}")


_ATTRIBUTES = ("role", "metadata", "writer", "at", "ttl")


def _attributes(fields: Mapping[str, object]) -> dict[str, Any]:
    """The attributes of a `NewMessage` that a mapping has, without its text."""
    given = {key: fields.get(key) for key in _ATTRIBUTES}
    return {key: value for key, value in given.items() if value is not None}


def _fields_of(message: object) -> Mapping[str, object]:
    """A message as the mapping that chat models take."""
    if isinstance(message, Mapping):
        return message
    if isinstance(message, tuple) and _is_pair(message):
        role, text = message
        return {"role": _ROLES.get(role, role), "content": text}
    if _is_of_framework(message):
        return _framework_fields(message)
    raise InvalidInputError(
        f"a message is a text, a NewMessage, a mapping with content and role, a pair of role and "
        f"text, or a message of LangChain or LlamaIndex, got {message!r:.80}"
    )


def _framework_fields(message: Any) -> dict[str, object]:
    """A message of LangChain or LlamaIndex as the mapping that chat models take."""
    named = getattr(message, "role", None) or getattr(message, "type", "")
    role = str(getattr(named, "value", named))
    fields: dict[str, object] = {"content": message.content}
    fields["role"] = _ROLES.get(role, role)
    for key in ("name", "tool_calls"):
        value = getattr(message, key, None)
        if value:
            fields[key] = value
    return fields


def _text_of(content: object) -> Any:
    """The text of a content; its blocks of text, parted by spaces. What is none stays as it is."""
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
