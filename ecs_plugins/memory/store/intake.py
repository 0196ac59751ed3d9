"""Adding messages: they are logged, then each founds an item or supports one.

That is done one after the other, since a message may repeat what an earlier one of the same batch
has founded: its row is put into the index at once, and taken back should the transaction fail. Rows
that are replaced stay in the index until the transaction is on disk, so that a reader of the state
before finds them. What a message repeats is decided by `ecs_plugins.memory.admission`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ecs_plugins.common.text import as_reply
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import admit
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.messages import NewMessage, expiry
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import SpaceIndex
from ecs_plugins.memory.store.tiers import TierRow, earliest, shared
from ecs_plugins.memory.support import support_among
from ecs_plugins.memory.types import ColdMemory, HotItem, Matrix, Namespace, Tier, Vector
from ecs_plugins.storage.base import Connection

_TIE = 1e-6  # cosines closer than this are equal: the older row is taken
_FIRST_LOOK = 4


def embedded(
    store: MemoryStore, namespace: Namespace, messages: Sequence[NewMessage], ids: Sequence[str]
) -> tuple[list[NewMessage], Matrix]:
    """Messages with the questions that they reply to, and the vectors of what they are read as."""
    messages = [*messages]
    if store.config.rule != "paper":  # which knows no replies
        now = time.time()
        with store.reading(namespace) as (connection, space):
            latest = [] if space is None else log.log(connection, space.id, now=now, limit=1)
        messages = log.replies(messages, ids, latest[0] if latest else None, now)
    return messages, store.embed([as_reply(message.text, message.asked) for message in messages])


def add(
    store: MemoryStore,
    namespace: Namespace,
    messages: Sequence[NewMessage],
    ids: Sequence[str],
    vectors: Matrix,
    *,
    pinned: bool,
) -> tuple[int, int]:
    """Add messages in one transaction, up to the sleep phase that falls due among them.

    Returns how many were added, and how many there are since the last sleep phase.
    """
    every, count = store.config.sleep_every, len(messages)
    sleeps = store.settings.sleep == "caller" and not store.database.is_writing
    with store.writing_to(namespace, create=True, flush=False) as (connection, space):
        assert space is not None
        first = messages[0]
        if first.asked and not log.is_asked(connection, first):  # erased meanwhile
            messages = [replace(first, asked="", asker=None), *messages[1:]]
            vectors = np.concatenate([store.embed([messages[0].text]), vectors[1:]])
        if sleeps:
            count = min(count, every - space.since_sleep % every)
        intake = Intake(store, connection, space, pinned=pinned)
        intake.add(messages[:count], ids[:count], vectors[:count])
        return count, space.since_sleep


class _Near(NamedTuple):
    """An item that a message may repeat, and the cosine of the two."""

    stored: TierRow
    cosine: float


class Intake:
    """Adds messages to one namespace within one write transaction; the caller saves the space."""

    def __init__(
        self, store: MemoryStore, connection: Connection, space: Space, *, pinned: bool
    ) -> None:
        self._database = store.database
        self._connection = connection
        self._space = space
        self._config = store.config
        self._now = time.time()
        self._pinned = pinned
        self._joined: list[tuple[str, str, int]] = []
        self._unwritten: list[TierRow] = []
        self._index: SpaceIndex | None = None
        if not pinned and store.config.rule != "paper":
            self._index = store.indexes.current(connection, space)

    def add(self, messages: Sequence[NewMessage], ids: Sequence[str], vectors: Matrix) -> None:
        """Log messages and let each found or support an item."""
        space = self._space
        log.insert(self._connection, space, messages, ids, vectors, self._now)
        if self._index is not None:
            self._index.expect(vectors, _FIRST_LOOK)
        self._rows = iter(self._database.new_rows(self._connection, "tiers", len(messages)))
        for message, name, vector in zip(messages, ids, vectors, strict=True):
            space.step += 1
            space.since_sleep += 1
            item = log.item_of(name, vector, space.step, message.text, message.asked)
            if self._pinned:
                row = self._row(item, message)
                insert_pinned(self._connection, space, row, [name], self._config)
            else:
                self._admit(item, message)
        self._flush()
        tiers.join(self._connection, self._joined)
        evict_overflow(self._connection, space, self._config)

    def _admit(self, new: HotItem, message: NewMessage) -> None:
        near = {} if self._index is None else self._near(self._index, new.vector)
        if not near:
            self._write(self._row(new, message), new.id)
            return
        hot, cold = near.get("hot"), near.get("cold")
        item = admit(
            new,
            config=self._config,
            nearest_hot=hot and (hot[0].hot, hot[1]),
            nearest_cold=cold and (cold[0].memory, cold[1]),
        )
        old = hot if isinstance(item, HotItem) else cold
        if item.id == new.id or old is None:
            self._write(self._row(item, message), new.id)
            return
        tiers.delete(self._connection, self._space, [old[0]])
        changed = replace(
            old[0],
            item=item,
            metadata=shared(old[0].metadata, message.metadata),
            changed=self._now,
            expires=earliest(old[0].expires, expiry(message, self._now)),
            version=old[0].version + (old[0].tier == "cold"),
            born=None,
        )
        self._write(changed, new.id)

    def _near(self, opened: SpaceIndex, vector: Vector) -> dict[Tier, _Near]:
        """The item of each tier nearest to a vector, if it is near enough to be repeated."""
        floor = self._config.merge_threshold - _TIE
        wanted = _FIRST_LOOK
        while True:
            rows, scores = opened.nearest(vector, wanted)
            near = self._stored(rows[scores >= floor].tolist(), len(vector))
            best = _best_of_each_tier(near, vector)
            if len(rows) < wanted or scores[-1] < floor:
                return best
            populated = [tier for tier, count in self._space.count.items() if count]
            if len(best) >= len(populated):
                return best
            wanted *= 4

    def _stored(self, rows: Sequence[int], dimension: int) -> list[TierRow]:
        """The live items of rows, in the order of these."""
        gone = set(self._space.gone)
        near = [row for row in rows if row not in gone]
        if not near:
            return []
        self._flush()
        stored = tiers.by_rows(self._connection, self._space.id, near, dimension)
        return sorted(stored.values(), key=lambda each: each.row)

    def _row(self, item: HotItem | ColdMemory, message: NewMessage) -> TierRow:
        at = self._now if message.at is None else message.at
        return TierRow(item, message.metadata, at, at, expiry(message, self._now))

    def _write(self, new: TierRow, message: str) -> None:
        new = replace(new, row=next(self._rows))
        self._unwritten.append(new)
        self._joined.append((message, new.item.id, new.version))
        if self._index is not None:
            self._index.add(new.row, new.item.vector)
            self._space.written[new.row] = f"{new.item.asked} {new.item.text}"

    def _flush(self) -> None:
        """Write the new rows together: a server would be waited for once for each."""
        tiers.insert_numbered(self._connection, self._space, self._unwritten)
        self._unwritten = []


def _best_of_each_tier(rows: Sequence[TierRow], vector: Vector) -> dict[Tier, _Near]:
    """The item of each tier that is nearest to a vector; of equals, the older row."""
    best: dict[Tier, _Near] = {}
    for each in rows:
        cosine = float(each.item.vector @ vector)
        known = best.get(each.tier)
        if known is None or cosine > known.cosine + _TIE:
            best[each.tier] = _Near(each, cosine)
    return best


def insert_pinned(
    connection: Connection, space: Space, hot: TierRow, members: Sequence[str], config: MemoryConfig
) -> None:
    """Put what a hot item says into the cold tier, pinned; the next sleep phase makes room."""
    check_room_to_pin(connection, space, config)
    item = hot.item
    name = log.new_ids(1)[0]
    memory = ColdMemory(name, item.vector, item.evidence, item.text, pinned=True, asked=item.asked)
    tiers.insert(connection, space, replace(hot, item=memory, row=0), members)


def check_room_to_pin(connection: Connection, space: Space, config: MemoryConfig) -> None:
    """Refuse to pin more memories than the cold tier holds."""
    pinned = connection.execute(
        "SELECT count(*) FROM tiers WHERE namespace = ? AND live = 1 AND pinned = 1", (space.id,)
    ).fetchone()[0]
    if pinned >= config.cold_capacity:
        raise InvalidInputError(
            f"the cold tier holds {pinned} pinned memories and has room for "
            f"{config.cold_capacity}; unpin or delete some, or raise cold_capacity"
        )


_SEEN = "CAST(evidence ->> '{}' AS DOUBLE PRECISION)".format
_ATTESTATIONS = f"(coalesce({_SEEN('support')}, 1) + coalesce({_SEEN('hits')}, 0))"
_LEAVING = {
    "default": f"({_ATTESTATIONS} > judged AND {_ATTESTATIONS} >= ?2), {_SEEN('last_seen')},",
    "paper": "",
}


def evict_overflow(connection: Connection, space: Space, config: MemoryConfig) -> None:
    """Let the hot items that are too many leave the tier; their messages stay in the log.

    The paper's rule removes the oldest. The default removes those first that the next sleep phase
    would not propose anyway, the longest unseen leading.
    """
    excess = space.count["hot"] - config.hot_capacity
    if excess <= 0:
        return
    leaving = connection.execute(
        "SELECT row, id FROM tiers WHERE namespace = ?1 AND live = 1 AND tier = 'hot' ORDER BY"
        f" {_LEAVING[config.rule]} {_SEEN('created')}, row LIMIT ?3",
        (space.id, _needed_support(connection, space, config), excess),
    ).fetchall()
    connection.executemany("DELETE FROM tiers WHERE row = ?", ((row,) for row, _ in leaving))
    space.left("hot", [row for row, _ in leaving])
    tiers.forget_provenance(connection, [name for _, name in leaving])


def _needed_support(connection: Connection, space: Space, config: MemoryConfig) -> int:
    """`ecs_plugins.memory.support.needed_support` of what stands in both tiers."""
    if config.min_support is not None:
        return config.min_support
    again = f"CASE WHEN coalesce({_SEEN('support')}, 1) > 1 THEN 1 ELSE 0 END"
    count, repeated = connection.execute(
        f"SELECT count(*), coalesce(sum({again}), 0) FROM tiers WHERE namespace = ? AND live = 1",
        (space.id,),
    ).fetchone()
    return support_among(int(repeated), int(count))
