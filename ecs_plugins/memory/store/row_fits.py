"""How a question judges what an index finds: the fit of each row, and the probability behind it.

It is one rule for the memories of a namespace and for key-value items
(`ecs_plugins.memory.relevance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ecs_plugins.memory.relevance import QueryReading, Scale, encounter, relevance
from ecs_plugins.memory.store.seam import Rows, SpaceIndex
from ecs_plugins.memory.types import Floats, Vector


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Candidates as a question judges them.

    Attributes:
        rows: Row numbers [n].
        cosines: Of each row with the question [n].
        coverage: How much of the question each row covers [n].
        fits: Means of cosine and coverage [n], which order the rows.
        scores: The probability that each row is evidence for the answer [n].
        rest: The fit that no other row exceeds; minus infinity where there is no other.
        rest_score: The probability that no other row exceeds, likewise.
    """

    rows: Rows
    cosines: Floats
    coverage: Floats
    fits: Floats
    scores: Floats
    rest: float
    rest_score: float


def judge(
    opened: SpaceIndex,
    question: QueryReading,
    vector: Vector,
    scale: Scale,
    *,
    count: int,
    allowed: Rows | None,
    items: int,
) -> JudgedRows | None:
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
    met = encounter(question, scaled, fits, items=items, known=known)
    rest = rest_score = -math.inf
    if candidates.rest is not None:
        cosine, coverage = candidates.rest
        beyond = (scale.to_default(np.array([cosine])) + coverage) / 2
        (rest,) = beyond.tolist()
        (rest_score,) = relevance(beyond, met).tolist()
    return JudgedRows(
        rows=candidates.rows,
        cosines=cosines,
        coverage=candidates.coverage,
        fits=fits,
        scores=relevance(fits, met),
        rest=rest,
        rest_score=rest_score,
    )
