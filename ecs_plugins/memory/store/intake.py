"""What happens between two sleep phases, written: messages, retrieval hits, observed outcomes.

What follows from each is decided by `ecs_plugins.memory.admission`. An ``add`` logs its messages,
then lets each found or support an item, one after the other, since one may repeat what an earlier
one of the same batch has founded: its row is put into the index at once, and taken back should the
transaction fail. Rows that are replaced stay in the index until the transaction is on disk, so
that a reader of the state before finds them.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import (
    admit,
    founded,
    overflow,
    record_hit,
    record_outcome,
    repeated,
)
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.database import dump, pack
from ecs_plugins.memory.store.messages import NewMessage, expiry
from ecs_plugins.memory.store.tiers import Space, TierRow, earliest, shared
from ecs_plugins.memory.store.vector_index import Indexes, OpenIndex
from ecs_plugins.memory.types import (
    ColdMemory,
    HotItem,
    Matrix,
    Observation,
    QueryEvent,
    Tier,
    Vector,
)
from ecs_plugins.memory.utility import QUERY_WINDOW

ERASURES = "erasures"  # in `meta`
_SAME = 1e-6  # cosine distance of a question to itself, embedded twice
_TIE = 1e-6  # cosines closer than this are equal: the older row is taken
_FIRST_LOOK = 4
_SCREENED = 128  # messages compared with the index at once


class Intake:
    """Adds messages to one namespace within one write transaction; the caller saves the space."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        space: Space,
        *,
        config: MemoryConfig,
        indexes: Indexes,
        now: float,
    ) -> None:
        self._connection = connection
        self._space = space
        self._config = config
        self._indexes = indexes
        self._now = now
        self._index: OpenIndex | None = None

    def add(
        self, messages: Sequence[NewMessage], ids: Sequence[str], vectors: Matrix, *, pinned: bool
    ) -> None:
        """Log messages and admit each.

        Raises:
            InvalidInputError: Pinned memories alone would exceed the cold capacity.
        """
        space = self._space
        if not (pinned or self._config.rule == "paper"):
            self._index = self._indexes.current(self._connection, space)
        log.insert(self._connection, space, messages, ids, vectors, self._now)
        for start in range(0, len(messages), _SCREENED):
            self._screen(vectors[start : start + _SCREENED])
            for at in range(start, min(start + _SCREENED, len(messages))):
                space.step += 1
                space.since_sleep += 1
                message = messages[at]
                asked = message.reply_to.text if message.reply_to else ""
                said = Observation(ids[at], vectors[at], space.step, message.text, asked)
                self._admit(said, message, pinned)
        evict_overflow(self._connection, space, self._config)

    def _screen(self, vectors: Matrix) -> None:
        """Note how near anything in the index comes to each of the next messages."""
        if self._index is not None:
            self._next, self._nearest = vectors, self._index.index.highest(vectors)

    def _comes_near(self) -> bool:
        """Whether anything comes near to the next message, which is done with then."""
        if self._index is None:
            return False
        score, self._next, self._nearest = self._nearest[0], self._next[1:], self._nearest[1:]
        return bool(score >= self._config.merge_threshold - 2 * _TIE)

    def _admit(self, observation: Observation, message: NewMessage, pinned: bool) -> None:
        near = self._near(observation, self._index) if self._comes_near() else {}
        if pinned:
            self._pin(observation, message)
        elif not near:
            self._found(founded(observation), message)
        else:
            hot, cold = near.get("hot"), near.get("cold")
            admission = admit(
                observation,
                config=self._config,
                nearest_hot=hot and (hot[0].hot, hot[1]),
                nearest_cold=cold and (cold[0].memory, cold[1]),
            )
            if admission.kind == "append":
                assert isinstance(admission.item, HotItem)
                self._found(admission.item, message)
            else:
                old = hot if admission.kind == "reinforce_hot" else cold
                assert old is not None
                self._replace(old[0], admission.item, message, observation.id)

    def _near(
        self, observation: Observation, opened: OpenIndex | None
    ) -> dict[Tier, tuple[TierRow, float]]:
        """The item of each tier nearest to an observation, if it is near enough to be repeated."""
        assert opened is not None
        vector, floor = observation.vector, self._config.merge_threshold - _TIE
        wanted, gone = _FIRST_LOOK, set(self._space.gone)
        while True:
            rows, scores = opened.index.search(vector, wanted)
            near = [row for row in rows[scores >= floor].tolist() if row not in gone]
            found: dict[Tier, tuple[TierRow, float]] = {}
            stored = (
                tiers.by_rows(self._connection, self._space.id, near, len(vector)) if near else {}
            )
            for each in sorted(stored.values(), key=lambda row: row.row):
                score = float(each.item.vector @ vector)
                if each.tier not in found or score > found[each.tier][1] + _TIE:
                    found[each.tier] = each, score
            exhausted = len(rows) < wanted or scores[-1] < floor
            if len(found) == 2 or exhausted:
                return found
            wanted *= 4

    def _found(self, item: HotItem, message: NewMessage) -> None:
        at = self._now if message.at is None else message.at
        row = TierRow(item, message.metadata, at, at, expiry(message, self._now))
        self._write(row, item.members)

    def _replace(
        self, old: TierRow, item: HotItem | ColdMemory, message: NewMessage, said: str
    ) -> None:
        tiers.delete(self._connection, self._space, [old])
        new = replace(
            old,
            item=item,
            metadata=shared(old.metadata, message.metadata),
            changed=self._now,
            expires=earliest(old.expires, expiry(message, self._now)),
            version=old.version + (old.tier == "cold"),
            born=None,
        )
        self._write(new, [said])

    def _write(self, new: TierRow, members: Sequence[str]) -> None:
        row = tiers.insert(self._connection, self._space, new, members)
        if self._index is not None:
            self._index.add(row, new.item.vector)
            self._nearest = np.maximum(self._nearest, self._next @ new.item.vector)
            self._space.written.append(row)

    def _pin(self, observation: Observation, message: NewMessage) -> None:
        alone = founded(observation)
        insert_pinned(
            self._connection,
            self._space,
            TierRow(alone, message.metadata, self._now, self._now, expiry(message, self._now)),
            members=alone.members,
            capacity=self._config.cold_capacity,
        )


def refolded(
    observations: Sequence[Observation], config: MemoryConfig, *, edited: bool = False
) -> HotItem:
    """One item made of these observations alone, in their order."""
    first, *others = observations
    item = founded(first)
    item = replace(item, evidence=replace(item.evidence, edited=edited))
    for observation in others:
        item = repeated(item, observation, config)
    return item


def derived(
    connection: sqlite3.Connection,
    old: TierRow,
    members: Collection[str],
    config: MemoryConfig,
    dimension: int,
    now: float = float("-inf"),
) -> TierRow | None:
    """A version as those of its messages make it that have not expired; None without any."""
    left = log.observations(connection, members, dimension, now)
    if not left:
        return None
    metadata = left[0][1]
    for _, own, _ in left:
        metadata = shared(metadata, own)
    evidence = old.item.evidence
    item = refolded([each for each, _, _ in left], config, edited=evidence.edited)
    new: HotItem | ColdMemory
    if old.tier == "hot":
        new = replace(item, judged=min(old.hot.judged, item.evidence.support))
    else:
        known = replace(item.evidence, hits=evidence.hits)
        new = replace(
            old.memory, vector=item.vector, text=item.text, asked=item.asked, evidence=known
        )
    expires = earliest(*(expires for _, _, expires in left))
    return replace(old, item=new, metadata=metadata, expires=expires)


def alive(
    connection: sqlite3.Connection,
    rows: Iterable[TierRow],
    now: float,
    config: MemoryConfig,
    dimension: int,
) -> Iterator[TierRow]:
    """What has not expired; of an item that rests on messages of which some have, the rest."""
    for row in rows:
        if row.expires is None or row.expires > now:
            yield row
            continue
        behind = tiers.provenance(connection, [row.item.id]).get(row.item.id, ())
        left = derived(connection, row, behind, config, dimension, now)
        if left is not None:  # under its own id, which a hot item has from its first message
            yield replace(left, item=replace(left.item, id=row.item.id))


def insert_pinned(
    connection: sqlite3.Connection,
    space: Space,
    hot: TierRow,
    *,
    members: Sequence[str],
    capacity: int,
) -> None:
    """Put what a hot item says into the cold tier, pinned; the next sleep phase makes room for it.

    Raises:
        InvalidInputError: The cold tier holds ``capacity`` pinned memories already.
    """
    check_room_to_pin(connection, space, capacity)
    item = hot.item
    name = log.new_ids(1)[0]
    memory = ColdMemory(name, item.vector, item.evidence, item.text, pinned=True, asked=item.asked)
    tiers.insert(connection, space, replace(hot, item=memory, row=0), members)


def check_room_to_pin(connection: sqlite3.Connection, space: Space, capacity: int) -> None:
    """Refuse to pin more memories than the cold tier holds.

    Raises:
        InvalidInputError: There is no room.
    """
    pinned = connection.execute(
        "SELECT count(*) FROM tiers WHERE namespace = ? AND live = 1 AND pinned = 1", (space.id,)
    ).fetchone()[0]
    if pinned >= capacity:
        raise InvalidInputError(
            f"the cold tier holds {pinned} pinned memories and has room for {capacity}; "
            "unpin or delete some, or raise cold_capacity"
        )


def evict_overflow(connection: sqlite3.Connection, space: Space, config: MemoryConfig) -> None:
    """Let the hot items that are too many leave the tier; their messages stay in the log."""
    if space.count["hot"] <= config.hot_capacity:
        return
    rows = tiers.tier_rows(connection, space.id, "hot", members=False)
    leaving = set(overflow([row.hot for row in rows], config))
    tiers.delete(connection, space, [row for row in rows if row.item.id in leaving])
    tiers.forget_provenance(connection, leaving)


@dataclass(frozen=True, slots=True)
class Access:
    """One recall: when, with which query vector, what it returned, after how many erasures.

    ``items`` are ids with their scores.
    """

    step: int
    at: float
    vector: Vector
    items: Mapping[str, float]
    erasures: int


def erasures_of(connection: sqlite3.Connection) -> int:
    """How often something was erased from the file."""
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (ERASURES,)).fetchone()
    return 0 if found is None else int(found[0])


def write_accesses(
    connection: sqlite3.Connection, space: Space, accesses: Sequence[Access]
) -> None:
    """Write recalls: a query event each, a hit for every item that is still in its tier.

    The question of a recall from before an erasure is not written: it may repeat what was erased.
    """
    erasures = erasures_of(connection) if accesses else 0
    for access in sorted(accesses, key=lambda each: each.at):  # some could not be written before
        names = tuple(access.items)
        if access.erasures == erasures:
            _insert_query(connection, space, access.step, access.at, access.vector, names)
        for each in _live(connection, space, names):
            step = max(access.step, each.item.evidence.updated)
            hit = record_hit(each.item, step=step, score=access.items[each.item.id])
            tiers.update(connection, each.row, hit)
    if accesses:
        _prune_queries(connection, space)


def write_observation(
    connection: sqlite3.Connection,
    space: Space,
    *,
    vector: Vector,
    items: Sequence[str],
    text: str,
    answer: str,
    outcome: bool | None,
) -> None:
    """Write a question with its answer, and what came of the items that were used."""
    if not _complete_query(connection, space, vector, items, text, answer):
        _insert_query(connection, space, space.step, time.time(), vector, items, text, answer)
    _prune_queries(connection, space)
    if outcome is not None:
        for each in _live(connection, space, items):
            item = record_outcome(each.item, outcome, step=space.step)
            tiers.update(connection, each.row, item)


def _insert_query(
    connection: sqlite3.Connection,
    space: Space,
    step: int,
    at: float,
    vector: Vector,
    items: Sequence[str],
    text: str = "",
    answer: str | None = None,
) -> None:
    # A recall records no text; an observation does, it needs it.
    connection.execute(
        "INSERT INTO queries (namespace, step, at, text, answer, recalled, vector)"
        " VALUES (?,?,?,?,?,?,?)",
        (space.id, step, at, text, answer, dump(list(items)), pack(vector)),
    )


def _complete_query(
    connection: sqlite3.Connection,
    space: Space,
    vector: Vector,
    items: Sequence[str],
    text: str,
    answer: str,
) -> bool:
    """Write question and answer into the event of the recall that they belong to.

    That is the last event of the same question, if it has no answer yet and what was used does
    not come from elsewhere. So one question that was recalled for and then observed counts once.

    Returns:
        Whether there was such an event.
    """
    used = set(items)
    for number, data, known, recalled in connection.execute(
        "SELECT id, vector, answer, recalled FROM queries WHERE namespace = ? ORDER BY id DESC",
        (space.id,),
    ):
        if float(np.frombuffer(data, dtype="<f4") @ vector) < 1.0 - _SAME:
            continue
        found = json.loads(recalled)
        elsewhere = bool(used) and bool(found) and used.isdisjoint(found)
        if known is not None or elsewhere:
            return False
        together = dump([*dict.fromkeys([*found, *items])])
        connection.execute(
            "UPDATE queries SET text = ?, answer = ?, recalled = ? WHERE id = ?",
            (text, answer, together, number),
        )
        return True
    return False


def _prune_queries(connection: sqlite3.Connection, space: Space) -> None:
    """Delete query events beyond the window that utilities look at."""
    connection.execute(
        "DELETE FROM queries WHERE namespace = ?1 AND id <= ("
        "SELECT id FROM queries WHERE namespace = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (space.id, QUERY_WINDOW),
    )


def recent_queries(connection: sqlite3.Connection, space: int) -> list[QueryEvent]:
    """The recent queries of a namespace, oldest first."""
    rows = connection.execute(
        "SELECT step, vector, text, answer FROM queries WHERE namespace = ?"
        " ORDER BY id DESC LIMIT ?",
        (space, QUERY_WINDOW),
    ).fetchall()
    return [
        QueryEvent(step, np.frombuffer(vector, dtype="<f4"), text, answer)
        for step, vector, text, answer in reversed(rows)
    ]


def _live(connection: sqlite3.Connection, space: Space, names: Sequence[str]) -> list[TierRow]:
    """The items of these ids that are in a tier now, without vectors."""
    where = "+namespace = ? AND +live = 1 AND id IN (SELECT value FROM json_each(?))"
    return tiers.select(connection, where, (space.id, dump(list(names))))
