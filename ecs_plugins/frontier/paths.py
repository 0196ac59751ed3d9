"""How the best choice moves as w rises at one N, and as N rises at one w or target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecs_plugins.frontier.cost import check_reuse, check_weight
from ecs_plugins.frontier.hull import upper_envelope
from ecs_plugins.frontier.points import StrategyPoint

if TYPE_CHECKING:
    from ecs_plugins.frontier.bootstrap import Interval

_LARGEST_EXPONENT = 600.0


@dataclass(frozen=True, slots=True)
class EnvelopeStep:
    """A point and the range of w in which it has the best score."""

    point: StrategyPoint
    weight_low: float
    weight_high: float


@dataclass(frozen=True, slots=True)
class Transition:
    """Where the best choice changes as w rises.

    Attributes:
        weight: The w at which both score alike.
        exchange_rate: Rise in cost that 0.01 more F1 is worth at that w.
        before: The better below.
        after: The better above.
        interval: Paired bootstrap interval of ``weight``, where there are measurements.
    """

    weight: float
    exchange_rate: float
    before: StrategyPoint
    after: StrategyPoint
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class ReuseStep:
    """A point and the range of N in which it is the best; ``reuse_high`` may be infinite."""

    point: StrategyPoint
    reuse_low: float
    reuse_high: float


def envelope_steps(points: Sequence[StrategyPoint], reuse: float) -> tuple[EnvelopeStep, ...]:
    """The best point for every w in [0, 1] at N = ``reuse``, by rising w."""
    check_reuse(reuse)
    chain, starts = upper_envelope(
        [point.f1 for point in points], [-math.log(point.effective(reuse)) for point in points]
    )
    weights = [*(t / (1 + t) for t in starts), 1.0]
    return tuple(
        EnvelopeStep(points[index], weights[k], weights[k + 1]) for k, index in enumerate(chain)
    )


def reuse_steps(
    points: Sequence[StrategyPoint], weight: float | None = None
) -> tuple[ReuseStep, ...]:
    """The best point for every N >= 1, by rising N.

    Args:
        points: To choose from.
        weight: Best by efficiency score at this w; None for the lowest cost alone.
    """
    pool = list(points)
    scale = [1.0] * len(pool)
    if weight is not None:
        top = max(point.f1 for point in pool)
        if check_weight(weight) == 1:
            pool = [point for point in pool if point.f1 == top]
            scale = [1.0] * len(pool)
        else:
            # The best score at a fixed w is the lowest cost times exp(t * (top - F1)).
            odds = weight / (1 - weight)
            pool = [point for point in pool if odds * (top - point.f1) < _LARGEST_EXPONENT]
            scale = [math.exp(odds * (top - point.f1)) for point in pool]
    chain, starts = upper_envelope(
        [-factor * point.stage1 for factor, point in zip(scale, pool, strict=True)],
        [-factor * point.stage2 for factor, point in zip(scale, pool, strict=True)],
    )
    inside = [(index, start) for index, start in zip(chain, starts, strict=True) if start < 1]
    ends = [*(start for _, start in inside[1:]), 1.0]
    steps = [
        ReuseStep(pool[index], 1 / end, 1 / start if start else math.inf)
        for (index, start), end in zip(inside, ends, strict=True)
    ]
    return tuple(reversed(steps))
