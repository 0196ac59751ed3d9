"""What a ranker is, and the one way in which its scores become an order.

Order is by score, best first, and equal scores keep the order of the input, so that the same
input always gives the same order. A score that is not a number counts as the worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Ranking:
    """Passages in order.

    Attributes:
        scores: One Python float per passage, in input order; comparable within one ranking only.
        order: Indices of all passages, best first; ties by index.
    """

    scores: tuple[float, ...]
    order: tuple[int, ...]

    @classmethod
    def from_scores(cls, scores: Iterable[float]) -> Ranking:
        """Order by score, best first; ties by index, NaN last (as minus infinity)."""
        values = tuple(-math.inf if math.isnan(s) else float(s) for s in map(float, scores))
        return cls(values, tuple(sorted(range(len(values)), key=lambda i: (-values[i], i))))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The place of every passage, in input order; 1 is the best."""
        places = [0] * len(self.order)
        for place, index in enumerate(self.order, start=1):
            places[index] = place
        return tuple(places)

    @property
    def tied_ranks(self) -> tuple[float, ...]:
        """As `ranks`, but equal scores share the average of their places.

        What depends on it does not depend on the order of the input.
        """
        places = [0.0] * len(self.order)
        start = 0
        while start < len(self.order):
            end = start
            score = self.scores[self.order[start]]
            while end < len(self.order) and self.scores[self.order[end]] == score:
                end += 1
            for index in self.order[start:end]:
                places[index] = (start + 1 + end) / 2
            start = end
        return tuple(places)

    def top(self, k: int) -> tuple[int, ...]:
        """Indices of the k best, best first."""
        return self.order[: max(0, k)]

    def __len__(self) -> int:
        return len(self.order)


@runtime_checkable
class Ranker(Protocol):
    """Orders passages for a query. Implementations may be called from several threads."""

    @property
    def name(self) -> str:
        """A stable identifier, recorded in results."""
        ...

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank all passages; an empty sequence gives an empty ranking."""
        ...
