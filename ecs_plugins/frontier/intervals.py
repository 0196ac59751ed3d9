"""Paired bootstrap intervals of measurements, and Wilson's for few questions.

The same questions are drawn for every strategy, so what makes a question hard for all of them
cancels in differences. Where several questions share a context they are not independent;
``by="context"`` draws whole contexts.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ecs_plugins.frontier.cost import StrategyPoint, check_reuse, check_weight, weight_crossover
from ecs_plugins.frontier.measurements import Array, Measurements
from ecs_plugins.frontier.prices import PriceVector

_LEVEL = 0.95  # of every interval
_SEED = 42
Z95 = 1.959963984540054
FEW_QUESTIONS = 30


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval, and the share of resamples in which the quantity exists at all."""

    low: float
    high: float
    level: float = _LEVEL
    share: float = 1.0

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"[{self.low:.3g}, {self.high:.3g}]"


class Bootstrap:
    """Resampled means of every configuration, and the intervals that follow.

    One set of B ``replicates`` serves all configurations and quantities, so any difference or
    crossover of them is paired. What is drawn ``by`` are questions, or contexts with all their
    questions.
    """

    def __init__(
        self,
        measurements: Measurements,
        prices: PriceVector | None = None,
        *,
        replicates: int = 2000,
        by: Literal["question", "context"] = "question",
    ) -> None:
        context, questions_of = measurements.grouped
        member = context
        if by == "question":
            member = np.arange(len(measurements.questions))
        groups = int(member.max()) + 1
        alike = np.full(groups, 1 / groups)
        rng = np.random.default_rng(_SEED)
        drawn = rng.multinomial(groups, alike, replicates)
        # How much each question counts in each resample, [Q, B].
        weights = drawn[:, member].T.astype(np.float64)
        weights /= weights.sum(axis=0)
        vector = prices or PriceVector()
        one, two = vector.stages(measurements)
        # Means per configuration and resample, [P, B].
        self.f1 = measurements.f1 @ weights
        self.stage2 = two @ weights
        # Stage 1 is paid once per context: a question counts as its share of one.
        weights /= questions_of[context, None]
        weights /= weights.sum(axis=0)
        self.stage1 = one @ weights

    def interval(self, values: Array) -> Interval:
        """Percentile interval of B resampled values; NaN marks resamples without one."""
        existing = values[np.isfinite(values)]
        if not len(existing):
            return Interval(math.nan, math.nan, share=0.0)
        tail = (1 - _LEVEL) / 2
        ends = np.quantile(existing, [tail, 1 - tail])
        low, high = ends.tolist()
        share = len(existing) / len(values)
        return Interval(low, high, share=share)

    def f1_interval(self, row: int) -> Interval:
        """Return the interval of a configuration's mean F1."""
        return self.interval(self.f1[row])

    def cost(
        self,
        row: int,
        reuse: float,
        *,
        sunk: bool = False,
    ) -> Array:
        """Resampled cost per query at N = ``reuse``, ``[B]``."""
        shared_by = check_reuse(reuse)
        if sunk:
            shared_by = math.inf
        prepared = self.stage1[row] / shared_by
        total: Array = self.stage2[row] + prepared
        return total

    def f1_difference(self, a: int, b: int) -> Interval:
        """Return the paired interval of ``F1_a - F1_b``."""
        difference = self.f1[a] - self.f1[b]
        return self.interval(difference)

    def score_difference(
        self,
        a: int,
        b: int,
        reuse: float,
        weight: float,
        prepared: Container[int] = (),
    ) -> Interval:
        """Return the paired interval of a difference of scores (Eq. 2); ``prepared`` is sunk."""
        check_weight(weight)
        cost_a = self.cost(a, reuse, sunk=a in prepared)
        cost_b = self.cost(b, reuse, sunk=b in prepared)
        quality = self.f1[a] - self.f1[b]
        saved = np.log(cost_a) - np.log(cost_b)
        gain = weight * quality
        loss = (1 - weight) * saved
        return self.interval(gain - loss)

    def weight_crossover(
        self,
        a: int,
        b: int,
        reuse: float,
    ) -> Interval:
        """Return the interval of the w with equal scores at N = ``reuse``."""
        cost_a = self.cost(a, reuse)
        cost_b = self.cost(b, reuse)
        weights = []
        for resample in zip(self.f1[a], cost_a, self.f1[b], cost_b, strict=True):
            weight = weight_crossover(*resample)
            weights.append(math.nan if weight is None else weight)
        return self.interval(np.array(weights))


def wilson(point: StrategyPoint) -> Interval:
    """Return the score interval of a share (Wilson 1927), as if every F1 were 0 or 1."""
    share = Z95**2 / point.n
    middle = (point.f1 + share / 2) / (1 + share)
    variance = point.f1 * (1 - point.f1) * share + share**2 / 4
    half = math.sqrt(variance) / (1 + share)
    return _around(middle, half)


def normal(point: StrategyPoint) -> Interval:
    """From the standard error of a mean F1."""
    return _around(point.f1, Z95 * point.f1_se)


def _around(middle: float, half: float) -> Interval:
    low = max(0.0, middle - half)
    high = min(1.0, middle + half)
    return Interval(low, high)
