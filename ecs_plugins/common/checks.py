"""Values of the wrong kind are refused by name, before anything is done with them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from ecs_plugins.errors import InvalidInputError

T = TypeVar("T")


def check_kind(name: str, value: object, kind: type[T]) -> T:
    """Return a value of a class.

    Raises:
        InvalidInputError: It is something else.
    """
    if isinstance(value, kind):
        return value
    given = type(value).__name__
    raise InvalidInputError(f"{name} must be of the kind {kind.__name__}, got one of {given}")


def check_several(name: str, values: Iterable[T]) -> tuple[T, ...]:
    """Return what is several; a text is one.

    Raises:
        InvalidInputError: It is one thing.
    """
    if not isinstance(values, str | bytes):
        with suppress(TypeError):
            return tuple(values)
    given = type(values).__name__
    raise InvalidInputError(f"{name} must be several, such as a list, got one of {given}")


def check_each(name: str, values: Iterable[object], kind: type[T]) -> tuple[T, ...]:
    """Return several values of a class.

    Raises:
        InvalidInputError: It is one thing, or one of them is something else.
    """
    several = check_several(name, values)
    return tuple(check_kind(f"each of {name}", value, kind) for value in several)


def check_text(name: str, value: object) -> str:
    """Return a text that every database and every file can keep.

    Raises:
        InvalidInputError: It is none, or holds NUL or lone surrogates.
    """
    text = check_kind(name, value, str)
    if "\0" in text or not is_utf8(text):
        given = shown(text, 60)
        raise InvalidInputError(f"{name} must be without NUL and lone surrogates, got {given}")
    return text


def is_utf8(text: str) -> bool:
    """Whether a text has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object, most: int) -> str:
    """A value as an error shows it, with the first characters of it."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of many thousand digits
        text = f"a very long {type(value).__name__}"
    return text[:most]
