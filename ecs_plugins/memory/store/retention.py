"""What has expired, and what the retention of the log ends."""

from __future__ import annotations

from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.storage.base import Connection


def has_expired(store: MemoryStore, now: float) -> bool:
    """Whether a message or an item has expired and is still there."""
    with store.database.read() as connection:
        row = connection.execute(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM messages WHERE expires <= ?1)"
            " OR EXISTS (SELECT 1 FROM items WHERE expires <= ?1)",
            (now,),
        ).fetchone()
    return row is not None


def expired(connection: Connection, now: float) -> dict[int, list[str]]:
    """The messages that have expired, by the number of their namespace."""
    names: dict[int, list[str]] = {}
    rows = connection.execute("SELECT namespace, id FROM messages WHERE expires <= ?", (now,))
    for number, name in rows:
        names.setdefault(number, []).append(name)
    return names


def drop_old(connection: Connection, before: float) -> list[str]:
    """End the retention of log entries, and of the old versions that only history needs.

    This is not erasure: what a memory made of a message stays.
    """
    connection.execute("DELETE FROM tiers WHERE live = 0 AND changed < ?", (before,))
    connection.execute("DELETE FROM provenance WHERE item NOT IN (SELECT id FROM tiers)")
    gone = connection.execute(
        "DELETE FROM messages WHERE created < ? AND NOT EXISTS ("
        "SELECT 1 FROM provenance p JOIN tiers t ON t.id = p.item AND t.tier = 'hot'"
        " WHERE p.message = messages.id) RETURNING id",
        (before,),
    )
    return [name for (name,) in gone.fetchall()]
