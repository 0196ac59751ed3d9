"""The base of every configuration: checked when it is made, never changed afterwards.

A configuration comes from code, a JSON file or an environment variable. Whatever is unknown, of
the wrong type or out of range is refused by name, before anything is opened or written.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ParamSpec, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from ecs_plugins.common.checks import shown
from ecs_plugins.errors import ConfigurationError

P = ParamSpec("P")


class Config(BaseModel):
    """Base class of configurations.

    Numbers are numbers: ``"5"`` and ``True`` are refused where a number is wanted, and so are NaN
    and infinity. NumPy's scalars are taken as the numbers that they hold.

    Raises:
        ConfigurationError: A setting is unknown or its value cannot be used; it is named.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )

    def __init__(self, **settings: Any) -> None:
        plain = {name: _plain(value) for name, value in settings.items()}
        try:
            super().__init__(**plain)
        except ValidationError as error:
            raise ConfigurationError(explained(type(self), error)) from None
        except TypeError as error:  # a setting that is a mapping, and not of names
            raise ConfigurationError(f"{type(self).__name__}: {error}") from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed, checked like a new one."""
        settings = dict(self)
        settings.update(changes)
        return type(self)(**settings)

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values.

        Raises:
            ConfigurationError: A setting is an object that cannot be written.
        """
        try:
            return self.model_dump(mode="json")
        except PydanticSerializationError as error:
            _, _, reason = str(error).rpartition("ValueError: ")
            kind = type(self).__name__
            raise ConfigurationError(f"{kind}: {reason}") from None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The configuration behind `to_json`, or behind a part of it.

        Raises:
            ConfigurationError: A setting is unknown or its value cannot be used; it is named.
        """
        if not isinstance(data, Mapping):
            raise ConfigurationError(
                f"{cls.__name__} is made from an object of settings, got {shown(data, 80)}"
            )
        settings = {str(name): value for name, value in data.items()}
        return cls(**settings)

    @classmethod
    def from_any(cls, given: Self | Mapping[str, Any] | None) -> Self:
        """A configuration that is given as one, as JSON, or not at all."""
        if given is None:
            return cls()
        if isinstance(given, cls):
            return given
        return cls.from_json(given)  # type: ignore[arg-type]


class StrictFields(BaseModel):
    """Base class of the components that a framework makes with fields.

    Raises:
        ConfigurationError: A field is unknown or its value cannot be used; it is named.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def __init__(self, *args: Any, **fields: Any) -> None:
        kind = type(self)
        # Not by the model's configuration, which the framework's class may replace.
        _require_known(kind.__name__, fields, kind.model_fields)
        try:
            super().__init__(*args, **fields)
        except ValidationError as error:
            raise ConfigurationError(explained(kind, error)) from None
        except TypeError as error:  # a field that is a mapping, and not of names
            raise ConfigurationError(f"{kind.__name__}: {error}") from error

    # LlamaIndex's own deletes what cannot be pickled, such as a live model, and the copy silently
    # works with a default in place of it. Here a pickle holds all of the fields, or fails.

    def __getstate__(self) -> dict[Any, Any]:
        return BaseModel.__getstate__(self)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        BaseModel.__setstate__(self, state)


def strict_keywords(init: Callable[P, None]) -> Callable[P, None]:
    """A constructor whose `ConfigurationError` names an unknown keyword and the nearest one."""
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def checked(*args: P.args, **keywords: P.kwargs) -> None:
        owner = type(args[0]).__name__
        _require_known(owner, keywords, known)
        init(*args, **keywords)

    return checked


def _require_known(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that ``owner`` does not know."""
    for name in given:
        if name not in known:
            raise ConfigurationError(f"{owner}: {unknown(name, known)}")


def _plain(value: Any) -> Any:
    """The Python number behind a scalar of NumPy."""
    module = type(value).__module__
    if module == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def explained(kind: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with the fields of a model, each by its name and the nearest known one."""
    faults = error.errors(include_url=False)
    reasons = [_explained_one(kind, fault) for fault in faults]
    return f"{kind.__name__}: " + "; ".join(reasons)


def _explained_one(kind: type[BaseModel], fault: ErrorDetails) -> str:
    location = fault["loc"]
    name = str(location[0]) if location else ""
    if fault["type"] == "extra_forbidden":
        return unknown(name, kind.model_fields)
    message = fault["msg"]
    for prefix in ("Value error, ", "Input "):
        message = message.removeprefix(prefix)
    if not name:
        return message
    if ", got" not in message:
        message += f", got {shown(fault['input'], 80)}"
    return message if message.startswith(name) else f"{name} {message}"


def unknown(name: str, known: Collection[str]) -> str:
    """Says that a setting does not exist, and which one may have been meant."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
    return f"unknown setting {name!r}; {hint}"
