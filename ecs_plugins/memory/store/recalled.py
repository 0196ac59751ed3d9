"""Reader of scored rows: reads items, best first, until enough are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ecs_plugins.common.text import asks_only, terms
from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.relevance import DEFAULT, QueryReading, Scale
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.derivation import alive
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.outdated import outdating_ids
from ecs_plugins.memory.store.provenance import Origin, origins_of_live
from ecs_plugins.memory.store.seam import Rows
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.types import Floats, Tier, Vector
from ecs_plugins.storage.base import Connection


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """Request of a recall in one namespace; see `EntropicMemory.recall`.

    Attributes:
        question: The query as it is judged; None where the cosine alone scores (the paper).
    """

    query: str
    question: QueryReading | None
    vector: Vector
    k: int
    threshold: float
    tiers: tuple[Tier, ...]
    condition: Filter | None
    now: float  # what has expired by then is not recalled
    at: float | None = None
    scale: Scale = DEFAULT
    hides_outdated: bool = False


class Score(NamedTuple):
    """Scores of the item of a row; see `Memory`."""

    row: int
    fit: float
    score: float
    similarity: float
    coverage: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """Scores of rows by falling fit.

    Attributes:
        rows: Row numbers [n].
        fits: Of each row [n], falling.
        scores: Likewise [n].
        similarities: Likewise [n].
        coverage: Likewise [n].
    """

    rows: Rows
    fits: Floats
    scores: Floats
    similarities: Floats
    coverage: Floats

    @classmethod
    def of_nothing(cls) -> Ranked:
        """Return scores of no row."""
        nothing = np.zeros(0)
        return cls(nothing.astype(np.int64), nothing, nothing, nothing, nothing)

    def __len__(self) -> int:
        return len(self.rows)

    def end_of_equals(self, stop: int) -> int:
        """Return the place after the rows that fit as well as the one before ``stop``."""
        last = self.fits[stop - 1 : stop]
        return stop + int(np.count_nonzero(self.fits[stop:] == last))

    def between(self, start: int, stop: int) -> list[Score]:
        """Return the scores of some places."""
        columns = (self.rows, self.fits, self.scores, self.similarities, self.coverage)
        return [*map(Score, *(column[start:stop].tolist() for column in columns))]


class Recalled(NamedTuple):
    """An item with its score and its origin."""

    stored: TierRow
    score: Score
    origin: Origin
    outdated_by: str | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads candidates as far as they are wanted, and keeps the rows it has read.

    Attributes:
        store: The open memory.
        connection: Of the transaction.
        space: The namespace.
        request: The recall.
    """

    store: MemoryStore
    connection: Connection
    space: Space
    request: RecallRequest
    _rows: dict[int, TierRow | None] = field(default_factory=dict)

    def best(self, scored: Ranked) -> list[Recalled]:
        """Return the best ``k`` candidates that are wanted, best first."""
        wanted: list[Recalled] = []
        k = self.request.k
        count = len(scored)
        start = 0
        stop = k
        while start < count and len(wanted) < k:
            stop = scored.end_of_equals(stop)
            wanted += self._wanted(scored.between(start, stop))
            start = stop
            stop = 4 * stop
        return wanted[:k]

    def _wanted(self, scored: Sequence[Score]) -> list[Recalled]:
        """Return those of some candidates that are searched and were said in time, best first.

        Of equals, the last one said comes first, whatever order the indexes find them in.
        """
        stored = self._read([each.row for each in scored])
        origins = origins_of_live(self.connection, [each.item for each in stored.values()])
        request = self.request
        newer = outdating_ids(self.connection, origins, request.now, request.at)
        wanted = []
        for score in scored:
            if score.row in stored and self._asserts(stored[score.row].item.text):
                row = stored[score.row]
                name = row.item.id
                recalled = Recalled(row, score, origins[name], newer.get(name))
                if self._was_said(recalled.origin) and not self._is_hidden(recalled):
                    wanted.append(recalled)
        return sorted(wanted, key=place)

    def _asserts(self, text: str) -> bool:
        """Return False for a text that only asks, or only repeats the present question."""
        question = self.request.question
        if question is None:
            return True
        if asks_only(text):
            return False
        return not question.asks or not question.words.issuperset(terms(text))

    def _was_said(self, origin: Origin) -> bool:
        """Return True if an item was said by the time asked for, or nobody knows when it was."""
        at = self.request.at
        return at is None or origin.since is None or origin.since <= at

    def _is_hidden(self, recalled: Recalled) -> bool:
        return self.request.hides_outdated and recalled.outdated_by is not None

    def _read(self, rows: Sequence[int]) -> dict[int, TierRow]:
        """Return the rows that are in a searched tier and not expired."""
        request = self.request
        unread = [row for row in rows if row not in self._rows]
        if unread:
            self._rows.update(dict.fromkeys(unread))
            space = self.space.id
            read = tiers.by_rows(self.connection, space, unread, among=request.tiers)
            self._rows.update(read)
        stored = [*filter(None, map(self._rows.get, rows))]
        ends = [each.expires for each in stored if each.expires is not None]
        if ends and min(ends) <= request.now:
            stored = [*alive(self.connection, stored, request.now, self.store)]
        return {each.row: each for each in stored}


def place(recalled: Recalled) -> tuple[float, int, str]:
    """Sort by fit; of equals, the one said last comes first."""
    item = recalled.stored.item
    return (-recalled.score.fit, -item.evidence.last_seen, item.id)
