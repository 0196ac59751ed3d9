"""Namespace templates like ``("user", "{user_id}")``, filled from the context of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated
from uuid import UUID

from pydantic import BeforeValidator

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.types import Namespace

Labels = Annotated[Namespace, BeforeValidator(checked)]
"""The field of a namespace; a bare string is refused."""

_FIELD = re.compile(r"\{(\w+)\}")


def check_template(template: Sequence[str]) -> Namespace:
    """Return a namespace template as a tuple, or refuse it."""
    labels = checked(template)
    for label in labels:
        # "user-{id}" would let the id "1-x" and the prefix "user-1" meet.
        if "{" in label and not _FIELD.fullmatch(label):
            raise ConfigurationError(
                f"a namespace label is a text or one field such as '{{user_id}}', got {label!r}; "
                "give the field a label of its own"
            )
    return labels


def fill_namespace(template: Sequence[str], *sources: object) -> Namespace:
    """Fill ``"{user_id}"`` in a template from the first source that has ``user_id``.

    A source that has it and leaves it empty names nobody: the next one is not asked then.
    """
    return checked([_filled(label, sources) for label in template])


def _filled(label: str, sources: Sequence[object]) -> str:
    match = _FIELD.fullmatch(label)
    if match is None:
        return label
    name, absent = match[1], object()
    for source in sources:
        get = source.get if isinstance(source, Mapping) else partial(getattr, source)
        value = get(name, absent)
        if value is not absent:
            return _checked_label(name, value)
    raise ConfigurationError(
        f"nobody says whose memory this is: pass context with {name!r}, or "
        f'config={{"configurable": {{{name!r}: ...}}}}'
    )


def _checked_label(name: str, value: object) -> str:
    """Return the label of a source; refuse a value that names nobody."""
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        raise ConfigurationError(
            f"{name} is {value!r}; whose memory it is must be a text or an integer"
        )
    if not str(value).strip():
        raise ConfigurationError(f"{name} is empty; whose memory it is must be known")
    return str(value)
