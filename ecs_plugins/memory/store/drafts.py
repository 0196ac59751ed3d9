"""What callers may hand to ``add``, brought to one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.messages import NewMessage

Draft: TypeAlias = str | NewMessage | Mapping[str, object]

_TEXT = ("content", "text")
_KEYS = ("role", "metadata", "writer", "at", "ttl")
_KNOWN = frozenset((*_TEXT, *_KEYS))


def drafted(
    messages: Draft | Sequence[Draft],
    *,
    role: str | None = None,
    metadata: Mapping[str, object] | None = None,
    writer: str | None = None,
    at: float | None = None,
    ttl: float | None = None,
) -> list[NewMessage]:
    """Messages in one form, each with the defaults for what it does not say.

    Raises:
        InvalidInputError: Something is no message.
    """
    given = [messages] if isinstance(messages, str | NewMessage | Mapping) else list(messages)
    role = "user" if role is None else role
    defaults = (role, {} if metadata is None else metadata, writer, at, ttl)
    return [_draft(message, defaults) for message in given]


_Said: TypeAlias = tuple[str, Mapping[str, object], str | None, float | None, float | None]


def _draft(message: Draft, defaults: _Said) -> NewMessage:
    if isinstance(message, NewMessage):
        return message
    if isinstance(message, str):
        return NewMessage(message, *defaults)
    if type(message) is not dict and not isinstance(message, Mapping):
        raise InvalidInputError(f"a message is a text, a NewMessage or a mapping, got {message!r}")
    if not _KNOWN.issuperset(message):
        strange = next(key for key in message if key not in _KNOWN)
        raise InvalidInputError(
            f"a message has no key {str(strange)!r}; use content, {', '.join(_KEYS)}"
        )
    if None in message.values():  # which says nothing
        message = {key: value for key, value in message.items() if value is not None}
    role, metadata, writer, at, ttl = defaults
    said = message.get
    return NewMessage(
        said("content", said("text")),  # type: ignore[arg-type]
        said("role", role),  # type: ignore[arg-type]
        said("metadata", metadata),  # type: ignore[arg-type]
        said("writer", writer),  # type: ignore[arg-type]
        said("at", at),  # type: ignore[arg-type]
        said("ttl", ttl),  # type: ignore[arg-type]
    )
