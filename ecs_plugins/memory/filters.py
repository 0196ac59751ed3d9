"""Metadata filters: equality, or LangGraph's comparison operators, evaluated in Python.

``{"lang": "en", "year": {"$gte": 2020}}``: every key must match, nested objects key by key and
lists element by element. ``"user.name"`` is ``name`` of ``user``, unless there is a key of that
very name. A key that is missing matches only ``$ne`` and ``$nin``. ``$and`` and ``$or`` stand in
place of a key and hold lists of filters. Numbers, also those written as text, are ordered as
numbers and other texts as texts; anything else does not match.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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


def _is_among(value: object, wanted: Any) -> bool:
    return value in wanted


_OPERATORS: Mapping[str, Callable[[object, object], bool]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": _ordered(lambda value, wanted: value > wanted),
    "$gte": _ordered(lambda value, wanted: value >= wanted),
    "$lt": _ordered(lambda value, wanted: value < wanted),
    "$lte": _ordered(lambda value, wanted: value <= wanted),
    "$in": _is_among,
    "$nin": lambda value, wanted: not _is_among(value, wanted),
}


_OF_LISTS = ("$in", "$nin")

JOINTS: Mapping[str, Callable[[Iterable[bool]], bool]] = {"$and": all, "$or": any}
"""What stands in place of a key and joins the filters of a list."""


def checked_filter(condition: Filter) -> Filter:
    """Return the filter; refuse one that cannot match as written.

    Raises:
        InvalidInputError: An unknown operator, one of a list without one, a mapping that mixes
            operators and keys, or what is no JSON value or no valid Unicode, which no metadata
            could hold. NaN and infinity may be compared with.
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
        if key in JOINTS:
            _check_parts(key, wanted)
        elif str(key).startswith("$"):
            joints = ", ".join(JOINTS)
            raise InvalidInputError(f"unknown operator {key!r} in place of a key; use {joints}")
        elif not isinstance(wanted, Mapping):
            continue
        elif _has_operators(wanted):
            _check_operands(key, wanted)
        else:
            _check_operators(wanted)


def _check_operands(key: str, wanted: Mapping[Any, object]) -> None:
    """Refuse operators that there are not, and those of a list that have none."""
    for name, operand in wanted.items():
        if name not in _OPERATORS:
            operators = ", ".join(_OPERATORS)
            raise InvalidInputError(
                f"unknown operator {name!r} for {key!r}; use one of {operators}"
            )
        if name in _OF_LISTS and not isinstance(operand, list | tuple):
            raise InvalidInputError(f"{name} for {key!r} holds a list, got {operand!r:.80}")


def _check_parts(joint: str, parts: object) -> None:
    """Refuse anything but a list of filters."""
    refused = f"{joint} holds a list of filters, got"
    if not isinstance(parts, list | tuple) or not parts:
        raise InvalidInputError(f"{refused} {parts!r:.80}")
    for part in parts:
        if not isinstance(part, Mapping):
            raise InvalidInputError(f"{refused} {part!r:.80} in it")
        _check_operators(part)


def without_joints(condition: Filter) -> Filter:
    """Return the conditions of a filter on single keys."""
    return {key: wanted for key, wanted in condition.items() if key not in JOINTS}


def matches(metadata: Mapping[str, object], condition: Filter) -> bool:
    """Return True if metadata meet every condition of a checked filter."""
    return all(_holds(metadata, key, wanted) for key, wanted in condition.items())


def _holds(metadata: Mapping[str, object], key: str, wanted: Any) -> bool:
    """Return True if metadata meet one condition of a filter."""
    joint = JOINTS.get(key)
    if joint is not None:
        return joint(matches(metadata, part) for part in wanted)
    return _meets(_at(metadata, key), wanted)


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
        return _meets_mapping(value, wanted)
    if not isinstance(wanted, list | tuple):
        return value == wanted
    if not isinstance(value, list | tuple) or len(value) != len(wanted):
        return False
    return all(map(_meets, value, wanted))


def _meets_mapping(value: object, wanted: Mapping[str, object]) -> bool:
    """Return True if a value meets every operator, or a nested object every condition."""
    if not _has_operators(wanted):
        return isinstance(value, Mapping) and matches(value, wanted)
    for name, operand in wanted.items():
        holds = _OPERATORS[name]
        if not holds(value, operand):
            return False
    return True


def _has_operators(wanted: Mapping[Any, object]) -> bool:
    return any(str(name).startswith("$") for name in wanted)
