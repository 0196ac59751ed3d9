"""The tiers as one ``add`` sees and changes them; what has changed is written once, at its end.

A message may found an item that the next one supports, so only the last state of an item is
written. The row number of an item is that of the message which made it what it is, so it does not
depend on how the messages are batched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ecs_plugins.memory.evidence import first_evidence
from ecs_plugins.memory.store import cold_memories, hot_items
from ecs_plugins.memory.store.cold_memories import ColdRow
from ecs_plugins.memory.store.hot_items import HotRow
from ecs_plugins.memory.store.messages import NewMessage, expiry
from ecs_plugins.memory.store.nearest import Nearest
from ecs_plugins.memory.store.open_indexes import TierChange
from ecs_plugins.memory.store.rows import next_row
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.types import HotItem, Matrix, Observation
from ecs_plugins.memory.wording import Difference


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that are in the log and are now to be admitted.

    Attributes:
        messages: What was said.
        ids: Their ids.
        vectors: ``[messages, dimension]``.
        step: Of the first one; the others follow.
        row: Of the first one in the log; the others follow.
        now: Seconds since 1970.
    """

    messages: Sequence[NewMessage]
    ids: Sequence[str]
    vectors: Matrix
    step: int
    row: int
    now: float

    def observation(self, at: int) -> Observation:
        """Message number ``at``."""
        message = self.messages[at]
        step = self.step + at
        return Observation(self.ids[at], self.vectors[at], step, message.text)

    def expires(self, at: int) -> float | None:
        """When message number ``at`` expires."""
        return expiry(self.messages[at], self.now)

    def founded(self, at: int) -> HotRow:
        """The hot item of message number ``at`` alone."""
        message, name = self.messages[at], self.ids[at]
        item = HotItem(
            id=name,
            vector=self.vectors[at],
            evidence=first_evidence(self.step + at),
            members=(name,),
            text=message.text,
        )
        return HotRow(self.row + at, item, message.metadata, self.expires(at), single=True)


def found_all(connection: sqlite3.Connection, space: Space, batch: Batch) -> None:
    """Let every message found a hot item, as where nothing is merged."""
    space.appended("hot", len(batch.ids))
    space.novel += len(batch.ids)
    _found(connection, space, batch, range(len(batch.ids)))


def _found(
    connection: sqlite3.Connection, space: Space, batch: Batch, messages: Collection[int]
) -> None:
    """Write the items of single messages, which they are by being in the log."""
    if len(messages) < len(batch.ids):
        alone = set(messages)
        others = [batch.row + at for at in range(len(batch.ids)) if at not in alone]
        hot_items.mark_not_hot(connection, space.id, others)


def _insert(connection: sqlite3.Connection, space: Space, item: HotRow) -> None:
    hot_items.insert_hot(
        connection,
        space,
        item.item,
        metadata=item.metadata,
        expires=item.expires,
        borrowed=item.single,
        row=item.row,
    )


class HotChanges:
    """What a batch makes of the hot tier.

    Args:
        connection: Inside a write transaction.
        space: The namespace; the caller saves it.
        batch: The messages.
        nearest: Which item each of them is nearest to.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        space: Space,
        batch: Batch,
        nearest: Nearest,
    ) -> None:
        self._connection = connection
        self._space = space
        self._batch = batch
        self._nearest = nearest
        self._founded: dict[int, int] = {}  # row -> message, of items of that message alone
        self._changed: dict[int, HotRow] = {}  # row -> item that says more than its message
        self._members: list[tuple[str, str]] = []
        self._replaced: list[int] = []
        self._novel = 0

    def find(self, at: int) -> tuple[HotRow, float] | None:
        """The item nearest to message number ``at``, and the cosine between them."""
        row = self._nearest.find(at)
        if row is None:
            return None
        vector = self._batch.vectors[at]
        if row in self._founded:
            found = self._batch.founded(self._founded[row])
        elif row in self._changed:
            found = self._changed[row]
        else:
            stored = hot_items.hot_rows(self._connection, self._space.id, [row], len(vector))
            if row not in stored:
                return None
            found = stored[row]
        return found, float(found.item.vector @ vector)

    def found(self, at: int, unlike: Difference | None = None) -> None:
        """Message number ``at`` founds an item, ``unlike`` the one that it is near to."""
        self._novel += 1
        row = self._batch.row + at
        if unlike is None:
            self._founded[row] = at
        else:
            founded = self._batch.founded(at)
            evidence = replace(founded.item.evidence, unlike=unlike)
            self._changed[row] = replace(founded, item=replace(founded.item, evidence=evidence))
        self._nearest.founded(row, at)

    def merge(self, old: HotRow, new: HotRow, at: int) -> None:
        """Message number ``at`` turns an item into a new one; its row number is given here."""
        row = self._batch.row + at
        item = new.item
        self._changed[row] = replace(new, row=row)
        self._members += [(item.id, item.id), (item.id, self._batch.ids[at])]
        if self._founded.pop(old.row, None) is None and self._changed.pop(old.row, None) is None:
            self._replaced.append(old.row)
        self._nearest.changed(old.row, row, item.vector, at)

    def write(self) -> TierChange:
        """Write what has changed."""
        change = TierChange(self._space.hot.generation, gone=self._replaced)
        if self._novel:
            self._space.appended("hot", self._novel)
            self._space.novel += self._novel
        _found(self._connection, self._space, self._batch, self._founded.values())
        for new in self._changed.values():
            _insert(self._connection, self._space, new)
        for row in sorted([*self._founded, *self._changed]):
            founded = row in self._founded
            change.rows.append(row)
            change.vectors.append(
                self._batch.vectors[self._founded[row]]
                if founded
                else self._changed[row].item.vector
            )
        if self._members:
            hot_items.add_members(self._connection, self._members)
        if self._replaced:
            hot_items.delete_hot(self._connection, self._space.id, self._replaced)
            self._space.rewrote("hot")
        return change


class ColdChanges:
    """What a batch makes of the cold tier: it only supports what is there.

    Args:
        connection: Inside a write transaction.
        space: The namespace; the caller saves it.
        batch: The messages.
        nearest: Which memory each of them is nearest to.
    """

    def __init__(
        self, connection: sqlite3.Connection, space: Space, batch: Batch, nearest: Nearest
    ) -> None:
        self._connection = connection
        self._space = space
        self._batch = batch
        self._nearest = nearest
        self._next = 0
        self._merged: dict[int, ColdRow] = {}
        self._joined: list[tuple[str, str, int]] = []
        self._replaced: list[int] = []

    def find(self, at: int) -> tuple[ColdRow, float] | None:
        """The memory nearest to message number ``at``, and the cosine between them."""
        row = self._nearest.find(at)
        if row is None:
            return None
        vector = self._batch.vectors[at]
        found = self._merged.get(row)
        if found is None:
            stored = cold_memories.cold_rows(self._connection, [row], len(vector))
            if row not in stored:
                return None
            found = stored[row]
        return found, float(found.memory.vector @ vector)

    def merge(self, old: ColdRow, new: ColdRow, at: int) -> None:
        """Message number ``at`` turns a memory into a new version; its row is given here."""
        self._next = self._next or next_row(self._connection, "memories")
        row = self._next
        self._next += 1
        self._merged[row] = replace(new, row=row, born=None)
        self._joined.append((self._batch.ids[at], new.memory.id, new.version))
        if self._merged.pop(old.row, None) is None:
            self._replaced.append(old.row)
        self._nearest.changed(old.row, row, new.memory.vector, at)

    def write(self) -> TierChange:
        """Write what has changed."""
        change = TierChange(self._space.cold.generation, gone=self._replaced)
        if not self._merged:
            return change
        cold_memories.insert_all(self._connection, self._merged.values())
        cold_memories.join(self._connection, self._joined)
        cold_memories.retire_cold(self._connection, self._replaced, None)
        self._space.rewrote("cold")
        for row, new in self._merged.items():  # in the order of their numbers
            change.rows.append(row)
            change.vectors.append(new.memory.vector)
        return change
