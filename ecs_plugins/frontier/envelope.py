"""The Efficiency Frontier: which strategy and configuration is best, for every w, N and target.

The paper prices every configuration at a given N (Eq. 1) and takes the best over all strategies
(Eq. 4). It first keeps, per strategy, what is optimal under some w (Eq. 3), which changes no
envelope: what is best of all is best of its strategy. A sweep over w reaches only the convex hull
in (F1, ln cost), so look-ups by target F1 or budget use the whole non-dominated set instead. All
transitions are closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from ecs_plugins.common.checks import check_several
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import (
    PointKey,
    StrategyPoint,
    check_number,
    check_reuse,
    check_weight,
    efficiency_score,
    exchange_rate,
)
from ecs_plugins.frontier.decision import (
    Objective,
    RoutingDecision,
    Terms,
    UnreachableTargetError,
    due_of,
    effective_cost,
    objectives,
)
from ecs_plugins.frontier.hull import (
    Regime,
    Span,
    cheapest_lines,
    regimes,
    weight_spans,
)
from ecs_plugins.frontier.measured import MeasuredPoints
from ecs_plugins.frontier.measurements import Interval


@dataclass(frozen=True, slots=True)
class Transition:
    """Weight w at which the best choice changes, and the value of 0.01 F1 there.

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
        """Return the best point for every w in [0, 1] at N = ``reuse``, exactly."""
        return weight_spans(self.routable, reuse)

    def transitions(self, reuse: float, *, intervals: bool = False) -> tuple[Transition, ...]:
        """Return every w at which the best choice changes at N = ``reuse``.

        ``intervals`` bootstraps each weight, which needs measurements.
        """
        transitions = []
        for low, high in pairwise(self.envelope(reuse)):
            before, after = low.point, high.point
            interval = None
            if intervals:
                rows = (self.row(before), self.row(after))
                interval = self.bootstrap.weight_crossover(*rows, reuse)
            rate = exchange_rate(high.low)
            transitions.append(Transition(high.low, rate, before, after, interval))
        return tuple(transitions)

    def reuse_path(self, *, target_f1: float) -> tuple[Span, ...]:
        """Return the cheapest point that reaches an F1, for every N >= 1, by rising N.

        Raises:
            UnreachableTargetError: Nothing reaches the target.
        """
        able = self.reaching(target_f1)
        ranges = cheapest_lines([(point.stage1, point.stage2) for point in able])
        return tuple(Span(able[index], low, high) for index, low, high in ranges)

    def regimes(self, reuses: Sequence[float] = (1, 10, 100)) -> tuple[Regime, ...]:
        """Return the regimes of Table I for some N; see `hull.regimes`."""
        return regimes(self.routable, check_several("reuses", reuses))

    # Decisions.

    @cached_property
    def _by_f1(self) -> list[StrategyPoint]:
        """Return the routable points by rising F1; of equals the cheaper first."""
        return sorted(self.routable, key=lambda p: (p.f1, p.stage2, p.stage1))

    def in_time(self, max_seconds: float | None) -> list[StrategyPoint]:
        """Return the routable points with p95 latency within a limit (None: all), by rising F1.

        Raises:
            InvalidInputError: There are no measurements.
            UnreachableTargetError: No point keeps the limit.
        """
        if max_seconds is None:
            return self._by_f1
        limit = check_number("max_seconds", max_seconds)
        if self.measurements is None:
            raise InvalidInputError("this frontier holds means only; a limit of seconds needs rows")
        able = [point for point in self._by_f1 if self._p95(point) <= limit]
        if not able:
            fastest = min(self._by_f1, key=self._p95)
            least = self._p95(fastest)
            raise UnreachableTargetError(
                f"nothing measured answers within {limit:g} s at p95; the nearest is "
                f"{least!r} s with {fastest.label}",
                least,
            )
        return able

    def _p95(self, point: StrategyPoint) -> float:
        latency = self.latency(point)
        return math.inf if latency is None else latency.p95

    def reaching(self, target_f1: float, max_seconds: float | None = None) -> list[StrategyPoint]:
        """Return the routable points that reach an F1 `in_time`, by rising F1.

        Raises:
            InvalidInputError: The target is no F1.
            UnreachableTargetError: Nothing reaches it.
        """
        target = check_number("target_f1", target_f1)
        if not 0 <= target <= 1:
            raise InvalidInputError(f"the target F1 must lie in [0, 1], got {target_f1!r:.60}")
        in_time = self.in_time(max_seconds)
        able = [point for point in in_time if point.f1 >= target]
        if not able:
            best = max(in_time, key=lambda point: point.f1)
            raise UnreachableTargetError(
                f"no measured strategy reaches F1 {target:g}; the nearest is {best.f1!r} "
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
        prepared: Iterable[PointKey] | Mapping[PointKey, float] = (),
        run: float | None = None,
        max_seconds: float | None = None,
        without: Iterable[PointKey] = (),
    ) -> RoutingDecision:
        """Choose by exactly one of target F1, budget per query, and weight.

        Args:
            reuse: N, how many queries (this one included) will share the context.
            target_f1: The cheapest point that reaches it; of equals the better.
            budget: The best F1 whose cost per query does not exceed it; of equals the cheaper.
            weight: The best efficiency score (Eq. 2); of equals the cheaper, then the better.
            prepared: Keys of the points for which the context is prepared: their stage 1 is
                sunk and counts nothing. As a mapping, each with the part that is due all the same,
                such as a cache entry that has lapsed.
            run: How many queries will share an entry of a prompt cache before it lapses; None
                for all of them.
            max_seconds: Choose among points whose measured p95 latency is within it.
            without: Keys of points that are not chosen.

        Raises:
            InvalidInputError: Not exactly one objective, or a value out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
        """
        asked = objectives(target_f1, budget, weight)
        if len(asked) != 1:
            raise InvalidInputError("give exactly one of target_f1, budget and weight")
        queries = check_reuse(reuse)
        in_run = queries
        if run is not None:
            in_run = check_reuse(run)
        terms = Terms(queries, in_run, due_of(prepared))
        if target_f1 is None:
            pool = self.in_time(max_seconds)
        else:
            pool = self.reaching(target_f1, max_seconds)
        best = pool[-1].f1
        left_out = frozenset(check_several("without", without))
        pool = [point for point in pool if point.key not in left_out]
        if not pool:
            raise UnreachableTargetError("nothing else can do it", best)
        costs = {point.key: effective_cost(point, terms, self.lapsing) for point in pool}
        ((name, given),) = asked.items()
        value = check_number(name, given)
        if target_f1 is not None:
            chosen = min(pool, key=lambda point: (costs[point.key], -point.f1))
        elif budget is not None:
            fitting = self._within(value, pool, costs, terms.reuse)
            chosen = max(fitting, key=lambda point: (point.f1, -costs[point.key]))
        else:
            w = check_weight(value)
            chosen = max(pool, key=lambda point: _by_score(point, costs[point.key], w))
        return self.decided(chosen, Objective(name), value, terms, max_seconds=max_seconds)

    def _within(
        self,
        budget: float,
        pool: Sequence[StrategyPoint],
        costs: Mapping[PointKey, float],
        reuse: float,
    ) -> list[StrategyPoint]:
        """Return the points within a budget."""
        if not budget > 0:
            raise InvalidInputError(f"the budget must be positive, got {budget!r}")
        fitting = [point for point in pool if costs[point.key] <= budget]
        if not fitting:
            lowest = min(costs.values())
            raise UnreachableTargetError(
                f"nothing measured costs at most {budget:g} {self.unit} per query at "
                f"N = {reuse:g}; the cheapest needs {lowest!r}",
                lowest,
            )
        return fitting

    def decided(
        self,
        point: StrategyPoint,
        objective: Objective,
        value: float,
        terms: Terms,
        *,
        note: str = "",
        max_seconds: float | None = None,
    ) -> RoutingDecision:
        """Return the decision for a point, with its forecast cost."""
        return RoutingDecision(
            point,
            objective,
            value,
            reuse=terms.reuse,
            effective=effective_cost(point, terms, self.lapsing),
            stage1=terms.due.get(point.key, point.stage1),
            unit=self.unit,
            run=terms.run,
            due=terms.due,
            _measured=self,
            note=note,
            max_seconds=max_seconds,
        )


def cautious_frontier(frontier: EfficiencyFrontier) -> EfficiencyFrontier:
    """Return the frontier with the lower end of its interval as the F1 of every point."""
    lower = []
    for point in frontier.points:
        interval = frontier.f1_interval(point)
        lower.append(replace(point, f1=interval.low))
    return frontier.with_points(lower)


def _by_score(point: StrategyPoint, cost: float, weight: float) -> tuple[float, float, float]:
    return efficiency_score(point.f1, cost, weight), -cost, point.f1
