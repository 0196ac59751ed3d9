"""Until when what messages claim held, and what corrected it.

Nothing is marked as superseded: a statement falls while a later one of the same speaker contradicts
it, so it holds again when that is erased, and what is said again holds again.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ecs_plugins.memory.types import ColdMemory, HotItem

# Of several corrections the first counts: a bare column is that of the minimum.
_FALLEN = """
    SELECT p.item, coalesce(m.created, c.at, -9e999), coalesce(min(n.at), 9e999), n.message
    FROM (SELECT item, message FROM provenance WHERE item IN (SELECT value FROM json_each(?1))
          UNION SELECT id, id FROM messages WHERE id IN (SELECT value FROM json_each(?1))) p
    LEFT JOIN messages m ON m.id = p.message
    LEFT JOIN claims c ON c.message = p.message AND c.falls
    LEFT JOIN claims n ON n.namespace = c.namespace AND n.key = c.key AND n.value != c.value
        AND NOT EXISTS (SELECT 1 FROM messages x WHERE x.id = n.message AND x.expires <= ?2)
        AND n.corrects AND n.message != c.message AND (n.at, n.row) > (c.at, c.row)
    GROUP BY p.item, p.message
"""

Item = TypeVar("Item", HotItem, ColdMemory)


@dataclass(frozen=True, slots=True)
class Validity:
    """Since and until when an item held; None where the log no longer knows, or not yet."""

    holds: bool = True
    since: float | None = None
    until: float | None = None
    by: str | None = None


def validity(
    connection: sqlite3.Connection, items: Collection[str], at: float | None = None
) -> dict[str, Validity]:
    """Whether items, or single messages, hold now or at a Unix time: something behind them does."""
    said: dict[str, list[tuple[float, float, str | None]]] = {item: [] for item in items}
    for item, since, until, by in connection.execute(_FALLEN, (json.dumps([*items]), time.time())):
        said[item].append((since, until, by))
    now = sys.float_info.max if at is None else at
    return {item: _validity(times, now) if times else Validity() for item, times in said.items()}


def _validity(times: Sequence[tuple[float, float, str | None]], at: float) -> Validity:
    held = [each for each in times if each[0] <= at < each[1]]
    since = min(since for since, _, _ in held or times)
    _, until, by = max(held or times, key=lambda each: each[1])
    return Validity(
        bool(held), None if since == -math.inf else since, None if until == math.inf else until, by
    )


def judged(connection: sqlite3.Connection, items: Sequence[Item]) -> list[Item]:
    """Items that know whether they are superseded."""
    found = validity(connection, [item.id for item in items])
    return [item if found[item.id].holds else replace(item, superseded=True) for item in items]
