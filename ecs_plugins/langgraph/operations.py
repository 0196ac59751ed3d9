"""Operations and items of LangGraph: checks, and translation from and to a memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import (
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
    get_text_at_path,
    validate_op_namespace,
)

from ecs_plugins.common.config import unknown
from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.store.items import NewItem, StoredItem
from ecs_plugins.memory.store.namespaces import checked as checked_namespace
from ecs_plugins.memory.types import Namespace

MINUTE = 60
_MOST_MINUTES = 1e10  # some 19,000 years
_FILTER_KEY = re.compile(r"[\w .-]+")
_OPERATIONS = (GetOp, SearchOp, PutOp, ListNamespacesOp)


def checked(op: Op) -> Op:
    """Return an operation that can run, or refuse it; a namespace may be a list of labels.

    Halves of surrogate pairs, which a cut emoji leaves, become U+FFFD: a database would refuse the
    text, and an agent's run would end with it.
    """
    if not isinstance(op, _OPERATIONS):
        raise InvalidInputError(f"unknown operation {op!r}; use those of langgraph.store.base")
    for namespace in _named(op):
        if isinstance(namespace, str):  # whose characters would pass for labels
            raise InvalidInputError(f"a namespace is a tuple of labels; write ({namespace!r},)")
    validate_op_namespace(op)
    op = op._replace(**{name: _well_formed(value) for name, value in op._asdict().items()})
    if isinstance(op, SearchOp | ListNamespacesOp) and min(op.limit, op.offset) < 0:
        raise InvalidInputError(f"limit and offset must not be negative: {op.limit}, {op.offset}")
    if isinstance(op, ListNamespacesOp):
        return op
    if isinstance(op, SearchOp):
        _check_filter(op.filter or {})
        return op._replace(namespace_prefix=tuple(op.namespace_prefix))
    op = op._replace(namespace=tuple(op.namespace))
    if isinstance(op, PutOp):
        checked_namespace(op.namespace)
        if op.value is not None and not isinstance(op.value, Mapping):
            raise InvalidInputError(f"a value is a mapping, got {op.value!r:.80}")
    return op


def _named(op: Op) -> list[object]:
    """Return the namespaces that an operation names."""
    if isinstance(op, ListNamespacesOp):
        return [condition.path for condition in op.match_conditions or ()]
    if isinstance(op, SearchOp):
        return [op.namespace_prefix]
    return [op.namespace]


def _well_formed(value: Any) -> Any:
    """Return a value whose texts are well formed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        return {_well_formed(key): _well_formed(each) for key, each in value.items()}
    if isinstance(value, MatchCondition):
        return value._replace(path=tuple(map(_well_formed, value.path)))
    if isinstance(value, list | tuple):
        plain = map(_well_formed, value)
        return tuple(plain) if type(value) is tuple else list(plain)
    return value


def _check_filter(condition: Filter) -> None:
    checked_filter(condition)
    for key in condition:
        if not _FILTER_KEY.fullmatch(str(key)):  # LangGraph's stores put them into SQL
            raise InvalidInputError(f"Invalid filter key: {key!r}; use words, dots and hyphens")


def check_settings(what: str, settings: Mapping[str, Any] | None, names: Collection[str]) -> None:
    """Refuse settings of LangGraph's that are not among the names."""
    for name in settings or ():
        if name not in names:
            raise ConfigurationError(f"{what}: {unknown(name, names)}")


def is_match(condition: MatchCondition, namespace: Namespace) -> bool:
    """Return True if a namespace meets a condition of a listing."""
    path = condition.path
    kind = condition.match_type
    if kind not in ("prefix", "suffix"):
        raise InvalidInputError(f"match_type is 'prefix' or 'suffix', got {kind!r}")
    beyond = len(namespace) - len(path)
    if beyond < 0:
        return False
    start = 0 if kind == "prefix" else beyond
    for wanted, label in zip(path, namespace[start:], strict=False):
        if wanted not in ("*", label):
            return False
    return True


def new_item(op: PutOp, fields: Sequence[str]) -> NewItem:
    """Return the item of a put; ``fields`` are its default paths for search."""
    assert op.value is not None
    value = dict(op.value)
    NewItem(op.namespace, op.key, value)  # refused before its texts are looked for
    paths = fields
    if op.index is not None:
        paths = op.index or ()
    texts: dict[str, str] = {}
    for path in paths:
        found = get_text_at_path(value, path)
        if len(found) == 1:
            texts[path] = found[0]
            continue
        for number, text in enumerate(found):
            texts[f"{path}.{number}"] = text
    ttl = seconds(op.ttl)
    return NewItem(op.namespace, op.key, value, texts, ttl)


def seconds(minutes: float | None) -> float | None:
    """Return a time to live, given in minutes, in seconds."""
    if minutes is None:
        return None
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    if not is_number or not 0 < minutes < _MOST_MINUTES:
        raise InvalidInputError(f"ttl is a number of minutes above 0, got {minutes!r:.80}")
    return minutes * MINUTE


def item_fields(stored: StoredItem) -> dict[str, Any]:
    """Return the arguments of LangGraph's item."""
    return {
        "namespace": stored.namespace,
        "key": stored.key,
        "value": stored.value,
        "created_at": datetime.fromtimestamp(stored.created, UTC),
        "updated_at": datetime.fromtimestamp(stored.updated, UTC),
    }
