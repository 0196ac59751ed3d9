"""What was measured as versioned JSON, checked field by field before it is believed.

Values are frozen dataclasses, so their annotations say what a file must hold: one reader serves
all of them. No pickle.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
VERSION = 1


def to_json(value: DataclassInstance) -> str:
    """A value with the name of its kind and the version of the format."""
    head = {"format": _format(type(value)), "version": VERSION}
    return json.dumps({**head, **asdict(value)}, indent=1, allow_nan=False) + "\n"


def from_json(kind: type[T], text: str, source: str) -> T:
    """Rebuild a value of a kind.

    Raises:
        InvalidInputError: Not JSON, of another kind or a newer version, or a field is missing or
            not of its type (it is named).
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{source} is not JSON ({error}); was it cut short?") from error
    if not isinstance(data, Mapping) or data.get("format") != _format(kind):
        raise InvalidInputError(
            f"{source} does not hold {kind.__name__}; write one with its save or to_json"
        )
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidInputError(f"{source}: version must be a positive number, got {version!r}")
    if version > VERSION:
        raise InvalidInputError(
            f"{source} has version {version}, newer than the {VERSION} that this package reads; "
            "upgrade ecs-plugins, or measure again"
        )
    found: T = _built(kind, data, source)
    return found


def _format(kind: type) -> str:
    return f"ecs_plugins.{kind.__name__}"


def _built(kind: Any, data: object, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise InvalidInputError(f"{path} must be an object, got {type(data).__name__}")
    hints = get_type_hints(kind)
    values: dict[str, object] = {}
    for field in fields(kind):
        if field.name not in data:
            raise InvalidInputError(f"{path}: {field.name} is missing")
        values[field.name] = _read(hints[field.name], data[field.name], f"{path}: {field.name}")
    return kind(**values)


def _read(kind: Any, value: object, path: str) -> Any:
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        (inner,) = (part for part in get_args(kind) if part is not type(None))
        return None if value is None else _read(inner, value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise InvalidInputError(f"{path} must be a list, got {type(value).__name__}")
        return tuple(_read(get_args(kind)[0], v, f"{path}[{n}]") for n, v in enumerate(value))
    if is_dataclass(kind):
        return _built(kind, value, path)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if not isinstance(value, str) or value not in list(kind):
            raise InvalidInputError(f"{path} must be one of {', '.join(kind)}, got {value!r}")
        return kind(value)
    return _plain(kind, value, path)


def _plain(kind: type, value: object, path: str) -> object:
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise InvalidInputError(f"{path} must be finite")
        return float(value)
    if type(value) is not kind:
        raise InvalidInputError(f"{path} must be {kind.__name__}, got {type(value).__name__}")
    return value
