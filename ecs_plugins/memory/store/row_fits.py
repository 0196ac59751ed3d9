"""Scores of the rows that an index finds for a question.

Memories of a namespace and key-value items are scored alike (`ecs_plugins.memory.relevance`).
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
    """Return candidates with their scores; None if there are none.

    Args:
        opened: The index.
        question: The question.
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
    met = encounter(question, items=items, known=known)
    rest = rest_score = -math.inf
    if candidates.rest is not None:
        cosine, coverage = candidates.rest
        beyond = scale.to_default(np.array([cosine]))
        (rest,) = ((beyond + coverage) / 2).tolist()
        (rest_score,) = relevance(beyond, np.array([coverage]), met).tolist()
    return JudgedRows(
        rows=candidates.rows,
        cosines=cosines,
        coverage=candidates.coverage,
        fits=fits,
        scores=relevance(scaled, candidates.coverage, met),
        rest=rest,
        rest_score=rest_score,
    )
