"""The write path of ``add``: log the messages, then let each found or support an item.

All of it happens inside the caller's transaction. Whom a message repeats is looked up in the
indexes as of the beginning of the transaction, corrected by what the transaction itself wrote.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory import cold_memories, hot_items, rows
from ecs_plugins.memory import messages as log
from ecs_plugins.memory.admission import admit, overflow
from ecs_plugins.memory.cold_memories import ColdRow
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import first_evidence
from ecs_plugins.memory.hot_items import HotRow
from ecs_plugins.memory.index import VectorIndex
from ecs_plugins.memory.messages import NewMessage
from ecs_plugins.memory.open_indexes import OpenIndexes
from ecs_plugins.memory.spaces import Space
from ecs_plugins.memory.types import ColdMemory, HotItem, Matrix, Observation, Vector


class _Nearest:
    """The nearest row of a tier, in this transaction's own view."""

    def __init__(self, index: VectorIndex, dimension: int) -> None:
        self._index = index
        self._gone: set[int] = set()
        self._rows: list[int] = []
        self._vectors: Matrix = np.empty((16, dimension), dtype=np.float32)

    def find(self, vector: Vector) -> tuple[int, float] | None:
        best: tuple[int, float] | None = None
        entries, scores = self._index.search(vector, 1 + len(self._gone))
        for entry, score in zip(entries.tolist(), scores.tolist(), strict=True):
            if entry not in self._gone:
                best = (entry, score)
                break
        if self._rows:
            own = self._vectors[: len(self._rows)] @ vector
            own[[row in self._gone for row in self._rows]] = -np.inf
            at = int(np.argmax(own))
            if np.isfinite(own[at]) and (best is None or own[at] > best[1]):
                best = (self._rows[at], float(own[at]))
        return best

    def add(self, row: int, vector: Vector) -> None:
        if len(self._rows) == len(self._vectors):
            self._vectors = np.concatenate([self._vectors, np.empty_like(self._vectors)])
        self._vectors[len(self._rows)] = vector
        self._rows.append(row)

    def remove(self, row: int) -> None:
        self._gone.add(row)


class Admitting:
    """Adds messages to one namespace within one transaction.

    Args:
        connection: Inside a write transaction.
        space: The namespace; the caller saves it.
        config: The settings.
        indexes: The open indexes.
        dimension: Length of the vectors.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        space: Space,
        *,
        config: MemoryConfig,
        indexes: OpenIndexes,
        dimension: int,
        now: float,
    ) -> None:
        self._connection = connection
        self._space = space
        self._config = config
        self._dimension = dimension
        self._now = now
        self._hot: _Nearest | None = None
        self._cold: _Nearest | None = None
        # Where nothing is merged, nobody looks for an item before the end of the transaction.
        self._appended: list[tuple[HotItem, rows.Metadata, float | None]] = []
        if config.on_add == "merge":
            self._hot = _Nearest(indexes.current(connection, space, "hot"), dimension)
            self._cold = _Nearest(indexes.current(connection, space, "cold"), dimension)

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
        log.insert(self._connection, space, messages, ids, vectors, self._now)
        for message, name, vector in zip(messages, ids, vectors, strict=True):
            observation = Observation(name, vector, space.step, message.text, message.label)
            at = self._now if message.at is None else message.at
            expires = None if message.ttl is None else at + message.ttl
            if pinned:
                self._pin(observation, message, expires)
            else:
                self._admit(observation, message, expires)
            space.step += 1
        space.step -= 1
        space.since_sleep += len(messages)
        hot_items.append_hot(self._connection, space, self._appended)
        self._appended.clear()
        evict_overflow(self._connection, space, self._config)

    def _pin(self, observation: Observation, message: NewMessage, expires: float | None) -> None:
        memory = ColdMemory(
            id=log.new_ids(1)[0],
            vector=observation.vector,
            evidence=first_evidence(observation.step, observation.label),
            text=observation.text,
            pinned=True,
        )
        insert_pinned(
            self._connection,
            self._space,
            memory,
            members=(observation.id,),
            metadata=message.metadata,
            expires=expires,
            capacity=self._config.cold_capacity,
            now=self._now,
        )

    def _admit(self, observation: Observation, message: NewMessage, expires: float | None) -> None:
        hot, cold = self._nearest_hot(observation.vector), self._nearest_cold(observation.vector)
        admission = admit(
            observation,
            config=self._config,
            statistics=self._space.statistics,
            nearest_hot=hot and (hot[0].item, hot[1]),
            nearest_cold=cold and (cold[0].memory, cold[1]),
        )
        self._space.statistics = admission.statistics
        item = admission.item
        if admission.kind == "append":
            assert isinstance(item, HotItem)
            self._append(item, message.metadata, expires)
        elif admission.kind == "reinforce_hot":
            assert isinstance(item, HotItem)
            assert hot is not None
            self._reinforce_hot(hot[0], item, message, expires)
        else:
            assert isinstance(item, ColdMemory)
            assert cold is not None
            self._reinforce_cold(cold[0], item, observation.id, message, expires)

    def _append(self, item: HotItem, metadata: rows.Metadata, expires: float | None) -> None:
        self._space.appended("hot")
        self._space.novel += 1
        if self._hot is None:
            self._appended.append((item, metadata, expires))
            return
        row = hot_items.insert_hot(
            self._connection,
            self._space,
            item,
            metadata=metadata,
            expires=expires,
            borrowed=True,
        )
        self._hot.add(row, item.vector)

    def _nearest_hot(self, vector: Vector) -> tuple[HotRow, float] | None:
        found = None if self._hot is None else self._hot.find(vector)
        if found is None or found[1] < self._config.merged_from:
            return None  # `admit` would not merge; spare the look at the row
        rows = hot_items.hot_rows(self._connection, [found[0]], self._dimension)
        return (rows[found[0]], found[1]) if found[0] in rows else None

    def _nearest_cold(self, vector: Vector) -> tuple[ColdRow, float] | None:
        found = None if self._cold is None else self._cold.find(vector)
        if found is None or found[1] < self._config.merged_from:
            return None
        rows = cold_memories.cold_rows(self._connection, [found[0]], self._dimension)
        return (rows[found[0]], found[1]) if found[0] in rows else None

    def _reinforce_hot(
        self, old: HotRow, item: HotItem, message: NewMessage, expires: float | None
    ) -> None:
        assert self._hot is not None
        hot_items.add_members(self._connection, item.id, [item.id, *item.members])
        row = hot_items.insert_hot(
            self._connection,
            self._space,
            item,
            metadata=rows.shared(old.metadata, message.metadata),
            expires=rows.earliest(old.expires, expires),
            borrowed=False,
        )
        hot_items.delete_hot(self._connection, [old.row])
        self._space.rewrote("hot")
        self._hot.remove(old.row)
        self._hot.add(row, item.vector)

    def _reinforce_cold(
        self,
        old: ColdRow,
        memory: ColdMemory,
        message_id: str,
        message: NewMessage,
        expires: float | None,
    ) -> None:
        assert self._cold is not None
        row = cold_memories.insert_cold(
            self._connection,
            self._space,
            memory,
            version=old.version + 1,
            metadata=rows.shared(old.metadata, message.metadata),
            created=old.created,
            changed=self._now,
            expires=rows.earliest(old.expires, expires),
            judged=old.judged,
        )
        cold_memories.add_provenance(self._connection, memory.id, old.version + 1, [message_id])
        cold_memories.retire_cold(self._connection, [old.row], None)
        self._space.rewrote("cold")
        self._cold.remove(old.row)
        self._cold.add(row, memory.vector)


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


def evict_overflow(connection: sqlite3.Connection, space: Space, config: MemoryConfig) -> None:
    """Let the hot items that are too many leave the tier; their messages stay in the log."""
    if space.hot.count <= config.hot_capacity:
        return
    rows = hot_items.hot_tier(connection, space.id)
    leaving = set(overflow([row.item for row in rows], config))
    gone = [row.row for row in rows if row.item.id in leaving]
    hot_items.delete_hot(connection, gone)
    space.rewrote("hot", -len(gone))
