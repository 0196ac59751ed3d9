"""Messages behind items, and the time of the first of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ecs_plugins.memory.store.values import dump
from ecs_plugins.memory.types import ColdMemory, HotItem
from ecs_plugins.storage.base import Connection

MOST_BEHIND = 100
"""Messages told of an item with many, in addition to the first."""

_BEHIND = """
    SELECT p.item, p.message, m.created
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item IN (SELECT value FROM json_each(?))
    ORDER BY p.item, p.version, p.message
"""
_FIRST = """
    SELECT p.message, m.created
    FROM provenance p LEFT JOIN messages m ON m.id = p.message
    WHERE p.item = ?
    ORDER BY p.version, p.message
    LIMIT 1
"""
_LATEST = f"""
    SELECT p.message, m.created
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
    """

    messages: tuple[str, ...] = ()
    since: float | None = None


def origins_of(connection: Connection, items: Sequence[str]) -> dict[str, Origin]:
    """Return the origin of each item by id, with all messages."""
    behind: dict[str, list[tuple[str, float | None]]] = {item: [] for item in items}
    for item, message, created in connection.execute(_BEHIND, (dump(list(items)),)):
        behind[item].append((message, created))
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
        first = connection.execute(_FIRST, (name,)).fetchall()
        latest = connection.execute(_LATEST, (name,)).fetchall()
        told = dict(first) | dict(reversed(latest))
        origins[name] = _origin([*told.items()])
    return origins


def _origin(messages: Sequence[tuple[str, float | None]]) -> Origin:
    times = [created for _, created in messages if created is not None]
    return Origin(tuple(message for message, _ in messages), min(times, default=None))
