"""Messages and values of frameworks: turns, and JSON where one odd value loses no other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from ecs_plugins.common.text import well_formed

MessageT = TypeVar("MessageT")


def last_index(
    messages: Sequence[MessageT],
    wanted: Callable[[MessageT], bool],
) -> int | None:
    """Return the index of the last message that is wanted, such as the user's latest."""
    for index in reversed(range(len(messages))):
        if wanted(messages[index]):
            return index
    return None


def turns(
    messages: Sequence[MessageT],
    begins: Callable[[MessageT], bool],
) -> list[list[int]]:
    """Return the indices of messages by turn; tool calls stay with their results."""
    cut: list[list[int]] = []
    for index, message in enumerate(messages):
        if not cut or begins(message):
            cut.append([])
        cut[-1].append(index)
    return cut


def as_json(value: Any) -> Any:
    """Return a value in JSON types.

    Numbers that are not finite become None, dates become texts, objects of pydantic become
    mappings, and all others their ``repr``. Halves of surrogate pairs become U+FFFD.
    """
    if isinstance(value, str):
        return well_formed(str(value))
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        plain = {}
        for key, each in value.items():
            plain[_key(key)] = as_json(each)
        return plain
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(each) for each in value]
    return _plain(value)


def _key(key: object) -> str:
    name = key if isinstance(key, str) else str(key)
    return well_formed(name)


def _plain(value: object) -> Any:
    """Return an object as pydantic writes it, or its ``repr``."""
    try:
        plain = to_jsonable_python(
            value,
            inf_nan_mode="null",
            bytes_mode="base64",
            fallback=_named,
        )
    except (ValueError, TypeError, UnicodeError):
        return well_formed(repr(value))
    if type(plain) is type(value):
        return plain
    return as_json(plain)


def _named(value: Any) -> Any:
    """Return numbers of NumPy and torch as lists, and others as their ``repr``."""
    to_list = getattr(value, "tolist", None)
    if callable(to_list) and not isinstance(value, type):
        return to_list()
    return repr(value)
