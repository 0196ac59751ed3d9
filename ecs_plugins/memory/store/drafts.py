"""What callers may hand to ``add``, brought to one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.messages import NewMessage

Draft: TypeAlias = str | NewMessage | Mapping[str, object]

_TEXT = ("content", "text")
_KEYS = ("role", "metadata", "label", "writer", "at", "ttl")
_KNOWN = frozenset((*_TEXT, *_KEYS))


def drafted(messages: Draft | Sequence[Draft], **defaults: object) -> list[NewMessage]:
    """Messages in one form, each with the defaults for what it does not say.

    Raises:
        InvalidInputError: Something is no message.
    """
    given = [messages] if isinstance(messages, str | NewMessage | Mapping) else list(messages)
    said = {key: value for key, value in defaults.items() if value is not None}
    return [_draft(message, said) for message in given]


def _draft(message: Draft, defaults: dict[str, object]) -> NewMessage:
    if isinstance(message, NewMessage):
        return message
    if isinstance(message, str):
        return NewMessage(message, **defaults)  # type: ignore[arg-type]
    if type(message) is not dict and not isinstance(message, Mapping):
        raise InvalidInputError(f"a message is a text, a NewMessage or a mapping, got {message!r}")
    if not _KNOWN.issuperset(message):
        strange = next(key for key in message if key not in _KNOWN)
        raise InvalidInputError(
            f"a message has no key {str(strange)!r}; use content, {', '.join(_KEYS)}"
        )
    said = {k: value for k, value in message.items() if value is not None and k not in _TEXT}
    text = message.get("content", message.get("text"))
    return NewMessage(text, **(defaults | said))  # type: ignore[arg-type]
