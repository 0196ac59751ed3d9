"""Values of frameworks as JSON that a memory can hold: nothing is lost because of one odd value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from ecs_plugins.common.text import well_formed


def as_json(value: Any) -> Any:
    """A value in JSON types.

    Numbers that are not finite become None, dates and the like texts, objects of pydantic mappings,
    and what has no such form its ``repr``. Halves of surrogate pairs become U+FFFD.

    Raises:
        RecursionError: The value contains itself.
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
    """What pydantic makes of an object, or its ``repr``."""
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
    """What NumPy and torch make of their numbers, or the ``repr``."""
    to_list = getattr(value, "tolist", None)
    if callable(to_list) and not isinstance(value, type):
        return to_list()
    return repr(value)
