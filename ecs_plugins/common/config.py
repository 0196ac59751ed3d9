"""Base class of all configurations: checked when made and immutable.

A configuration comes from code, a JSON file or an environment variable. An unknown setting, a wrong
type or a value out of range raises an error that names the setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError

from ecs_plugins.common.checks import shown
from ecs_plugins.errors import ConfigurationError


class Config(BaseModel):
    """Base class of configurations.

    Numbers must be finite numbers, so ``"5"``, ``True``, NaN and infinity are refused. Scalars of
    NumPy are accepted.

    Raises:
        ConfigurationError: A setting is unknown or its value is invalid.
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
        except TypeError as error:  # a mapping with keys that are no names
            raise ConfigurationError(f"{type(self).__name__}: {error}") from None

    def replace(self, **changes: Any) -> Self:
        """Return a checked copy with some settings changed."""
        settings = dict(self)
        settings.update(changes)
        return type(self)(**settings)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values.

        Raises:
            ConfigurationError: A setting has no JSON form.
        """
        try:
            return self.model_dump(mode="json")
        except PydanticSerializationError as error:
            _, _, reason = str(error).rpartition("ValueError: ")
            kind = type(self).__name__
            raise ConfigurationError(f"{kind}: {reason}") from None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the configuration from the result of `to_json`, or from a part of it.

        Raises:
            ConfigurationError: A setting is unknown or its value is invalid.
        """
        if not isinstance(data, Mapping):
            raise ConfigurationError(
                f"{cls.__name__} is made from an object of settings, got {shown(data, 80)}"
            )
        settings = {str(name): value for name, value in data.items()}
        return cls(**settings)

    @classmethod
    def from_any(cls, given: Self | Mapping[str, Any] | None) -> Self:
        """Return a configuration from a configuration, a mapping or None (the defaults)."""
        if given is None:
            return cls()
        if isinstance(given, cls):
            return given
        return cls.from_json(given)  # type: ignore[arg-type]


class StrictFields(BaseModel):
    """Base class of framework components with fields.

    Raises:
        ConfigurationError: A field is unknown or its value is invalid.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def __init__(self, *args: Any, **fields: Any) -> None:
        kind = type(self)
        # The framework's class may replace the model's configuration, so check here.
        require_known(kind.__name__, fields, kind.model_fields)
        try:
            super().__init__(*args, **fields)
        except ValidationError as error:
            raise ConfigurationError(explained(kind, error)) from None
        except TypeError as error:  # a mapping with keys that are no names
            raise ConfigurationError(f"{kind.__name__}: {error}") from error

    # LlamaIndex drops fields that cannot be pickled, such as a live model, and the copy silently
    # uses a default. Here a pickle has all fields or fails.

    def __getstate__(self) -> dict[Any, Any]:
        return BaseModel.__getstate__(self)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        BaseModel.__setstate__(self, state)


def require_known(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `ConfigurationError` for an unknown name."""
    for name in given:
        if name not in known:
            raise ConfigurationError(f"{owner}: {unknown(name, known)}")


def _plain(value: Any) -> Any:
    """Return the Python number of a NumPy scalar; other values unchanged."""
    module = type(value).__module__
    if module == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def explained(kind: type[BaseModel], error: ValidationError) -> str:
    """Return the faults of a model's fields as one sentence, with hints for unknown names."""
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
    """Return the message for an unknown setting, with the nearest known name."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
    return f"unknown setting {name!r}; {hint}"
