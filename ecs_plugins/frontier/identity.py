"""Hashes of the code and settings of components, to tell one preparation from another."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator, Mapping, Set
from functools import partial
from typing import Any

from pydantic import BaseModel

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 16
_MOST_PARTS = 20_000


def fingerprint(component: object) -> str:
    """Return a hash of a function, a model or a chain.

    It covers code, default values, the variables that a function refers to, and the fields of
    objects. Two components that differ in a prompt or in the name of a model have two hashes.
    Secrets and the private state of pydantic models are left out.
    """
    total = hashlib.sha256()
    for number, part in enumerate(_parts(component, 0, {})):
        if number == _MOST_PARTS:
            break
        total.update(f"{len(part)}:".encode() + part)
    return total.hexdigest()


def _parts(value: Any, depth: int, seen: dict[int, int]) -> Iterator[bytes]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")
        return
    if id(value) in seen or depth > _DEEPEST:
        # A number in the order of visits: addresses differ between processes.
        yield f"seen {seen.get(id(value), -1)}".encode()
        return
    seen[id(value)] = len(seen)
    yield _name_of(value)
    for inner in _inner(value):
        yield from _parts(inner, depth + 1, seen)


def _name_of(value: Any) -> bytes:
    named = value if isinstance(value, type) else type(value)
    return f"{named.__module__}.{named.__qualname__}".encode()


def _inner(value: Any) -> Iterator[Any]:
    """Yield the parts of a value that its behaviour depends on."""
    if isinstance(value, type | types.ModuleType) or hasattr(value, "get_secret_value"):
        return
    if isinstance(value, types.CodeType):
        yield from (value.co_code, value.co_names, value.co_consts)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, Mapping):
        yield from sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, Set):
        yield from sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if not field.exclude:
                yield name
                yield getattr(value, name, None)
    else:
        yield from sorted(getattr(value, "__dict__", {}).items())


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    yield function.__code__
    yield function.__defaults__
    yield function.__kwdefaults__
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            yield None
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name
            yield function.__globals__[name]


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)
