"""How sure of a mean one can be: percentile bootstrap over questions.

For a difference, the same questions are drawn for both methods, so that what makes a question
hard for all of them cancels (paired bootstrap).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import InvalidInputError

REPLICATES = 4000
LEVEL = 0.95

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its interval, over ``questions``."""

    mean: float
    low: float
    high: float
    questions: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What one method adds to another on the same questions.

    Attributes:
        mean: ``mean(ours) - mean(theirs)``, with its interval.
        low: Its lower end.
        high: Its upper end.
        relative: ``mean(ours) / mean(theirs) - 1``, with its interval; infinite where the other
            mean is 0, and 0 where both are.
        relative_low: Its lower end.
        relative_high: Its upper end.
        wins: Questions on which ours is ahead.
        losses: Questions on which it is behind.
        ties: The others.
    """

    mean: float
    low: float
    high: float
    relative: float
    relative_low: float
    relative_high: float
    wins: int
    losses: int
    ties: int


def mean_interval(values: Sequence[float], *, seed: int = 42) -> Mean:
    """The mean of at least one value.

    Raises:
        InvalidInputError: There is none.
    """
    if not len(values):
        raise InvalidInputError("there is nothing to average")
    data = np.asarray(values, dtype=np.float64)
    low, high = _ends(_resampled_means(data, seed))
    return Mean(float(data.mean()), low, high, len(data))


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], *, seed: int = 42
) -> Difference:
    """Ours against theirs on the same questions.

    Raises:
        InvalidInputError: Not the same number of values, or none.
    """
    if len(ours) != len(theirs) or not len(ours):
        raise InvalidInputError("a paired difference needs one value of each for every question")
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    means_a, means_b = _resampled_means(a, seed), _resampled_means(b, seed)
    low, high = _ends(means_a - means_b)
    ratios = np.array([_relative(x, y) for x, y in zip(means_a, means_b, strict=True)])
    relative_low, relative_high = _ends(ratios)
    return Difference(
        float((a - b).mean()),
        low,
        high,
        _relative(float(a.mean()), float(b.mean())),
        relative_low,
        relative_high,
        int((a > b).sum()),
        int((a < b).sum()),
        int((a == b).sum()),
    )


def _relative(ours: float, theirs: float) -> float:
    if theirs == 0.0:
        return 0.0 if ours == 0.0 else math.inf
    return ours / theirs - 1.0


def _resampled_means(data: Floats, seed: int) -> Floats:
    means: Floats = _weights(len(data), seed) @ data
    return means


@lru_cache(maxsize=8)
def _weights(count: int, seed: int) -> Floats:
    """How often each replicate draws each question, over their number, ``[replicates, count]``."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), REPLICATES)
    return drawn / count


def _ends(means: Floats) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    # "higher" and "lower": between two infinite replicates there is nothing to interpolate.
    low = np.quantile(means, tail, method="lower")
    high = np.quantile(means, 1 - tail, method="higher")
    return float(low), float(high)
