"""The write path of ``add``: log the messages, then let each found or support an item.

All of it happens inside the caller's transaction. Whom a message repeats is looked up in the
indexes as of the beginning of the transaction, corrected by what the transaction itself wrote.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import admit, overflow
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import first_evidence
from ecs_plugins.memory.store import cold_memories, hot_items, rows
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.cold_memories import ColdRow
from ecs_plugins.memory.store.hot_items import HotRow
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.nearest import Nearest
from ecs_plugins.memory.store.open_indexes import OpenIndexes, TierChange
from ecs_plugins.memory.store.screening import Screened, screened
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.writing import Batch, ColdChanges, HotChanges, found_all
from ecs_plugins.memory.types import ColdMemory, HotItem, Matrix, Tier


class Admitting:
    """Adds messages to one namespace within one transaction.

    Args:
        connection: Inside a write transaction.
        space: The namespace; the caller saves it.
        config: The settings.
        indexes: The open indexes.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        space: Space,
        *,
        config: MemoryConfig,
        indexes: OpenIndexes,
        now: float,
    ) -> None:
        self._connection = connection
        self._space = space
        self._config = config
        self._indexes = indexes
        self._now = now
        self._changes: dict[Tier, TierChange] = {}

    def add(
        self,
        messages: Sequence[NewMessage],
        ids: Sequence[str],
        vectors: Matrix,
        *,
        pinned: bool = False,
    ) -> None:
        """Log messages and admit each.

        Raises:
            InvalidInputError: Pinned memories alone would exceed the cold capacity.
        """
        space = self._space
        space.step += 1
        # Looked up before the messages are in the log, where they would find themselves.
        near = None
        if not (self._config.literal or pinned):
            said = screened(vectors)
            near = self._nearest("hot", said), self._nearest("cold", said)
        row = log.insert(self._connection, space, messages, ids, vectors, self._now)
        batch = Batch(messages, ids, vectors, space.step, row, self._now)
        if pinned:
            for at in range(len(ids)):
                self._pin(batch, at)
            hot_items.mark_not_hot(self._connection, space.id, range(row, row + len(ids)))
        elif near is None:
            found_all(self._connection, space, batch)
        else:
            self._merge(batch, *near)
        space.step += len(messages) - 1
        space.since_sleep += len(messages)
        evicted = evict_overflow(self._connection, space, self._config)
        if "hot" in self._changes:
            self._changes["hot"].gone += evicted

    def committed(self) -> None:
        """Tell the indexes, once the transaction is on disk and the namespace saved."""
        for tier, change in self._changes.items():
            if change.rows or change.gone:
                self._indexes.follow(self._space, tier, change)

    def _pin(self, batch: Batch, at: int) -> None:
        observation = batch.observation(at)
        memory = ColdMemory(
            id=log.new_ids(1)[0],
            vector=observation.vector,
            evidence=first_evidence(observation.step),
            text=observation.text,
            pinned=True,
        )
        insert_pinned(
            self._connection,
            self._space,
            memory,
            members=(observation.id,),
            metadata=batch.messages[at].metadata,
            expires=batch.expires(at),
            capacity=self._config.cold_capacity,
            now=self._now,
        )

    def _merge(self, batch: Batch, near_hot: Nearest, near_cold: Nearest) -> None:
        hot = HotChanges(self._connection, self._space, batch, near_hot)
        cold = ColdChanges(self._connection, self._space, batch, near_cold)
        for at in range(len(batch.ids)):
            said, believed = hot.find(at), cold.find(at)
            if said is None and believed is None:
                hot.found(at)  # what `admit` says where nothing is near
            else:
                self._admit(batch, at, hot, cold, said, believed)
        self._changes = {"hot": hot.write(), "cold": cold.write()}

    def _nearest(self, tier: Tier, messages: Screened) -> Nearest:
        index = None
        if self._space.tier(tier).count:
            index = self._indexes.current(self._connection, self._space, tier)
        return Nearest(index, messages, self._config.merge_threshold)

    def _admit(
        self,
        batch: Batch,
        at: int,
        hot: HotChanges,
        cold: ColdChanges,
        said: tuple[HotRow, float] | None,
        believed: tuple[ColdRow, float] | None,
    ) -> None:
        message, expires = batch.messages[at], batch.expires(at)
        admission = admit(
            batch.observation(at),
            config=self._config,
            nearest_hot=said and (said[0].item, said[1]),
            nearest_cold=believed and (believed[0].memory, believed[1]),
        )
        item = admission.item
        if admission.kind == "append":
            hot.found(at, unlike=item.evidence.unlike)
        elif isinstance(item, HotItem):
            assert said is not None
            old = said[0]
            new = replace(
                old,
                item=item,
                metadata=rows.shared(old.metadata, message.metadata),
                expires=rows.earliest(old.expires, expires),
                single=False,
            )
            hot.merge(old, new, at)
        else:
            assert believed is not None
            known = believed[0]
            version = replace(
                known,
                memory=item,
                version=known.version + 1,
                metadata=rows.shared(known.metadata, message.metadata),
                changed=self._now,
                expires=rows.earliest(known.expires, expires),
            )
            cold.merge(known, version, at)


def insert_pinned(
    connection: sqlite3.Connection,
    space: Space,
    memory: ColdMemory,
    *,
    members: Sequence[str],
    metadata: rows.Metadata,
    expires: float | None,
    capacity: int,
    now: float,
) -> None:
    """Put a pinned memory into the cold tier; the next sleep phase makes room for it.

    Raises:
        InvalidInputError: The cold tier holds ``capacity`` pinned memories already.
    """
    check_room_to_pin(connection, space, capacity)
    cold_memories.insert_cold(
        connection,
        space,
        replace(memory, pinned=True),
        version=1,
        metadata=metadata,
        created=now,
        changed=now,
        expires=expires,
    )
    cold_memories.add_provenance(connection, memory.id, 1, members)
    space.appended("cold")


def check_room_to_pin(connection: sqlite3.Connection, space: Space, capacity: int) -> None:
    """Refuse to pin more memories than the cold tier holds.

    Raises:
        InvalidInputError: There is no room.
    """
    pinned = connection.execute(
        "SELECT count(*) FROM memories WHERE namespace = ? AND live = 1 AND pinned = 1",
        (space.id,),
    ).fetchone()[0]
    if pinned >= capacity:
        raise InvalidInputError(
            f"the cold tier holds {pinned} pinned memories and has room for {capacity}; "
            "unpin or delete some, or raise cold_capacity"
        )


def evict_overflow(connection: sqlite3.Connection, space: Space, config: MemoryConfig) -> list[int]:
    """Let the hot items that are too many leave the tier; their messages stay in the log.

    Returns:
        Their row numbers.
    """
    if space.hot.count <= config.hot_capacity:
        return []
    rows = hot_items.hot_tier(connection, space.id)
    leaving = set(overflow([row.item for row in rows], config))
    gone = [row.row for row in rows if row.item.id in leaving]
    hot_items.delete_hot(connection, space.id, gone)
    space.rewrote("hot", -len(gone))
    return gone
