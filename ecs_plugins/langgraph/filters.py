"""Filters of store searches, with the meaning that LangGraph's reference store gives them.

``{"kind": "note", "meta": {"year": {"$gte": 2020}}}``: nested objects match key by key, lists
element by element. Where the reference store fails (ordering something that is no number), texts
are ordered as texts and anything else does not match.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ecs_plugins.errors import InvalidInputError

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS = ("$eq", "$ne", *_ORDER)


def checked(condition: Mapping[str, Any]) -> None:
    """Refuse a filter with an operator that does not exist.

    Raises:
        InvalidInputError: It has one.
    """
    for wanted in condition.values():
        if isinstance(wanted, Mapping):
            if any(str(name).startswith("$") for name in wanted):
                unknown = [str(name) for name in wanted if name not in _OPERATORS]
                if unknown:
                    raise InvalidInputError(
                        f"unknown operator {unknown[0]!r}; use one of {', '.join(_OPERATORS)}"
                    )
            else:
                checked(wanted)


def matches(value: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Whether a value meets every condition."""
    return all(_meets(value.get(key), wanted) for key, wanted in condition.items())


def _meets(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and matches(value, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_meets(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compares(value: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return bool(value == operand)
    if name == "$ne":
        return bool(value != operand)
    one, other = _number(value), _number(operand)
    if one is not None and other is not None:
        return _ORDER[name](one, other)
    if isinstance(value, str) and isinstance(operand, str):
        return _ORDER[name](value, operand)
    return False


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
