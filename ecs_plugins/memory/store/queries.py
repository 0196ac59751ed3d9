"""Recorded queries of a namespace, with recalled ids and answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from ecs_plugins.memory.admission import record_hit, with_outcome
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.store.values import crc_of, dump, packed, parsed
from ecs_plugins.memory.types import QueryEvent, Vector
from ecs_plugins.memory.utility import QUERY_WINDOW
from ecs_plugins.storage.base import Connection

_SAME = 1e-6  # cosine distance of a question to itself, embedded twice
_INSERT = """
    INSERT INTO queries (
        namespace, step, at, text, answer, recalled, vector, text_crc, vector_crc
    )
    VALUES (?,?,?,?,?,?,?,?,?)
"""
_OBSERVE = "UPDATE queries SET text = ?, answer = ?, recalled = ?, text_crc = ? WHERE id = ?"
_LATEST = """
    SELECT id, vector, step, at, answer, recalled FROM queries
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
            told = (access.step, access.at, "", None, dump(names))
            _insert(connection, space, told, access.vector)
        for each in _live(connection, space, names):
            step = max(access.step, each.item.evidence.updated)
            hit = record_hit(each.item, step=step, score=access.items[each.item.id])
            tiers.update(connection, each.row, hit, each.judged)
    _prune_queries(connection, space)


@dataclass(frozen=True, slots=True)
class Observation:
    """A query with its vector, its answer, and the ids that the answer used (None: not known)."""

    vector: Vector
    text: str
    answer: str
    used: Sequence[str] | None


def write_observation(connection: Connection, space: Space, observed: Observation) -> None:
    """Record a query with its answer, and the use of each memory recalled for it."""
    used = observed.used or ()
    recall = _recall_of(connection, space, observed.vector, used)
    together = [*used]
    if recall is None:
        told = (space.step, time.time(), observed.text, observed.answer, dump(together))
        _insert(connection, space, told, observed.vector)
    else:
        together = [*dict.fromkeys([*recall.recalled, *used])]
        asked = (observed.text, observed.answer, dump(together))
        checksum = crc_of((recall.step, recall.at, *asked))
        connection.execute(_OBSERVE, (*asked, checksum, recall.number))
    _prune_queries(connection, space)
    if observed.used is None:
        return
    for each in _live(connection, space, together):
        was_used = each.item.id in used
        evidence = with_outcome(each.item.evidence, was_used, space.step)
        tiers.update(connection, each.row, replace(each.item, evidence=evidence), each.judged)


_Told: TypeAlias = tuple[int, float, str, str | None, str]
"""What is written of a query: its step and time, its text, the answer, and what was recalled."""


def _insert(connection: Connection, space: Space, told: _Told, vector: Vector) -> None:
    data, checksum = packed(vector)
    connection.execute(_INSERT, (space.id, *told, data, crc_of(told), checksum))


class _Recall(NamedTuple):
    """A recorded recall: its number, step, time and recalled ids."""

    number: int
    step: int
    at: float
    recalled: list[str]


def _recall_of(
    connection: Connection, space: Space, vector: Vector, used: Sequence[str]
) -> _Recall | None:
    """Return the recorded recall that an observation completes.

    That is the last event of the same question, if it has no answer yet and what was used does
    not come from elsewhere. So one question that was recalled for and then observed counts once.
    """
    for number, data, step, at, answer, listed in connection.execute(_LATEST, (space.id,)):
        cosine = np.frombuffer(data, dtype="<f4") @ vector
        if cosine < 1.0 - _SAME:
            continue
        recalled = parsed(listed, f"query {number}", "text")
        is_elsewhere = bool(used and recalled) and set(used).isdisjoint(recalled)
        if answer is not None or is_elsewhere:
            return None
        return _Recall(number, step, at, recalled)
    return None


def _prune_queries(connection: Connection, space: Space) -> None:
    """Delete query events beyond the window that utilities look at."""
    connection.execute(_PRUNE, (space.id, QUERY_WINDOW))


def recent_queries(connection: Connection, space: int) -> list[QueryEvent]:
    """Return the recent queries of a namespace, oldest first."""
    rows = connection.execute(_RECENT, (space, QUERY_WINDOW)).fetchall()
    events = []
    for step, data, text, answer in reversed(rows):
        vector = np.frombuffer(data, dtype="<f4")
        events.append(QueryEvent(step, vector, text, answer))
    return events


def _live(connection: Connection, space: Space, names: Sequence[str]) -> list[TierRow]:
    """Return the live items of these ids, without vectors."""
    where = "+namespace = ? AND +live = 1 AND id IN (SELECT value FROM json_each(?))"
    return tiers.select(connection, where, (space.id, dump(list(names))))
