"""Until when what messages claim held, and what corrected it.

Nothing is marked as superseded: a statement falls while a later one of the same speaker contradicts
it, so it holds again when that is erased, and what is said again holds again.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ecs_plugins.common.files import statements
from ecs_plugins.memory.types import ColdMemory, HotItem
from ecs_plugins.storage.base import Connection

(_FALLEN,) = statements(__package__, "fallen.sql")
_OF_ITEMS = "SELECT item, message, version FROM provenance WHERE item"
_OF_MESSAGES = "SELECT id AS item, id AS message, 1 AS version FROM messages WHERE id"

Item = TypeVar("Item", HotItem, ColdMemory)


@dataclass(frozen=True, slots=True)
class Validity:
    """Since and until when an item held; None where the log no longer knows, or not yet."""

    holds: bool = True
    since: float | None = None
    until: float | None = None
    by: str | None = None
    behind: tuple[str, ...] = ()  # the ids of its messages, in the order of their joining


def validity(
    connection: Connection, ids: Collection[str], at: float | None = None, *, messages: bool = False
) -> dict[str, Validity]:
    """Whether items, or single messages, hold now or at a Unix time: something behind them does."""
    said: dict[str, dict[str, tuple[float, float, str | None]]] = {each: {} for each in ids}
    sql = _FALLEN.format(behind=_OF_MESSAGES if messages else _OF_ITEMS)
    for item, message, since, until, by in connection.execute(
        sql, (json.dumps([*ids]), time.time())
    ):
        began, ended = -math.inf if since is None else since, math.inf if until is None else until
        said[item].setdefault(message, (began, ended, by))  # the first of several corrections
    now = sys.float_info.max if at is None else at
    return {item: _validity(times, now) if times else Validity() for item, times in said.items()}


def _validity(behind: Mapping[str, tuple[float, float, str | None]], at: float) -> Validity:
    times = behind.values()
    held = [each for each in times if each[0] <= at < each[1]]
    since = min(since for since, _, _ in held or times)
    _, until, by = max(held or times, key=lambda each: each[1])
    began, ended = None if since == -math.inf else since, None if until == math.inf else until
    return Validity(bool(held), began, ended, by, tuple(behind))


def judged(connection: Connection, items: Sequence[Item]) -> list[Item]:
    """Items that know whether they are superseded."""
    found = validity(connection, [item.id for item in items])
    return [item if found[item.id].holds else replace(item, superseded=True) for item in items]
