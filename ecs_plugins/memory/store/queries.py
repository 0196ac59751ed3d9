"""The recorded queries of a namespace: what was asked, recalled and answered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ecs_plugins.memory.admission import record_hit, with_outcome
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import dump, pack
from ecs_plugins.memory.teaching import taught
from ecs_plugins.memory.types import QueryEvent, Vector
from ecs_plugins.memory.utility import QUERY_WINDOW
from ecs_plugins.storage.base import Connection

_SAME = 1e-6  # cosine distance of a question to itself, embedded twice
_INSERT = """
    INSERT INTO queries (namespace, step, at, text, answer, recalled, vector)
    VALUES (?,?,?,?,?,?,?)
"""
_OBSERVE = "UPDATE queries SET text = ?, answer = ?, recalled = ? WHERE id = ?"
_LATEST = """
    SELECT id, vector, answer, recalled FROM queries
    WHERE namespace = ?
    ORDER BY id DESC
"""
_RECENT = """
    SELECT step, vector, text, answer FROM queries
    WHERE namespace = ?
    ORDER BY id DESC
    LIMIT ?
"""
_PRUNE = """
    DELETE FROM queries
    WHERE namespace = ?1 AND id <= (
        SELECT id FROM queries WHERE namespace = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2
    )
"""


@dataclass(frozen=True, slots=True)
class Access:
    """One recall: when, with which query vector, which ids and scores, after how many erasures."""

    step: int
    at: float
    vector: Vector
    items: Mapping[str, float]
    erasures: int


def write_accesses(
    connection: Connection, space: Space, accesses: Sequence[Access], erasures: int
) -> None:
    """Write recalls: a query event each, a hit for every item that is still in its tier.

    The question of a recall from before the latest of ``erasures`` is not written: it may repeat
    what was erased.
    """
    for access in sorted(accesses, key=lambda each: each.at):  # some could not be written before
        names = tuple(access.items)
        if access.erasures == erasures:
            # Without its text, which only an observation needs.
            event = space.id, access.step, access.at, "", None, dump(names), pack(access.vector)
            connection.execute(_INSERT, event)
        for each in _live(connection, space, names):
            step = max(access.step, each.item.evidence.updated)
            hit = record_hit(each.item, step=step, score=access.items[each.item.id])
            tiers.update(connection, each.row, hit)
    _prune_queries(connection, space)


def write_observation(
    connection: Connection,
    space: Space,
    *,
    vector: Vector,
    used: Sequence[str],
    text: str,
    answer: str,
    outcome: bool | None,
    shares: Mapping[str, float],
) -> None:
    """Write a question with its answer, what came of the items that were used, and how much."""
    recall = _recall_of(connection, space, vector, used)
    if recall is None:
        place = (space.id, space.step, time.time())
        asked = (text, answer, dump(list(used)))
        connection.execute(_INSERT, (*place, *asked, pack(vector)))
    else:
        number, recalled = recall
        together = dict.fromkeys([*recalled, *used])
        connection.execute(_OBSERVE, (text, answer, dump([*together]), number))
    _prune_queries(connection, space)
    for each in _live(connection, space, tuple(shares)):
        evidence = taught(each.item.evidence, shares[each.item.id], space.step)
        tiers.update(connection, each.row, replace(each.item, evidence=evidence))
    if outcome is None:
        return
    for each in _live(connection, space, used):
        evidence = with_outcome(each.item.evidence, outcome, space.step)
        item = replace(each.item, evidence=evidence)
        tiers.update(connection, each.row, item)


def _recall_of(
    connection: Connection, space: Space, vector: Vector, used: Sequence[str]
) -> tuple[int, list[str]] | None:
    """The recall that an observation completes, and what it recalled.

    That is the last event of the same question, if it has no answer yet and what was used does
    not come from elsewhere. So one question that was recalled for and then observed counts once.
    """
    for number, data, answer, listed in connection.execute(_LATEST, (space.id,)):
        cosine = np.frombuffer(data, dtype="<f4") @ vector
        if cosine < 1.0 - _SAME:
            continue
        recalled = json.loads(listed)
        is_elsewhere = bool(used and recalled) and set(used).isdisjoint(recalled)
        if answer is not None or is_elsewhere:
            return None
        return number, recalled
    return None


def _prune_queries(connection: Connection, space: Space) -> None:
    """Delete query events beyond the window that utilities look at."""
    connection.execute(_PRUNE, (space.id, QUERY_WINDOW))


def recent_queries(connection: Connection, space: int) -> list[QueryEvent]:
    """The recent queries of a namespace, oldest first."""
    rows = connection.execute(_RECENT, (space, QUERY_WINDOW)).fetchall()
    events = []
    for step, data, text, answer in reversed(rows):
        vector = np.frombuffer(data, dtype="<f4")
        events.append(QueryEvent(step, vector, text, answer))
    return events


def _live(connection: Connection, space: Space, names: Sequence[str]) -> list[TierRow]:
    """The items of these ids that are in a tier now, without vectors."""
    where = "+namespace = ? AND +live = 1 AND id IN (SELECT value FROM json_each(?))"
    return tiers.select(connection, where, (space.id, dump(list(names))))
