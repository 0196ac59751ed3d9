"""What has expired, and what the retention of the log ends."""

from __future__ import annotations

from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space, decode
from ecs_plugins.memory.types import Namespace
from ecs_plugins.storage.base import Connection

_EXPIRED_MESSAGES = """
    SELECT DISTINCT n.key FROM messages m JOIN namespaces n ON n.id = m.namespace
    WHERE m.expires <= ?
"""
_EXPIRED_ITEMS = "SELECT DISTINCT namespace FROM items WHERE expires <= ?"
_OLD_MESSAGES = """
    SELECT DISTINCT n.key FROM messages m JOIN namespaces n ON n.id = m.namespace
    WHERE m.created < ?
"""
_OLD_VERSIONS = """
    SELECT DISTINCT n.key FROM tiers t JOIN namespaces n ON n.id = t.namespace
    WHERE t.live = 0 AND t.changed < ?
"""


def has_expired(store: MemoryStore, now: float) -> bool:
    """Whether a message or an item has expired and is still there."""
    with store.database.read() as connection:
        row = connection.execute(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE expires <= ?1)"
            " OR EXISTS (SELECT 1 FROM items WHERE expires <= ?1)",
            (now,),
        ).fetchone()
    return row is not None


def due(connection: Connection, now: float, retention: float | None) -> set[Namespace]:
    """The namespaces in which something has expired, or the log's retention has ended."""
    found: set[str] = set()
    for sql in (_EXPIRED_MESSAGES, _EXPIRED_ITEMS):
        found.update(key for (key,) in connection.execute(sql, (now,)))
    if retention is not None:
        for sql in (_OLD_MESSAGES, _OLD_VERSIONS):
            found.update(key for (key,) in connection.execute(sql, (now - retention,)))
    return {decode(key) for key in found}


def expired(connection: Connection, space: int, now: float) -> list[str]:
    """The messages of a namespace that have expired."""
    rows = connection.execute(
        "SELECT id FROM messages WHERE +namespace = ? AND expires <= ? ORDER BY seq", (space, now)
    )
    return [name for (name,) in rows]


def drop_old(connection: Connection, space: Space, before: float) -> list[str]:
    """End the retention of log entries, and of the old versions that only history needs.

    This is not erasure: what a memory made of a message stays.
    """
    versions = connection.execute(
        "DELETE FROM tiers WHERE namespace = ? AND live = 0 AND changed < ? RETURNING id",
        (space.id, before),
    ).fetchall()
    tiers.forget_provenance(connection, {name for (name,) in versions})
    gone = connection.execute(
        "DELETE FROM messages WHERE namespace = ? AND created < ? AND NOT EXISTS ("
        "SELECT 1 FROM provenance p JOIN tiers t ON t.id = p.item AND t.tier = 'hot'"
        " WHERE p.message = messages.id) RETURNING id, text, metadata",
        (space.id, before),
    ).fetchall()
    sizes = [log.size_of(text, metadata) for _, text, metadata in gone]
    space.grow(-len(sizes), -sum(sizes))
    return [name for name, _, _ in gone]
