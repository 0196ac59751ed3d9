"""What callers may hand to ``add``, brought to one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.messages import NewMessage

Draft: TypeAlias = str | NewMessage | Mapping[str, object]

_KEYS = ("role", "metadata", "label", "writer", "at", "ttl")


def drafted(messages: Draft | Sequence[Draft], **defaults: object) -> list[NewMessage]:
    """Messages in one form, each with the defaults for what it does not say.

    Raises:
        InvalidInputError: Something is no message.
    """
    given = [messages] if isinstance(messages, str | NewMessage | Mapping) else list(messages)
    return [_draft(message, defaults) for message in given]


def _draft(message: Draft, defaults: Mapping[str, object]) -> NewMessage:
    if isinstance(message, NewMessage):
        return message
    values = {key: value for key, value in defaults.items() if value is not None}
    if isinstance(message, str):
        text: object = message
    elif isinstance(message, Mapping):
        text = message.get("content", message.get("text"))
        unknown = set(message) - {"content", "text", *_KEYS}
        if unknown:
            raise InvalidInputError(
                f"a message has no key {sorted(map(str, unknown))[0]!r}; "
                f"use content, {', '.join(_KEYS)}"
            )
        values |= {key: message[key] for key in _KEYS if message.get(key) is not None}
    else:
        raise InvalidInputError(f"a message is a text, a NewMessage or a mapping, got {message!r}")
    return NewMessage(text, **values)  # type: ignore[arg-type]
