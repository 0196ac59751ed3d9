"""What is recalled of scored rows: read as far as it is wanted, and what has fallen replaced.

What something newer corrects is not shown. But a question that finds it asks about what holds now,
so its correction is shown in its place, with its score, however far its own words are.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.relevance import DEFAULT, QueryReading, Scale
from ecs_plugins.memory.store import claims, tiers
from ecs_plugins.memory.store.derivation import alive
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import Rows
from ecs_plugins.memory.store.tiers import TierRow
from ecs_plugins.memory.types import Floats, Tier, Vector
from ecs_plugins.storage.base import Connection


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What is asked of one namespace; see `EntropicMemory.recall`.

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
    exclude: frozenset[str] = frozenset()
    at: float | None = None
    include_superseded: bool = False
    scale: Scale = DEFAULT


class Score(NamedTuple):
    """How well the item of a row answers; see `Recollection`."""

    row: int
    score: float
    similarity: float
    coverage: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """Scores of rows, the best first; of those that are read, each as a `Score`.

    Attributes:
        rows: Row numbers [n].
        scores: Of each row [n], falling.
        similarities: Likewise [n].
        coverage: Likewise [n].
    """

    rows: Rows
    scores: Floats
    similarities: Floats
    coverage: Floats

    @classmethod
    def of_nothing(cls) -> Ranked:
        """No row."""
        nothing = np.zeros(0)
        return cls(nothing.astype(np.int64), nothing, nothing, nothing)

    def __len__(self) -> int:
        return len(self.rows)

    def end_of_equals(self, stop: int) -> int:
        """Where the rows end that score as the one before ``stop`` does."""
        last = self.scores[stop - 1 : stop]
        return stop + int(np.count_nonzero(self.scores[stop:] == last))

    def between(self, start: int, stop: int) -> list[Score]:
        """The scores of some places."""
        columns = (self.rows, self.scores, self.similarities, self.coverage)
        return [*map(Score, *(column[start:stop].tolist() for column in columns))]


class Recalled(NamedTuple):
    """An item with its score and its times.

    One that was found by what it ``corrects``, a text, has the score of that.
    """

    stored: TierRow
    score: Score
    validity: claims.Validity
    corrects: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads candidates as far as they are wanted, and remembers what it has read.

    Attributes:
        store: Where they are.
        connection: Of the transaction.
        space: The namespace.
        request: What is asked.
        allowed: The rows that its filter lets pass; None is all.
    """

    store: MemoryStore
    connection: Connection
    space: Space
    request: RecallRequest
    allowed: Rows | None
    _rows: dict[int, TierRow | None] = field(default_factory=dict)
    _validity: dict[str, claims.Validity] = field(default_factory=dict)

    def best(self, scored: Ranked) -> list[Recalled]:
        """The best ``k`` candidates that are wanted, best first.

        What has fallen stands for what holds in its place.
        """
        wanted: list[Recalled] = []
        taken: set[int] = set()
        k = self.request.k
        count = len(scored)
        start = 0
        stop = k
        while start < count and len(wanted) < k:
            stop = scored.end_of_equals(stop)
            shown = self._wanted(scored.between(start, stop))
            new = [each for each in shown if each.score.row not in taken]
            taken.update(each.score.row for each in new)
            wanted += new
            start = stop
            stop = 4 * stop
        return wanted[:k]

    def _wanted(self, scored: Sequence[Score]) -> list[Recalled]:
        """Those of some candidates that are wanted.

        Of equals, what was said last comes first, whatever order the indexes find them in.
        """
        candidates = self._recalled({each.row: each for each in scored})
        found = [each for each in candidates if self._is_shown(each)]
        fallen = [each for each in candidates if not each.validity.holds]
        if fallen and self.request.question is not None:
            found += self._in_place_of(fallen)
        shown: dict[int, Recalled] = {}
        for each in sorted(found, key=place):
            shown.setdefault(each.score.row, each)
        return [*shown.values()]

    def _recalled(self, scores: Mapping[int, Score]) -> list[Recalled]:
        """Items by their rows, with their times; those that are not searched are left out."""
        stored = self._read([*scores])
        items = [each.item for each in stored.values() if each.item.id not in self._validity]
        if items:
            validity = claims.validity_of_live(self.connection, items, self.request.at)
            self._validity.update(validity)
        recalled = []
        for row, score in scores.items():
            if row in stored:
                item = stored[row]
                recalled.append(Recalled(item, score, self._validity[item.item.id]))
        return recalled

    def _in_place_of(self, fallen: Sequence[Recalled]) -> list[Recalled]:
        """What holds in place of candidates that fell, each with the best score of them."""
        holding: list[Recalled] = []
        seen: set[int] = set()
        while fallen:
            corrected = self._corrected(sorted(fallen, key=place), seen)
            seen.update(corrected)
            found = self._recalled({row: each.score for row, each in corrected.items()})
            fallen = []
            for each in found:
                row = each.score.row
                correction = each._replace(corrects=corrected[row].corrects)
                if correction.validity.holds:
                    holding.append(correction)
                else:
                    fallen.append(correction)
        return holding

    def _corrected(self, fallen: Sequence[Recalled], seen: Container[int]) -> dict[int, Recalled]:
        """By the row of each last correction not seen yet, the first of what it corrects."""
        messages = [each.validity.by for each in fallen if each.validity.by is not None]
        rows = claims.last_words(self.connection, messages, self.request.at)
        corrected: dict[int, Recalled] = {}
        for each in fallen:
            text = each.corrects or each.stored.item.text
            for row in rows.get(each.validity.by or "", []):
                if row not in seen and row not in corrected and self._is_allowed(row):
                    score = each.score._replace(row=row)
                    corrected[row] = each._replace(score=score, corrects=text)
        return corrected

    def _is_allowed(self, row: int) -> bool:
        return self.allowed is None or row in self.allowed

    def _read(self, rows: Sequence[int]) -> dict[int, TierRow]:
        """The rows that are in a tier that is searched, not excluded, and have not expired."""
        request = self.request
        unread = [row for row in rows if row not in self._rows]
        if unread:
            self._rows.update(dict.fromkeys(unread))
            space = self.space.id
            read = tiers.by_rows(self.connection, space, unread, among=request.tiers)
            self._rows.update(read)
        searched_rows = filter(None, map(self._rows.get, rows))
        stored = [each for each in searched_rows if each.item.id not in request.exclude]
        ends = [each.expires for each in stored if each.expires is not None]
        if ends and min(ends) <= request.now:
            stored = [*alive(self.connection, stored, request.now, self.store)]
        return {each.row: each for each in stored}

    def _is_shown(self, recalled: Recalled) -> bool:
        """Whether it holds, or is wanted though it does not; what is pinned stays now."""
        request = self.request
        if recalled.validity.holds or request.question is None:
            return True
        if request.at is not None:
            return False
        return request.include_superseded or recalled.stored.is_pinned


def place(recalled: Recalled) -> tuple[float, int, str]:
    """Best first; of equals what was said last, whatever order the indexes find them in."""
    item = recalled.stored.item
    return (-recalled.score.score, -item.evidence.last_seen, item.id)
