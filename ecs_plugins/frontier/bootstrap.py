"""How sure is it? Paired bootstrap intervals on points, transitions and crossovers.

The same questions are drawn for every strategy, so what makes a question hard for all of them
cancels in differences, and a crossover gets the interval of the difference that makes it.
Intervals are percentile intervals. Where several questions share a context they are not
independent; ``by="context"`` draws whole contexts.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.cost import (
    PriceVector,
    check_reuse,
    check_weight,
    reuse_crossover,
    weight_crossover,
)
from ecs_plugins.frontier.measurements import Array, Measurements

_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval.

    Attributes:
        low: Lower end.
        high: Upper end.
        level: Coverage aimed at, for example 0.95.
        share: Share of resamples in which the quantity exists at all; a crossover may not.
    """

    low: float
    high: float
    level: float
    share: float = 1.0

    def overlaps(self, other: Interval) -> bool:
        """Whether the two have a point in common."""
        return self.low <= other.high and other.low <= self.high

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"[{self.low:.3g}, {self.high:.3g}]"


class Bootstrap:
    """Resampled means of every configuration.

    Args:
        measurements: P configurations on Q questions.
        prices: What costs are counted in.
        replicates: How many resamples, B.
        seed: Of the resampling.
        level: Coverage of the intervals.
        by: Draw questions, or whole contexts with all their questions.

    Attributes:
        f1: Mean F1 per configuration and resample, ``[P, B]``.
        stage1: Mean cost of stage 1, ``[P, B]``.
        stage2: Mean cost of stage 2, ``[P, B]``.

    Raises:
        ConfigurationError: ``replicates`` < 2 or ``level`` outside (0, 1).
    """

    def __init__(
        self,
        measurements: Measurements,
        prices: PriceVector | None = None,
        *,
        replicates: int = 2000,
        seed: int = 42,
        level: float = 0.95,
        by: Literal["question", "context"] = "question",
    ) -> None:
        if replicates < 2 or not 0 < level < 1:
            raise ConfigurationError(
                f"need replicates >= 2 and 0 < level < 1, got {replicates} and {level}"
            )
        self.level = level
        self.replicates = replicates
        one, two = measurements.stages(prices or PriceVector())
        weights = _weights(measurements, replicates, np.random.default_rng(seed), by)
        self.f1, self.stage1, self.stage2 = (
            _means(values, weights) for values in (measurements.f1, one, two)
        )

    def interval(self, values: Array) -> Interval:
        """Percentile interval of B resampled values; NaN marks resamples without one."""
        known = values[np.isfinite(values)]
        share = len(known) / len(values)
        if not len(known):
            return Interval(math.nan, math.nan, self.level, 0.0)
        tail = (1 - self.level) / 2
        low, high = np.quantile(known, [tail, 1 - tail])
        return Interval(float(low), float(high), self.level, share)

    def f1_interval(self, row: int) -> Interval:
        """Of the mean F1 of one configuration."""
        return self.interval(self.f1[row])

    def cost(self, row: int, reuse: float, *, sunk: bool = False) -> Array:
        """Resampled cost per query at N = ``reuse``, ``[B]``."""
        check_reuse(reuse)
        return _total(self.stage1[row], self.stage2[row], math.inf if sunk else reuse)

    def f1_difference(self, a: int, b: int) -> Interval:
        """Of ``F1_a - F1_b``, paired."""
        return self.interval(self.f1[a] - self.f1[b])

    def score_difference(
        self, a: int, b: int, reuse: float, weight: float, prepared: Container[int] = ()
    ) -> Interval:
        """Of the difference of efficiency scores (Eq. 2), paired; ``prepared`` rows are sunk."""
        check_weight(weight)
        quality = self.f1[a] - self.f1[b]
        logs = [np.log(self.cost(row, reuse, sunk=row in prepared)) for row in (a, b)]
        price = logs[0] - logs[1]
        return self.interval(weight * quality - (1 - weight) * price)

    def weight_crossover(self, a: int, b: int, reuse: float) -> Interval:
        """Of the w at which two configurations score alike at N = ``reuse``."""
        costs_a, costs_b = self.cost(a, reuse), self.cost(b, reuse)
        return self.interval(
            _collect(
                weight_crossover(*values)
                for values in zip(self.f1[a], costs_a, self.f1[b], costs_b, strict=True)
            )
        )

    def reuse_crossover(self, a: int, b: int, weight: float | None = None) -> Interval:
        """Of the N at which two configurations are equally good; see `cost.reuse_crossover`."""
        rows = zip(
            *(getattr(self, name)[row] for row in (a, b) for name in ("f1", "stage1", "stage2")),
            strict=True,
        )
        return self.interval(_collect(reuse_crossover(r[:3], r[3:], weight) for r in rows))

    def reaches(self, row: int, target_f1: float) -> float:
        """Share of resamples in which a configuration's F1 is at least ``target_f1``."""
        return float((self.f1[row] >= target_f1).mean())


def _collect(values: Iterable[float | None]) -> Array:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _total(stage1: Array, stage2: Array, reuse: float) -> Array:
    total: Array = stage2 + stage1 / reuse
    return total


def _weights(
    measurements: Measurements, replicates: int, rng: np.random.Generator, by: str
) -> npt.NDArray[np.float32]:
    """How often each question is drawn, ``[B, Q]``, rows summing to one."""
    count = measurements.shape[1]
    if by == "question":
        member = np.arange(count)
    elif by == "context":
        _, member = np.unique(np.array(measurements.contexts), return_inverse=True)
    else:
        raise ConfigurationError(f'by must be "question" or "context", got {by!r}')
    groups = int(member.max()) + 1
    drawn = rng.multinomial(groups, np.full(groups, 1 / groups), size=replicates)
    weights = drawn[:, member].astype(np.float32)
    normal: npt.NDArray[np.float32] = weights / weights.sum(axis=1, keepdims=True)
    return normal


def _means(values: Array, weights: npt.NDArray[np.float32]) -> Array:
    out = np.empty((values.shape[0], weights.shape[0]))
    for start in range(0, weights.shape[0], _CHUNK):
        part = weights[start : start + _CHUNK].astype(np.float64)
        out[:, start : start + _CHUNK] = values @ (part / part.sum(axis=1, keepdims=True)).T
    return out
