"""Protocols between a memory and the indexes of its database engine.

Statements are the same for every engine. The items of a namespace are found by `index` in a file,
and by `index_postgres` on a server.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.relevance import QueryReading, Scale, encounter, relevance
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.types import Floats, Vector
from ecs_plugins.storage.base import Connection

_PLAIN = re.compile(r"[ !#-&(-[\]-~]*")  # a text that stands in JSON as it is
Rows: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows scored both ways.

    Attributes:
        rows: Row numbers ``[n]``.
        cosines: Of each row with the query's vector; -1 for one that left.
        coverage: How much of the query each row covers (`ecs_plugins.ranking.coverage`).
        rest: The cosine and the coverage that no other row exceeds; None where there is no other.
    """

    rows: Rows
    cosines: Vector
    coverage: Floats
    rest: tuple[float, float] | None

    def with_more(self, more: Candidates) -> Candidates:
        """Return both groups of candidates; a row may be in both."""
        rests = [each for each in (self.rest, more.rest) if each is not None]
        return Candidates(
            rows=np.append(self.rows, more.rows),
            cosines=np.append(self.cosines, more.cosines),
            coverage=np.append(self.coverage, more.coverage),
            rest=(max(c for c, _ in rests), max(c for _, c in rests)) if rests else None,
        )


class SpaceIndex(Protocol):
    """Finds the items of one namespace within one transaction."""

    def nearest(
        self, query: Vector, k: int, *, allowed: Rows | None = None, narrow: bool = False
    ) -> tuple[Rows, Vector]:
        """Return the ``k`` rows of the largest cosine, and these, best first.

        A ``narrow`` search is faster and finds the rows that repeat the query.
        """
        ...

    def candidates(
        self, query: str, vector: Vector, count: int, *, allowed: Rows | None = None
    ) -> Candidates:
        """Return the ``count`` nearest rows and the ``count`` rows of the best coverage.

        With ``allowed`` rows, return these rows.
        """
        ...

    def known(self, words: Sequence[str]) -> set[str]:
        """Return the words that any item has, also before an apostrophe; all are casefolded."""
        ...


class SpaceIndexes(ABC):
    """The indexes of one open memory. Thread-safe.

    The default methods do nothing; an engine overrides those whose events it needs.
    """

    @abstractmethod
    def current(self, connection: Connection, space: Space) -> SpaceIndex:
        """Return the index of a namespace as of a transaction."""

    def clear(self, connection: Connection, space: int | None = None) -> None:  # noqa: B027
        """Delete the index of one or all namespaces in the transaction that deletes them."""

    def prepare(self) -> None:  # noqa: B027
        """Make the index for the dimension of the vectors if it is missing."""

    def needed(self, _space: Space, condition: Filter) -> tuple[str, Sequence[object]]:
        """Return a necessary SQL condition of a filter, with its values."""
        texts = [each for each in condition.values() if isinstance(each, str)]
        parts = [f'%"{each}"%' for each in texts if _PLAIN.fullmatch(each)]
        return " AND metadata LIKE ?" * len(parts), parts

    @abstractmethod
    def settle(self, connection: Connection, space: Space | None = None) -> None:
        """Index a transaction's rows of one or all namespaces before it commits."""

    def committed(self, space: Space) -> None:  # noqa: B027
        """Follow a transaction that is on disk."""

    def rolled_back(self, space: Space, revision: int) -> None:  # noqa: B027
        """Follow a transaction that failed and began at a revision."""

    def drop(self, space: int) -> None:  # noqa: B027
        """Forget a namespace."""

    def take_worn(self) -> Iterable[Any]:
        """Return the indexes that should be built anew in the background, each handed out once."""
        return ()

    def statistics(self) -> dict[str, int]:
        """Return numbers of open indexes, bytes, linked vectors and tombstones in this process."""
        return {}


class Score(NamedTuple):
    """Scores of the item of a row; see `Memory`."""

    row: int
    fit: float
    score: float
    similarity: float
    coverage: float


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Candidates with their scores.

    Attributes:
        rows: Row numbers [n].
        cosines: Of each row with the question [n].
        coverage: Share of the question that each row covers [n].
        fits: Means of cosine and coverage [n], which order the rows.
        scores: The probability of each row to help to answer [n].
        rest: The fit that no other row exceeds; minus infinity if there is no other.
        rest_score: The score that no other row exceeds, likewise.
    """

    rows: Rows
    cosines: Floats
    coverage: Floats
    fits: Floats
    scores: Floats
    rest: float
    rest_score: float

    def at_least(self, threshold: float) -> JudgedRows:
        """Return the rows with a score at or above a threshold, best fit and newest first."""
        passing = np.flatnonzero(self.scores >= threshold)
        return self._at(passing[np.lexsort((-self.rows[passing], -self.fits[passing]))])

    def best_of_rows(self) -> JudgedRows:
        """Return each row once, with its best fit."""
        best_first = np.argsort(-self.fits, kind="stable")
        _, first = np.unique(self.rows[best_first], return_index=True)
        return self._at(np.sort(best_first[first]))

    def _at(self, best: Rows) -> JudgedRows:
        return replace(
            self,
            rows=self.rows[best],
            cosines=self.cosines[best],
            coverage=self.coverage[best],
            fits=self.fits[best],
            scores=self.scores[best],
        )

    def __len__(self) -> int:
        return len(self.rows)

    def between(self, start: int, stop: int) -> list[Score]:
        """Return the scores of some places."""
        columns = (self.rows, self.fits, self.scores, self.cosines, self.coverage)
        return [*map(Score, *(column[start:stop].tolist() for column in columns))]


def judge(
    opened: SpaceIndex,
    question: QueryReading,
    vector: Vector,
    scale: Scale,
    *,
    count: int,
    allowed: Rows | None,
    items: int,
    parts: Candidates | None = None,
) -> JudgedRows:
    """Return candidates with their scores.

    Args:
        opened: The index.
        question: The question.
        vector: Of the question [d].
        scale: How near unrelated texts lie under its embedder.
        count: How many candidates of each kind; of ``allowed`` rows, all are candidates.
        allowed: The rows that a filter lets pass; None is all.
        items: How many rows there are, or are allowed.
        parts: Parts of long texts that answer for their rows.
    """
    candidates = opened.candidates(question.content, vector, count, allowed=allowed)
    if parts is not None:
        candidates = candidates.with_more(parts)
    # Equal vectors must tie, although products in another order may differ in the last bits.
    cosines = candidates.cosines.astype(np.float64).round(6)
    scaled = scale.to_default(cosines)
    fits = (scaled + candidates.coverage) / 2
    known = opened.known(question.names) if question.names else ()
    met = encounter(question, items=items, known=known)
    rest = rest_score = -math.inf
    if candidates.rest is not None:
        cosine, coverage = candidates.rest
        beyond = scale.to_default(np.array([cosine]))
        (rest,) = ((beyond + coverage) / 2).tolist()
        (rest_score,) = relevance(beyond, np.array([coverage]), met).tolist()
    judged = JudgedRows(
        rows=candidates.rows,
        cosines=cosines,
        coverage=candidates.coverage,
        fits=fits,
        scores=relevance(scaled, candidates.coverage, met),
        rest=rest,
        rest_score=rest_score,
    )
    return judged if parts is None else judged.best_of_rows()
