"""Namespaces: their names, their keys, and the row of each with its counters.

A namespace is a tuple of labels, matched element by element. Its key is the JSON array of its
labels. JSON strings delimit themselves, so two namespaces share a key only if they are equal, and
the key of ``("a", "b")`` without its closing bracket, followed by a comma, begins exactly the keys
of what lies below it. No separator that a label could contain takes part in a comparison, so
``("t", "acme")`` never matches ``("t", "acme-corp")`` and no label is a pattern.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import InvalidInputError, QuotaError
from ecs_plugins.memory.config import StoreConfig
from ecs_plugins.memory.types import Namespace, Tier, Vector
from ecs_plugins.storage.base import Connection

MAX_LABELS = 32
MAX_LABEL_LENGTH = 512


def checked(namespace: Sequence[str]) -> Namespace:
    """Return ``namespace`` as a tuple, or refuse it.

    Raises:
        InvalidInputError: It is a bare string, empty, too deep, or holds a label that is empty,
            too long, no string, or no valid Unicode.
    """
    if isinstance(namespace, str) or not isinstance(namespace, Iterable):
        raise InvalidInputError(
            f"a namespace is a tuple of labels, got {namespace!r:.80}; write ({namespace!r:.80},)"
        )
    labels = tuple(namespace)
    if not 1 <= len(labels) <= MAX_LABELS:
        raise InvalidInputError(f"a namespace has 1 to {MAX_LABELS} labels, got {len(labels)}")
    for label in labels:
        if not isinstance(label, str):
            raise InvalidInputError(f"a namespace label is a string, got {label!r}")
        if not 1 <= len(label) <= MAX_LABEL_LENGTH:
            raise InvalidInputError(
                f"a namespace label has 1 to {MAX_LABEL_LENGTH} characters, got {len(label)}"
            )
        if well_formed(label) != label:
            raise InvalidInputError(f"the label {label!a} is not valid Unicode")
    return labels


def encode(namespace: Sequence[str]) -> str:
    """Return the key of a namespace: the JSON array of its labels."""
    return key_of(checked(namespace))


@lru_cache(maxsize=4096)
def scope_of(namespace: Namespace) -> tuple[str, str]:
    """Return the lock of a writer: the namespace within its tenant (the first label)."""
    return namespace[0], key_of(namespace)


@lru_cache(maxsize=4096)
def key_of(namespace: Namespace) -> str:
    """Return the key of a namespace that is known to be one."""
    return json.dumps(namespace, ensure_ascii=False, separators=(",", ":"))


def decode(key: str) -> Namespace:
    """Return the namespace that a key encodes."""
    return tuple(json.loads(key))


@dataclass(slots=True)
class Space:
    """One namespace within one transaction; `save` writes it back."""

    id: int
    namespace: Namespace
    epoch: int  # counts the embedders that its vectors came from
    step: int  # number of its latest message
    since_sleep: int  # messages
    cycle: int  # sleep phases so far
    revision: int  # counts the transactions that changed it
    count: dict[Tier, int]  # live items
    messages: int
    bytes: int  # of the texts and metadata of the messages
    gone: list[int] = field(default_factory=list)  # rows that left in this transaction
    written: dict[int, tuple[str, Vector]] = field(default_factory=dict)  # new rows, as indexed

    @property
    def items(self) -> int:
        """Live items of both tiers."""
        return self.count["hot"] + self.count["cold"]

    def left(self, tier: Tier, rows: Collection[int]) -> None:
        """Note that rows left a tier."""
        self.count[tier] -= len(rows)
        self.gone += rows

    def grow(self, messages: int, size: int) -> None:
        """Add to the counts of messages and bytes; negative numbers subtract."""
        self.messages += messages
        self.bytes += size

    def save(self, connection: Connection) -> None:
        """Write the counters."""
        self.revision += 1
        counters = (self.step, self.since_sleep, self.cycle, self.revision)
        counts = (self.count["hot"], self.count["cold"])
        sizes = (self.messages, self.bytes)
        connection.execute(_SAVE, (*counters, *counts, *sizes, self.id))


_SAVE = """
    UPDATE namespaces
    SET step = ?, since_sleep = ?, cycle = ?, revision = ?, hot_count = ?, cold_count = ?,
        messages = ?, bytes = ?
    WHERE id = ?
"""
_SELECT_SPACE = """
    SELECT id, key, epoch, step, since_sleep, cycle, revision, hot_count, cold_count,
        messages, bytes
    FROM namespaces
"""
_CREATE = "INSERT INTO namespaces (key, created, epoch) VALUES (?, ?, ?)"


def _space(row: tuple[int, ...]) -> Space:
    number, key, epoch, step, since, cycle, revision, hot, cold, messages, size = row
    return Space(
        id=number,
        namespace=decode(str(key)),
        epoch=epoch,
        step=step,
        since_sleep=since,
        cycle=cycle,
        revision=revision,
        count={"hot": hot, "cold": cold},
        messages=messages,
        bytes=size,
    )


def find_space(connection: Connection, namespace: Namespace) -> Space | None:
    """Return the namespace, if anything was ever stored in it."""
    row = connection.execute(f"{_SELECT_SPACE} WHERE key = ?", (key_of(namespace),)).fetchone()
    return None if row is None else _space(row)


def space_by_id(connection: Connection, number: int) -> Space:
    """Return the namespace of a row number that is known to exist."""
    row = connection.execute(f"{_SELECT_SPACE} WHERE id = ?", (number,)).fetchone()
    return _space(row)


def create_space(connection: Connection, namespace: Namespace, now: float, epoch: int) -> Space:
    """Return a new namespace."""
    connection.execute(_CREATE, (key_of(namespace), now, epoch))
    created = find_space(connection, namespace)
    assert created is not None
    return created


def list_spaces(connection: Connection, prefix: Namespace | None = None) -> list[Space]:
    """Return all namespaces, or those at and below a prefix, in the order of their keys."""
    where, bounds = under(prefix, "key")
    rows = connection.execute(f"{_SELECT_SPACE} WHERE {where} ORDER BY key", bounds)
    return [_space(row) for row in rows]


def under(prefix: Namespace | None, column: str) -> tuple[str, tuple[str, ...]]:
    """Return a condition for the namespaces equal to a prefix or below it, label by label."""
    if not prefix:
        return "TRUE", ()
    key = key_of(prefix)
    # Strictly below are the keys from "," to "-", which follow each other in byte order.
    stem = key[:-1]
    bounds = (key, f"{stem},", f"{stem}-")
    return f"({column} = ? OR ({column} >= ? AND {column} < ?))", bounds


def check_room(settings: StoreConfig, space: Space | None, messages: int, size: int) -> None:
    """Raise if more messages or bytes would exceed the limits of a namespace (None: a new one).

    Raises:
        QuotaError: The namespace would exceed a limit.
    """
    held = 0 if space is None else space.messages
    used = 0 if space is None else space.bytes
    most = settings.max_messages
    if most is not None and messages > 0 and held + messages > most:
        raise QuotaError(
            f"the namespace holds {held:,} messages and may hold {most:,}, got {messages:,} more; "
            "nothing was written: erase some, or raise max_messages"
        )
    limit = settings.max_bytes
    if limit is not None and size > 0 and used + size > limit:
        raise QuotaError(
            f"the messages of the namespace have {used:,} bytes and may have {limit:,}, got "
            f"{size:,} more; nothing was written: erase some, or raise max_bytes"
        )
