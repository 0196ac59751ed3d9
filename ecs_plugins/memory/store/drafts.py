"""What callers may hand to ``add``, brought to one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.messages import NewMessage

Draft: TypeAlias = str | NewMessage | Mapping[str, object]

_TEXT = ("content", "text")
_KEYS = ("role", "metadata", "label", "writer", "at", "ttl")


def drafted(messages: Draft | Sequence[Draft], **defaults: object) -> list[NewMessage]:
    """Messages in one form, each with the defaults for what it does not say.

    Raises:
        InvalidInputError: Something is no message.
    """
    given = [messages] if isinstance(messages, str | NewMessage | Mapping) else list(messages)
    said = {key: value for key, value in defaults.items() if value is not None}
    return [_draft(message, said) for message in given]


def _draft(message: Draft, defaults: Mapping[str, object]) -> NewMessage:
    if isinstance(message, NewMessage):
        return message
    if isinstance(message, str):
        return NewMessage(message, **defaults)  # type: ignore[arg-type]
    if type(message) is not dict and not isinstance(message, Mapping):
        raise InvalidInputError(f"a message is a text, a NewMessage or a mapping, got {message!r}")
    values = dict(defaults)
    for key, value in message.items():
        if key in _KEYS:
            if value is not None:
                values[key] = value
        elif key not in _TEXT:
            raise InvalidInputError(
                f"a message has no key {str(key)!r}; use content, {', '.join(_KEYS)}"
            )
    text = message.get("content", message.get("text"))
    return NewMessage(text, **values)  # type: ignore[arg-type]
