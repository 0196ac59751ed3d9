"""Checks of argument types and texts; errors name the argument."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from ecs_plugins.errors import InvalidInputError

T = TypeVar("T")


def check_kind(name: str, value: object, kind: type[T]) -> T:
    """Return a value of class ``kind``.

    Raises:
        InvalidInputError: The value has another class.
    """
    if isinstance(value, kind):
        return value
    given = type(value).__name__
    raise InvalidInputError(f"{name} must be of the kind {kind.__name__}, got one of {given}")


def check_several(name: str, values: Iterable[T]) -> tuple[T, ...]:
    """Return several values as a tuple. A text counts as one value.

    Raises:
        InvalidInputError: ``values`` is a single value.
    """
    if not isinstance(values, str | bytes):
        with suppress(TypeError):
            return tuple(values)
    given = type(values).__name__
    raise InvalidInputError(f"{name} must be several, such as a list, got one of {given}")


def check_each(name: str, values: Iterable[object], kind: type[T]) -> tuple[T, ...]:
    """Return several values of class ``kind`` as a tuple.

    Raises:
        InvalidInputError: ``values`` is a single value, or one of them has another class.
    """
    several = check_several(name, values)
    return tuple(check_kind(f"each of {name}", value, kind) for value in several)


def check_text(name: str, value: object) -> str:
    """Return a text that every database and file can store.

    Raises:
        InvalidInputError: The value is no text, or has NUL or lone surrogates.
    """
    text = check_kind(name, value, str)
    if "\0" in text or not is_utf8(text):
        given = shown(text, 60)
        raise InvalidInputError(f"{name} must be without NUL and lone surrogates, got {given}")
    return text


def is_utf8(text: str) -> bool:
    """Return True if a text has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object, most: int) -> str:
    """Return the first characters of a value's ``repr`` for an error message."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of many thousand digits
        text = f"a very long {type(value).__name__}"
    return text[:most]
