"""How well an item answers a query, from its vector and its words, as one calibrated probability.

The mean of the cosine and of the query coverage (`ecs_plugins.ranking.coverage`) orders the items;
a logistic function makes of it the probability that the item is evidence for the answer. Both were
fitted on the development half of LoCoMo, each turn read as the reply that it is, under
all-MiniLM-L6-v2 (`docs/memory.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from ecs_plugins.memory.filters import Filter
from ecs_plugins.memory.records import Recollection
from ecs_plugins.memory.types import Floats, Tier, Vector
from ecs_plugins.ranking.conversation import as_reply

CANDIDATES = 100
"""Items that are looked at, of the nearest ones and of those that cover most of the query."""
SHAPED = 40
"""The best recollections that a second stage orders."""

_SLOPE, _OFFSET = 18.8, -10.0


class _Judged(Protocol):
    @property
    def index(self) -> int: ...


class _Shaped(Protocol):
    @property
    def accepted(self) -> Sequence[_Judged]: ...


@runtime_checkable
class Shaper(Protocol):
    """Orders texts for a query and may drop some; a `ContextShaper` is one."""

    def shape(self, query: str, passages: Sequence[str], /) -> _Shaped:
        """What stays of the passages, by their index, the best first."""
        ...


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What is asked of one namespace.

    Attributes:
        query: The question.
        vector: Its embedding [d].
        k: Recollections at most.
        threshold: Minimum score.
        tiers: Where to look.
        condition: Metadata that an item must have (`filters`).
        now: Unix time; what has expired by then is not recalled.
        exclude: Ids that are not wanted; the next best take their places.
        by_cosine: Score by the cosine alone (the paper).
    """

    query: str
    vector: Vector
    k: int
    threshold: float
    tiers: tuple[Tier, ...]
    condition: Filter | None
    now: float
    exclude: frozenset[str] = frozenset()
    by_cosine: bool = False


def probability(cosine: Floats | float, coverage: Floats | float) -> Floats:
    """That an item is evidence for the answer; the same order as the mean of its arguments.

    >>> float(probability(0.6, 0.5).round(2))
    0.58
    """
    mean = (np.asarray(cosine, dtype=np.float64) + coverage) / 2
    out: Floats = (1.0 / (1.0 + np.exp(-(_SLOPE * mean + _OFFSET)))).round(9)
    return out


def shaped(query: str, found: Sequence[Recollection], shaper: Shaper) -> list[Recollection]:
    """Recollections as a second stage orders them, each read with what it replies to."""
    if not found:
        return []
    judged = shaper.shape(query, [as_reply(each.text, each.asked) for each in found])
    return [found[verdict.index] for verdict in judged.accepted]
