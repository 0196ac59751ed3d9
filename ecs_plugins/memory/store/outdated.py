"""Edges between messages: the newer one outdates the older one.

An edge goes with either of its messages, so an older statement holds again when the newer one is
erased or changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ecs_plugins.memory.store.tiers import Origin
from ecs_plugins.memory.store.values import dump
from ecs_plugins.storage.base import Connection

CERTAIN: Final = 0.9
"""Probability from which on an edge marks an item as outdated."""

_WRITE = """
    INSERT INTO outdated (older, newer, probability, source)
    SELECT older.id, newer.id, ?3, ?4 FROM messages older, messages newer
    WHERE older.id = ?1 AND newer.id = ?2
    ON CONFLICT (older, newer)
    DO UPDATE SET probability = excluded.probability, source = excluded.source
"""
_NEWER = f"""
    SELECT o.older, o.newer, n.created FROM outdated o JOIN messages n ON n.id = o.newer
    WHERE o.older IN (SELECT value FROM json_each(?)) AND o.probability >= {CERTAIN}
        AND (n.expires IS NULL OR n.expires > ?)
"""
_AMONG = "IN (SELECT value FROM json_each(?1))"
_FORGET = f"DELETE FROM outdated WHERE older {_AMONG} OR newer {_AMONG}"
_MARK = """
    INSERT INTO judged (namespace, seq)
    SELECT ?1, coalesce(max(seq), 0) FROM messages WHERE namespace = ?1 AND step <= ?2
    ON CONFLICT (namespace) DO UPDATE SET seq = excluded.seq
"""
_UNJUDGED = """
    SELECT m.id, m.step, m.role, m.text, m.created FROM messages m
    JOIN judged j ON j.namespace = m.namespace
    WHERE m.namespace = ? AND m.seq > j.seq AND (m.expires IS NULL OR m.expires > ?)
    ORDER BY m.seq
    LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class Edge:
    """One message outdates another, with a probability, as a judge says (its name)."""

    older: str
    newer: str
    probability: float
    source: str


@dataclass(frozen=True, slots=True)
class UnjudgedMessage:
    """A message that no judge has seen yet."""

    id: str
    step: int
    role: str
    text: str
    created: float


def write_edges(connection: Connection, edges: Iterable[Edge]) -> None:
    """Write edges between messages that the log has; a later verdict replaces an earlier one."""
    for edge in edges:
        connection.execute(_WRITE, (edge.older, edge.newer, edge.probability, edge.source))


def forget_edges(connection: Connection, messages: Collection[str]) -> None:
    """Delete the edges of messages whose text has changed."""
    connection.execute(_FORGET, (dump(list(messages)),))


def outdating_ids(
    connection: Connection, origins: Mapping[str, Origin], now: float, at: float | None = None
) -> dict[str, str]:
    """Return for each outdated item the id of the message that outdates the last of its messages.

    An item is outdated if all messages behind it are, by messages said until ``at``.
    """
    behind = [message for origin in origins.values() for message in origin.messages]
    rows = connection.execute(_NEWER, (dump(behind), now))
    newer = {older: message for older, message, said in rows if at is None or said <= at}
    if not newer:
        return {}
    return {
        item: newer[origin.messages[-1]]
        for item, origin in origins.items()
        if origin.messages and all(message in newer for message in origin.messages)
    }


def mark_judged(connection: Connection, space: int, step: int) -> None:
    """Record that the messages of a namespace up to a step need no judge any more."""
    connection.execute(_MARK, (space, step))


def is_followed(connection: Connection, space: int) -> bool:
    """Return True if it is recorded up to which message a namespace was judged."""
    row = connection.execute("SELECT 1 FROM judged WHERE namespace = ?", (space,)).fetchone()
    return row is not None


def unjudged(
    connection: Connection, space: int, now: float, most: int
) -> Sequence[UnjudgedMessage]:
    """Return the oldest messages that no judge has seen yet."""
    rows = connection.execute(_UNJUDGED, (space, now, most)).fetchall()
    return [UnjudgedMessage(*row) for row in rows]
