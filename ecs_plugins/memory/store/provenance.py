"""Messages behind items, and the time of the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ecs_plugins.memory.store.values import dump
from ecs_plugins.memory.types import ColdMemory, HotItem
from ecs_plugins.storage.base import Connection

MOST_BEHIND = 100
"""Messages told of an item with many, in addition to the first."""

_BEHIND = """
    SELECT p.item, p.message, m.created, m.role
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item IN (SELECT value FROM json_each(?))
    ORDER BY p.item, p.version, p.message
"""
_FIRST = """
    SELECT p.message, m.created, m.role
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item = ?
    ORDER BY p.version, p.message
    LIMIT 1
"""
_LATEST = f"""
    SELECT p.message, m.created, m.role
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item = ?
    ORDER BY p.version DESC, p.message DESC
    LIMIT {MOST_BEHIND}
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Messages behind an item.

    Attributes:
        messages: Ids in the order of their joining; of many, the first and the latest
            `MOST_BEHIND`.
        since: Unix time of the earliest of these; None where the log has none of them any more.
        roles: Who said them, each once, the first to say it first.
    """

    messages: tuple[str, ...] = ()
    since: float | None = None
    roles: tuple[str, ...] = ()


_Said: TypeAlias = tuple[str, float | None, str | None]
"""A message behind an item: its id, its time and its role, as far as the log has them."""


def origins_of(connection: Connection, items: Sequence[str]) -> dict[str, Origin]:
    """Return the origin of each item by id, with all messages."""
    behind: dict[str, list[_Said]] = {item: [] for item in items}
    for item, *said in connection.execute(_BEHIND, (dump(list(items)),)):
        behind[item].append((said[0], said[1], said[2]))
    return {item: _origin(messages) for item, messages in behind.items()}


def origins_of_live(
    connection: Connection, items: Iterable[HotItem | ColdMemory]
) -> dict[str, Origin]:
    """Return the origin of each live item by id, with at most `MOST_BEHIND` + 1 messages."""
    few: list[str] = []
    many: list[str] = []
    for item in items:
        (many if item.evidence.support > MOST_BEHIND else few).append(item.id)
    origins = origins_of(connection, few)
    for name in many:
        told = connection.execute(_FIRST, (name,)).fetchall()
        told += reversed(connection.execute(_LATEST, (name,)).fetchall())
        origins[name] = _origin([*dict.fromkeys(told)])
    return origins


def _origin(messages: Sequence[_Said]) -> Origin:
    times = [created for _, created, _ in messages if created is not None]
    roles = [role for _, _, role in messages if role is not None]
    return Origin(
        messages=tuple(message for message, _, _ in messages),
        since=min(times, default=None),
        roles=tuple(dict.fromkeys(roles)),
    )
