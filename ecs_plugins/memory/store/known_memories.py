"""The cold tier for sleep phases, without reading again what was read before.

A version of a memory is a row whose text, metadata and vector never change while the epoch lasts
(`schema`); only its evidence, its pin and its judgement are written in place. So a row that was
read, checked and parsed once is known again if one query over the small columns finds them as
they were, whoever has written meanwhile. What that query does not find is forgotten, so nothing
that was erased is ever handed out.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ecs_plugins.memory.store.cold_memories import (
    ColdRow,
    cold_rows,
    cold_tier,
    stored_judgement,
)
from ecs_plugins.memory.store.rows import dump_evidence
from ecs_plugins.memory.store.spaces import Space

BUDGET: Final = 1 << 26
"""Bytes; the namespaces that slept longest ago are forgotten beyond it."""

_OBJECTS = 2000  # bytes of a row's Python objects, besides text and vector

_Small: TypeAlias = tuple[int, int, float | None, float | None, float | None, str]
"""Of a live row: its number, and all that is ever written in place."""

_SMALL = (
    "SELECT row, pinned, energy, entropy, free_energy, evidence FROM memories"
    " WHERE namespace = ? AND live = 1 ORDER BY row"
)


@dataclass(frozen=True, slots=True)
class ColdTier:
    """The cold tier of a namespace as of one transaction, oldest row first.

    Attributes:
        rows: The memories, with vectors.
    """

    rows: Sequence[ColdRow]


@dataclass(frozen=True, slots=True)
class _Entry:
    row: ColdRow
    size: int

    @classmethod
    def of(cls, row: ColdRow) -> _Entry:
        size = row.memory.vector.nbytes + sys.getsizeof(row.memory.text) + _OBJECTS
        return cls(row, size)


@dataclass(frozen=True, slots=True)
class _Known:
    epoch: int
    entries: Mapping[_Small, _Entry]
    size: int


class KnownMemories:
    """The cold tiers that were read before. Thread-safe.

    Args:
        budget: Bytes, roughly, of what is kept.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def tier(self, connection: sqlite3.Connection, space: Space, dimension: int) -> ColdTier:
        """The cold tier of a namespace.

        Args:
            connection: Inside a transaction that has written no memories: what is rolled back
                must not be known.
            space: The namespace.
            dimension: Length of the vectors.

        Raises:
            StorageError: A row that is not known is damaged.
        """
        with self._lock:
            known = self._known.pop(space.id, None)
        before = known.entries if known is not None and known.epoch == space.epoch else {}
        small: list[_Small] = connection.execute(_SMALL, (space.id,)).fetchall()
        entries = list(map(before.get, small))
        missing = [each[0] for each, entry in zip(small, entries, strict=True) if entry is None]
        read = _read(connection, space, missing, small, dimension)
        found = [
            _Entry.of(read[each[0]]) if entry is None else entry
            for each, entry in zip(small, entries, strict=True)
        ]
        size = sum(entry.size for entry in found)
        self._keep(space.id, _Known(space.epoch, dict(zip(small, found, strict=True)), size))
        return ColdTier([entry.row for entry in found])

    def note(self, space: Space, rows: Iterable[ColdRow]) -> None:
        """Know the rows that a transaction has written and committed.

        Should they have changed meanwhile, they will not be found as they are noted, and be read.
        """
        with self._lock:
            known = self._known.get(space.id)
            if known is None or known.epoch != space.epoch:
                return
            new = {_small(row): _Entry.of(row) for row in rows}
            size = known.size + sum(entry.size for entry in new.values())
            self._known[space.id] = _Known(space.epoch, {**known.entries, **new}, size)

    def _keep(self, space: int, known: _Known) -> None:
        with self._lock:
            self._known[space] = known
            total = self._size()
            while total > self._budget:
                total -= self._known.popitem(last=False)[1].size

    def forget(self, space: int) -> None:
        """Let go of what is known of a namespace."""
        with self._lock:
            self._known.pop(space, None)

    @property
    def size(self) -> int:
        """Bytes, roughly, of what is kept."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        return sum(known.size for known in self._known.values())


def _small(row: ColdRow) -> _Small:
    memory = row.memory
    return row.row, int(memory.pinned), *stored_judgement(row), dump_evidence(memory.evidence)


def _read(
    connection: sqlite3.Connection,
    space: Space,
    missing: Sequence[int],
    small: Sequence[_Small],
    dimension: int,
) -> Mapping[int, ColdRow]:
    if not missing:
        return {}
    if len(missing) < len(small):
        return cold_rows(connection, missing, dimension)
    return {row.row: row for row in cold_tier(connection, space.id, dimension)}
