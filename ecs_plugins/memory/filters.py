"""Metadata filters: equality and LangGraph's comparison operators, evaluated in Python.

``{"lang": "en", "year": {"$gte": 2020}}``: every key must match, nested objects key by key and
lists element by element. ``"user.name"`` is ``name`` of ``user``, unless there is a key of that
very name. A key that is missing matches only ``$ne``. Numbers, also those written as text, are
ordered as numbers and other texts as texts; anything else does not match.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ecs_plugins.errors import InvalidInputError

Filter = Mapping[str, object]

_MISSING = object()


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):  # compared as it is: not every integer is a float
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def test(value: object, wanted: object) -> bool:
        one = _number(value)
        other = _number(wanted)
        if one is not None and other is not None:
            return compare(one, other)
        are_texts = isinstance(value, str) and isinstance(wanted, str)
        return are_texts and compare(value, wanted)

    return test


_OPERATORS: Mapping[str, Callable[[object, object], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}


def checked_filter(condition: Filter) -> Filter:
    """Return the filter; refuse one that cannot match as written.

    Raises:
        InvalidInputError: An unknown operator, a mapping that mixes operators and keys, or a value
            that is no JSON or no valid Unicode, which no metadata could hold. NaN and infinity may
            be compared with.
    """
    if not isinstance(condition, Mapping):
        raise InvalidInputError(f"a filter is a mapping of metadata keys, got {condition!r}")
    try:
        json.dumps(condition, default=dict, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"a filter holds JSON values only: {error}") from None
    _check_operators(condition)
    return condition


def _check_operators(condition: Filter) -> None:
    for key, wanted in condition.items():
        if str(key).startswith("$"):
            raise InvalidInputError(f"operator {key!r} stands in place of a key")
        if not isinstance(wanted, Mapping):
            continue
        if not _has_operators(wanted):
            _check_operators(wanted)
            continue
        for name in wanted:
            if name not in _OPERATORS:
                names = ", ".join(_OPERATORS)
                raise InvalidInputError(f"unknown operator {name!r} for {key!r}; use {names}")


def matches(metadata: Mapping[str, object], condition: Filter) -> bool:
    """Return True if metadata meet every condition of a checked filter."""
    return all(_meets(_at(metadata, key), wanted) for key, wanted in condition.items())


def _at(metadata: object, key: str) -> object:
    """Return the value under a key, or under a path of keys; `_MISSING` if there is none."""
    if not isinstance(metadata, Mapping):
        return _MISSING
    if key in metadata or "." not in key:
        return metadata.get(key, _MISSING)
    first, _, rest = key.partition(".")
    return _at(metadata.get(first, _MISSING), rest)


def _meets(value: object, wanted: object) -> bool:
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and matches(value, wanted)
    if not isinstance(wanted, list | tuple):
        return value == wanted
    if not isinstance(value, list | tuple) or len(value) != len(wanted):
        return False
    return all(map(_meets, value, wanted))


def _has_operators(wanted: Mapping[Any, object]) -> bool:
    return any(str(name).startswith("$") for name in wanted)
