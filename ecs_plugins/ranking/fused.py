"""Fusion of rankers by learned weights: each ranker counts as much as it is sure.

Scores of a ranker become z-scores over the passages that are compared, so that nats, word counts
and cosines need no common scale. The weight of a ranker is linear in two numbers that hold for any
embedder and model: its peak, the z-score of its best passage, and the share of the question's words
that the best passage has. Where a question shares few words with every passage, meaning counts
more. The weights are one conditional logit over questions whose evidence is known; the file that
holds them names the data and their licences (``python -m benchmarks fusion``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ecs_plugins.ranking.base import Ranker, Ranking
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import MAX_DENSE

Floats = npt.NDArray[np.float64]


class Weight(NamedTuple):
    """Weight of a ranker: ``base + peak * its peak + shared * share of words``, at least 0."""

    base: float
    peak: float = 0.0
    shared: float = 0.0

    def at(self, peak: float, shared: float) -> float:
        """Return the weight of the ranker for one question, by its peak and share of words."""
        return max(0.0, self.base + self.peak * peak + self.shared * shared)


PLAIN = Weight(0.5)
"""Weight of a ranker that nothing was learned about."""


class Scored(NamedTuple):
    """Z-scores of a ranker for some passages, and its peak over all that it compared."""

    z: Floats
    peak: float

    @classmethod
    def of(cls, scores: Sequence[float], number: int | None = None) -> Scored:
        """Standardise scores, and keep the scores of the first ``number`` passages."""
        z = np.array(z_scores(scores), dtype=np.float64)
        finite = z[np.isfinite(z)]
        return cls(z[:number], float(finite.max()) if finite.size else 0.0)


def z_scores(values: Sequence[float]) -> list[float]:
    """Return values with mean 0 and standard deviation 1; all 0 if they do not differ.

    A value that is not finite stays as it is.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return list(values)
    mean = fmean(finite)
    spread = pstdev(finite)
    if spread < 1e-9 * max(1.0, abs(mean)):
        spread = math.inf
    return [(value - mean) / spread if math.isfinite(value) else value for value in values]


@cache
def learned() -> Mapping[str, Any]:
    """Return the learned numbers that the package ships."""
    text = resources.files("ecs_plugins.ranking").joinpath("learned.json").read_text("utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def weights_of(kind: str) -> dict[str, Weight]:
    """Return the learned weights by ranker, of ``"rankers"`` alone or with a ``"signal"``."""
    return {name: Weight(*numbers) for name, numbers in learned()["weights"][kind].items()}


def fuse(scored: Mapping[str, Scored], shared: float, weights: Mapping[str, Weight]) -> list[float]:
    """Return the standardised weighted sum of the z-scores of several rankers."""
    total: Floats | float = 0.0
    for name, each in scored.items():
        weight = weights.get(name, PLAIN).at(each.peak, shared)
        total = total + weight * each.z
    return z_scores(np.asarray(total, dtype=np.float64).tolist())


def shared_words(query: str, passages: Sequence[str]) -> Sequence[float]:
    """Return, per passage, the share of query words in it, weighted by their rarity."""
    return CoverageRanker().rank(query, passages).scores


class FusedRanker:
    """Words and meaning, fused by learned weights.

    Embedding is the expensive part, so in a long list only the passages that the lexical ranker
    puts first are embedded; the others count as the farthest of these.

    Args:
        lexical: Ranks everything by words.
        dense: Ranks the first `MAX_DENSE` of them by meaning.
    """

    name = "fused"

    def __init__(self, lexical: Ranker, dense: Ranker) -> None:
        self.lexical = lexical
        self.dense = dense

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank by the standardised sum; equal passages have equal scores."""
        if not passages:
            return Ranking.from_scores([])
        shared = max(shared_words(query, passages))
        fused = fuse(self.scored(query, passages), shared, weights_of("rankers"))
        return Ranking.from_scores([round(score, 9) for score in fused])

    def scored(self, query: str, passages: Sequence[str]) -> dict[str, Scored]:
        """Return the z-scores of both rankers by name, for at least one passage."""
        words = self.lexical.rank(query, passages)
        first = sorted(words.top(MAX_DENSE))
        near = self.dense.rank(query, [passages[index] for index in first])
        cosines = np.full(len(passages), min(near.scores))
        cosines[first] = near.scores
        return {
            self.lexical.name: Scored.of(words.scores),
            self.dense.name: Scored.of(cosines.tolist()),
        }
