"""The base of every configuration: checked when it is made, never changed afterwards.

A configuration comes from code, a JSON file or an environment variable. Whatever is unknown, of
the wrong type or out of range is refused by name, before anything is opened or written.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

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
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    def __init__(self, **settings: Any) -> None:
        plain = {name: _plain(value) for name, value in settings.items()}
        try:
            super().__init__(**plain)
        except ValidationError as error:
            raise ConfigurationError(explained(type(self), error)) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed, checked like a new one."""
        return type(self)(**{**dict(self), **changes})

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values.

        Raises:
            ConfigurationError: A setting is an object that cannot be written.
        """
        try:
            return self.model_dump(mode="json")
        except PydanticSerializationError as error:
            said = str(error).rpartition("ValueError: ")[2]
            raise ConfigurationError(f"{type(self).__name__}: {said}") from None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The configuration behind `to_json`, or behind a part of it.

        Raises:
            ConfigurationError: A setting is unknown or its value cannot be used; it is named.
        """
        if not isinstance(data, Mapping):
            raise ConfigurationError(
                f"{cls.__name__} is made from an object of settings, got {data!r:.80}"
            )
        return cls(**{str(name): value for name, value in data.items()})

    @classmethod
    def from_any(cls, given: Self | Mapping[str, Any] | None) -> Self:
        """A configuration that is given as one, as JSON, or not at all."""
        return given if isinstance(given, cls) else cls.from_json({} if given is None else given)  # type: ignore[arg-type]


class StrictFields(BaseModel):
    """Base class of the components that a framework makes with fields.

    Raises:
        ConfigurationError: A field is unknown or its value cannot be used; it is named.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def __init__(self, *args: Any, **fields: Any) -> None:
        for name in fields:
            # Not by the model's configuration, which the framework's class may replace.
            if name not in type(self).model_fields:
                known = type(self).model_fields
                raise ConfigurationError(f"{type(self).__name__}: {unknown(name, known)}")
        try:
            super().__init__(*args, **fields)
        except ValidationError as error:
            raise ConfigurationError(explained(type(self), error)) from None

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
        for name in keywords:
            if name not in known:
                raise ConfigurationError(f"{type(args[0]).__name__}: {unknown(name, known)}")
        init(*args, **keywords)

    return checked


def _plain(value: Any) -> Any:
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def explained(kind: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with the fields of a model, each by its name and the nearest known one."""
    return f"{kind.__name__}: " + "; ".join(
        _explained_one(kind, str(each["loc"][0]) if each["loc"] else "", each["msg"], each)
        for each in error.errors(include_url=False)
    )


def _explained_one(kind: type[BaseModel], name: str, message: str, details: Any) -> str:
    if details["type"] == "extra_forbidden":
        return unknown(name, kind.model_fields)
    message = message.removeprefix("Value error, ").removeprefix("Input ")
    where = f"{name} " if name and not message.startswith(name) else ""
    given = f", got {details['input']!r:.80}" if name and ", got" not in message else ""
    return f"{where}{message}{given}"


def unknown(name: str, known: Collection[str]) -> str:
    """Says that a setting does not exist, and which one may have been meant."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
    return f"unknown setting {name!r}; {hint}"
