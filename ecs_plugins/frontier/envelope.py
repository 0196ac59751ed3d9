"""The Efficiency Frontier: which strategy and configuration is best, for every w, N and target.

The paper prices every configuration at a given N (Eq. 1) and takes the best over all strategies
(Eq. 4). It first keeps, per strategy, what is optimal under some w (Eq. 3), which changes no
envelope: what is best of all is best of its strategy. A sweep over w reaches only the convex hull
in (F1, ln cost), so look-ups by target F1 or budget use the whole non-dominated set instead. All
transitions are closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import (
    bounded,
    check_reuse,
    check_weight,
    efficiency_score,
    exchange_rate,
)
from ecs_plugins.frontier.decision import (
    Objective,
    RoutingDecision,
    UnreachableTargetError,
    objectives,
)
from ecs_plugins.frontier.hull import Span, reuse_spans, weight_spans
from ecs_plugins.frontier.measurements import Interval, MeasuredPoints
from ecs_plugins.frontier.points import PointKey, StrategyPoint


@dataclass(frozen=True, slots=True)
class Transition:
    """The w at which the best choice changes, and what 0.01 more F1 is worth there.

    ``interval`` is the paired bootstrap interval of the weight, where there are measurements.
    """

    weight: float
    exchange_rate: float
    before: StrategyPoint
    after: StrategyPoint
    interval: Interval | None = None


class EfficiencyFrontier(MeasuredPoints):
    """Measured operating points and every decision that follows from them.

    Its arguments are those of `MeasuredPoints`.
    """

    def envelope(self, reuse: float) -> tuple[Span, ...]:
        """The best point for every w in [0, 1] at N = ``reuse``, exactly."""
        return weight_spans(self.routable, reuse)

    def transitions(self, reuse: float, *, intervals: bool = False) -> tuple[Transition, ...]:
        """Every w at which the best choice changes at N = ``reuse``.

        ``intervals`` bootstraps each weight, which needs measurements.
        """
        out = []
        for before, after in pairwise(self.envelope(reuse)):
            a, b = before.point, after.point
            crossing = self.bootstrap.weight_crossover if intervals else None
            interval = crossing and crossing(self.row(a), self.row(b), reuse)
            out.append(Transition(after.low, exchange_rate(after.low), a, b, interval))
        return tuple(out)

    def reuse_path(
        self, *, target_f1: float | None = None, weight: float | None = None
    ) -> tuple[Span, ...]:
        """The best point for every N >= 1, at a target F1 or at a weight.

        Raises:
            InvalidInputError: Not exactly one of the two is given.
            UnreachableTargetError: Nothing reaches the target.
        """
        if (target_f1 is None) == (weight is None):
            raise InvalidInputError("give either target_f1 or weight")
        able = self.routable if target_f1 is None else self.reaching(target_f1)
        return reuse_spans(able, weight)

    # Decisions.

    @cached_property
    def _by_f1(self) -> list[StrategyPoint]:
        """By rising F1; of equals the cheaper first, which is the one that is chosen."""
        return sorted(self.routable, key=lambda p: (p.f1, p.stage2, p.stage1))

    def in_time(self, max_seconds: float | None) -> list[StrategyPoint]:
        """The routable points whose p95 latency keeps a limit, by rising F1; all without one.

        Raises:
            InvalidInputError: There are no measurements.
            UnreachableTargetError: Nothing keeps it.
        """
        if max_seconds is None:
            return self._by_f1
        known = [(p, seconds[1]) for p in self._by_f1 if (seconds := self.latency(p))]
        if not known:
            raise InvalidInputError("this frontier holds means only; a limit of seconds needs rows")
        able = [point for point, p95 in known if p95 <= max_seconds]
        if not able:
            least, label = min((p95, point.label) for point, p95 in known)
            raise UnreachableTargetError(
                f"nothing measured answers within {max_seconds:g} s at p95; the nearest is "
                f"{_above(least)} s with {label}",
                least,
            )
        return able

    def reaching(self, target_f1: float, max_seconds: float | None = None) -> list[StrategyPoint]:
        """The routable points that reach an F1 `in_time`, by rising F1.

        Raises:
            InvalidInputError: The target is no F1.
            UnreachableTargetError: Nothing reaches it.
        """
        if not 0 <= target_f1 <= 1:
            raise InvalidInputError(f"the target F1 must lie in [0, 1], got {target_f1!r}")
        known = self.in_time(max_seconds)
        able = [point for point in known if point.f1 >= target_f1]
        if not able:
            best = max(known, key=lambda point: point.f1)
            raise UnreachableTargetError(
                f"no measured strategy reaches F1 {target_f1:g}; the nearest is {_below(best.f1)} "
                f"with {best.label}. Ask for at most that, or calibrate stronger strategies",
                best.f1,
            )
        return able

    def decide(
        self,
        *,
        reuse: float,
        target_f1: float | None = None,
        budget: float | None = None,
        weight: float | None = None,
        prepared: Iterable[PointKey] = (),
        max_seconds: float | None = None,
    ) -> RoutingDecision:
        """Choose by exactly one of target F1, budget per query, and weight.

        Args:
            reuse: N, how many queries (this one included) will share the context.
            target_f1: The cheapest point that reaches it; of equals the better.
            budget: The best F1 whose cost per query does not exceed it; of equals the cheaper.
            weight: The best efficiency score (Eq. 2); of equals the cheaper.
            prepared: Keys of the points for which the context is prepared: their stage 1 is
                sunk and counts nothing.
            max_seconds: Choose among what answers within it at p95, as it was measured.

        Raises:
            InvalidInputError: Not exactly one objective, or a value out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
        """
        asked = objectives(target_f1, budget, weight)
        if len(asked) != 1:
            raise InvalidInputError("give exactly one of target_f1, budget and weight")
        ((name, value),) = asked.items()
        value, reuse = bounded(value), check_reuse(reuse)
        ready = frozenset(prepared)
        pool = self.in_time(max_seconds)
        if target_f1 is not None:
            pool = self.reaching(target_f1, max_seconds)
        choices = [(p.stage2 if p.key in ready else p.stage2 + p.stage1 / reuse, p) for p in pool]
        if target_f1 is not None:
            _, chosen = min(choices, key=lambda choice: (choice[0], -choice[1].f1))
        elif budget is not None:
            if not value > 0:
                raise InvalidInputError(f"the budget must be positive, got {budget!r}")
            fitting = [choice for choice in choices if choice[0] <= value]
            if not fitting:
                lowest = min(cost for cost, _ in choices)
                raise UnreachableTargetError(
                    f"nothing measured costs at most {value:g} {self.unit} per query at "
                    f"N = {reuse:g}; the cheapest needs {_above(lowest)}",
                    lowest,
                )
            _, chosen = max(fitting, key=lambda choice: (choice[1].f1, -choice[0]))
        else:
            w = check_weight(value)
            _, chosen = max(choices, key=lambda c: (efficiency_score(c[1].f1, c[0], w), -c[0]))
        decision = self.decided(chosen, Objective(name), value, reuse, ready)
        return decision if max_seconds is None else replace(decision, max_seconds=max_seconds)

    def decided(
        self,
        point: StrategyPoint,
        objective: Objective,
        value: float,
        reuse: float,
        prepared: frozenset[PointKey],
    ) -> RoutingDecision:
        """The decision for a point, with its forecast cost."""
        sunk = point.key in prepared
        cost = point.effective(reuse, sunk=sunk)
        unit = self.unit
        return RoutingDecision(point, objective, value, reuse, cost, unit, sunk, prepared, self)


def _below(f1: float) -> str:
    """An F1 to four digits, rounded such that it is reached."""
    return f"{f1 if float(f'{f1:.4f}') <= f1 else math.floor(f1 * 1e4) / 1e4:.4f}"


def _above(cost: float) -> str:
    """A cost to six digits, rounded such that it suffices."""
    return f"{cost if float(f'{cost:g}') >= cost else cost * (1 + 1e-5):g}"
