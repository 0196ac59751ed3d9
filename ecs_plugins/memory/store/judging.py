"""How a question judges what an index finds: the fit of each row, and the probability behind it.

It is one rule for the memories of a namespace and for key-value items
(`ecs_plugins.memory.relevance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ecs_plugins.memory.relevance import Encounter, QueryReading, Scale, encounter, relevance
from ecs_plugins.memory.store.seam import Rows, SpaceIndex
from ecs_plugins.memory.types import Floats, Vector


@dataclass(frozen=True, slots=True)
class Judged:
    """Candidates as a question judges them.

    Attributes:
        rows: Row numbers [n].
        cosines: Of each row with the question [n].
        coverage: How much of the question each row covers [n].
        fits: Means of cosine and coverage [n], which order the rows.
        rest: The fit that no other row exceeds; minus infinity where there is no other.
        met: What the question meets.
    """

    rows: Rows
    cosines: Floats
    coverage: Floats
    fits: Floats
    rest: float
    met: Encounter

    @property
    def scores(self) -> Floats:
        """That each row is evidence for the answer [n]."""
        return relevance(self.fits, self.met)

    @property
    def rest_score(self) -> float:
        """The probability that no other row exceeds."""
        if self.rest == -math.inf:
            return self.rest
        (score,) = relevance(np.array([self.rest]), self.met).tolist()
        return float(score)


def judge(
    opened: SpaceIndex,
    question: QueryReading,
    vector: Vector,
    scale: Scale,
    *,
    count: int,
    allowed: Rows | None,
    items: int,
) -> Judged | None:
    """Judge candidates; None if there are none.

    Args:
        opened: The index.
        question: What is asked.
        vector: Of the question [d].
        scale: How near unrelated texts lie under its embedder.
        count: How many candidates of each kind; of ``allowed`` rows, all are candidates.
        allowed: The rows that a filter lets pass; None is all.
        items: How many rows there are, or are allowed.
    """
    candidates = opened.candidates(question.content, vector, count, allowed=allowed)
    if not len(candidates.rows):
        return None
    # Equal vectors must tie, although products in another order may differ in the last bits.
    cosines = candidates.cosines.astype(np.float64).round(6)
    scaled = scale.to_default(cosines)
    fits = (scaled + candidates.coverage) / 2
    known = opened.known(question.names) if question.names else ()
    rest = -math.inf
    if candidates.rest is not None:
        cosine, coverage = candidates.rest
        (nearest,) = scale.to_default(np.array([cosine])).tolist()
        rest = (nearest + coverage) / 2
    return Judged(
        rows=candidates.rows,
        cosines=cosines,
        coverage=candidates.coverage,
        fits=fits,
        rest=rest,
        met=encounter(question, scaled, fits, items=items, known=known),
    )
