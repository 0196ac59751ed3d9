"""Intervals of means by percentile bootstrap over questions.

For a difference, the same questions are drawn for both methods, so that what makes a question
hard for all of them cancels (paired bootstrap).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.intervals import interval
from ecs_plugins.errors import InvalidInputError

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
    """Difference of two methods on the same questions.

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
    return Mean(float(np.mean(values)), *interval(np.mean, values, seed=seed), len(values))


def paired_difference(
    ours: Sequence[float], theirs: Sequence[float], *, seed: int = 42
) -> Difference:
    """Ours against theirs on the same questions.

    Raises:
        InvalidInputError: Not the same number of values, or none.
    """
    if len(ours) != len(theirs) or not len(ours):
        raise InvalidInputError("a paired difference needs one value of each for every question")
    differences = np.subtract(ours, theirs)
    return Difference(
        float(differences.mean()),
        *interval(np.mean, differences, seed=seed),
        float(_relative(np.asarray(ours), np.asarray(theirs))),
        *interval(_relative, ours, theirs, seed=seed),
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        int((differences == 0).sum()),
    )


def _relative(ours: Floats, theirs: Floats, axis: int = -1) -> Floats:
    """Ratio of means, less one."""
    a, b = ours.mean(axis=axis), theirs.mean(axis=axis)
    with np.errstate(all="ignore"):
        return np.where(b == 0.0, np.where(a == 0.0, 0.0, math.inf), a / b - 1.0)
