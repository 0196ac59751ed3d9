"""Interface of rankers, and the order of their scores.

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
        values = tuple(_number(score) for score in scores)

        def best_first(index: int) -> tuple[float, int]:
            return -values[index], index

        order = sorted(range(len(values)), key=best_first)
        return cls(values, tuple(order))

    def top(self, k: int) -> tuple[int, ...]:
        """Return indices of the k best, best first."""
        number = max(0, k)
        return self.order[:number]


def _number(score: float) -> float:
    value = float(score)
    if math.isnan(value):
        return -math.inf
    return value


@runtime_checkable
class Ranker(Protocol):
    """Orders passages for a query. Implementations may be called from several threads."""

    @property
    def name(self) -> str:
        """Return a stable identifier, recorded in results."""

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank all passages; an empty sequence gives an empty ranking."""
