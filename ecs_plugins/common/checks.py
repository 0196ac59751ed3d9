"""Numbers of a configuration that are none, found when it is made.

Settings come from JSON files and environment variables too, where ``"5"`` or ``2.5`` passes every
comparison but means nothing, or fails in one that names no setting.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ecs_plugins.errors import ConfigurationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check_numbers(config: DataclassInstance) -> None:
    """Refuse what is no number where the annotation of a field is ``int`` or ``float``.

    NumPy scalars are numbers; a bool is none. None passes where the annotation allows it.

    Raises:
        ConfigurationError: It names the setting.
    """
    for name, (kind, optional) in _numeric_fields(type(config)).items():
        value = getattr(config, name)
        if (value is None and optional) or (
            isinstance(value, kind) and not isinstance(value, bool)
        ):
            continue
        wanted = "a whole number" if kind is Integral else "a number"
        raise ConfigurationError(
            f"{name} must be {wanted}{' or None' if optional else ''}, got {value!r:.80}"
        )


@cache
def _numeric_fields(config: type[DataclassInstance]) -> dict[str, tuple[type[Any], bool]]:
    hints = get_type_hints(config)
    found: dict[str, tuple[type[Any], bool]] = {}
    for field in fields(config):
        choices = get_args(hints[field.name]) or (hints[field.name],)
        for kind, abstract in ((float, Real), (int, Integral)):
            if kind in choices:
                found[field.name] = (abstract, type(None) in choices)
                break
    return found
