"""Metadata filters: equality, or LangGraph's comparison operators, evaluated in Python.

``{"lang": "en", "year": {"$gte": 2020}}``: every key must match. A key that is missing matches
only ``$ne``. Ordering compares numbers with numbers and texts with texts; anything else does not
match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ecs_plugins.errors import InvalidInputError

Filter = Mapping[str, object]

_MISSING = object()


def _ordered(compare: Callable[[object, object], bool]) -> Callable[[object, object], bool]:
    def test(value: object, wanted: object) -> bool:
        numbers = isinstance(value, int | float) and isinstance(wanted, int | float)
        texts = isinstance(value, str) and isinstance(wanted, str)
        return (numbers or texts) and compare(value, wanted)

    return test


_OPERATORS: Mapping[str, Callable[[object, object], bool]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": _ordered(lambda value, wanted: value > wanted),  # type: ignore[operator]
    "$gte": _ordered(lambda value, wanted: value >= wanted),  # type: ignore[operator]
    "$lt": _ordered(lambda value, wanted: value < wanted),  # type: ignore[operator]
    "$lte": _ordered(lambda value, wanted: value <= wanted),  # type: ignore[operator]
    "$in": lambda value, wanted: isinstance(wanted, list | tuple) and value in wanted,
}


def checked_filter(condition: Filter) -> Filter:
    """Return the filter, or refuse one that could not mean what it says.

    Raises:
        InvalidInputError: An unknown operator, or a mapping that mixes operators and keys.
    """
    if not isinstance(condition, Mapping):
        raise InvalidInputError(f"a filter is a mapping of metadata keys, got {condition!r}")
    for key, wanted in condition.items():
        if isinstance(wanted, Mapping) and any(str(name).startswith("$") for name in wanted):
            unknown = [name for name in wanted if name not in _OPERATORS]
            if unknown:
                raise InvalidInputError(
                    f"unknown operator {unknown[0]!r} for {key!r}; use one of "
                    f"{', '.join(_OPERATORS)}"
                )
    return condition


def matches(metadata: Mapping[str, object], condition: Filter) -> bool:
    """Whether metadata meet every condition of a checked filter."""
    for key, wanted in condition.items():
        value = metadata.get(key, _MISSING)
        if isinstance(wanted, Mapping) and wanted and all(name in _OPERATORS for name in wanted):
            for name, operand in wanted.items():
                if value is _MISSING and name != "$ne":
                    return False
                if not _OPERATORS[str(name)](value, operand):
                    return False
        elif value is _MISSING or value != wanted:
            return False
    return True
