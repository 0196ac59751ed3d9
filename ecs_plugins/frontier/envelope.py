"""The Efficiency Frontier: which strategy and configuration is best, for every w, N and target.

The paper prices every configuration at a given N (Eq. 1) and takes the best over all strategies
(Eq. 4). It first keeps, per strategy, what is optimal under some w (Eq. 3), which changes no
envelope: what is best of all is best of its strategy. A sweep over w reaches only the convex hull
in (F1, ln cost), so look-ups by target F1 or budget use the whole non-dominated set instead. All
transitions are closed forms. A decision holds the choice, the numbers behind it, and why nothing
else was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any

from ecs_plugins.common.pages import rendered
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import (
    ConfigValue,
    PointKey,
    StrategyPoint,
    bounded,
    check_reuse,
    check_weight,
    efficiency_score,
    exchange_rate,
    weight_crossover,
)
from ecs_plugins.frontier.hull import Span, reuse_spans, weight_spans
from ecs_plugins.frontier.measurements import Interval, MeasuredPoints
from ecs_plugins.tokens import Stage, nested

_SUMMARY = "label strategy config objective value reuse f1 effective stage1 stage2 unit sunk note"


class Objective(StrEnum):
    """What a router is asked for."""

    TARGET_F1 = "target_f1"
    """The cheapest strategy that reaches an F1."""
    BUDGET = "budget"
    """The best strategy within a cost per query."""
    WEIGHT = "weight"
    """The best efficiency score (Eq. 2)."""


def objectives(
    target_f1: float | None, budget: float | None, weight: float | None
) -> dict[str, float]:
    """Those that are given, by name."""
    named = zip(Objective, (target_f1, budget, weight), strict=True)
    return {str(name): value for name, value in named if value is not None}


class UnreachableTargetError(InvalidInputError):
    """No measured strategy reaches the target, or none fits the budget.

    Attributes:
        nearest: The nearest target or budget that can be met.
    """

    def __init__(self, message: str, nearest: float) -> None:
        super().__init__(message, nearest)
        self.nearest = nearest

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """One decision of a frontier.

    Cheap to make: intervals, ties and reasons are worked out when they are asked for.

    Attributes:
        point: What was chosen, with its measured F1 and its forecast cost per stage.
        value: The target F1, budget or weight that was asked for.
        reuse: N.
        effective: Forecast cost per query at N, stage 1 included unless it is sunk.
        sunk: Whether the context is already prepared for this strategy.
        prepared: All strategies for which it is.
        note: What else led to it, such as where N comes from.
        max_seconds: The limit of p95 latency that it keeps, if there was one.
    """

    point: StrategyPoint
    objective: Objective
    value: float
    reuse: float
    effective: float
    unit: str
    sunk: bool
    prepared: frozenset[PointKey]
    _measured: MeasuredPoints = field(repr=False, compare=False)
    note: str = ""
    max_seconds: float | None = None

    @property
    def strategy(self) -> str:
        """Name of the chosen strategy."""
        return self.point.strategy

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """Its configuration."""
        return self.point.config

    @property
    def label(self) -> str:
        """Strategy and configuration in one string."""
        return self.point.label

    @property
    def f1(self) -> float:
        """Measured mean F1 of the choice."""
        return self.point.f1

    @property
    def stage1(self) -> float:
        """Forecast cost of preparing the context; 0 when sunk."""
        return 0.0 if self.sunk else self.point.stage1

    @property
    def stage2(self) -> float:
        """Forecast cost of this query."""
        return self.point.stage2

    @property
    def tokens(self) -> dict[str, dict[str, float]]:
        """Forecast tokens per stage and model role; empty for points without usage."""
        booked = self.point.usage.tokens if self.point.usage is not None else {}
        sunk = Stage.PREPARE if self.sunk else None
        return nested({account: n for account, n in booked.items() if account[0] != sunk})

    @property
    def f1_interval(self) -> Interval:
        """Bootstrap interval of the F1, or a normal one from the standard error."""
        return self._measured.f1_interval(self.point)

    @property
    def exchange_rate(self) -> float | None:
        """At a weight objective: the rise in cost that one point of F1 (0.01) is worth."""
        return exchange_rate(self.value) if self.objective == Objective.WEIGHT else None

    @property
    def asked(self) -> str:
        """What was asked for, in words."""
        if self.objective == Objective.TARGET_F1:
            return f"the cheapest with F1 >= {self.value:.3f}"
        if self.objective == Objective.BUDGET:
            return f"the best F1 within {amount(self.value, self.unit)} per query"
        rate = exchange_rate(self.value)
        worth = "any cost" if math.isinf(rate) else f"{rate:.1%} more cost"
        return f"the best score at w = {self.value:g} (0.01 more F1 is worth {worth})"

    @property
    def split(self) -> str:
        """The cost per query as its two stages, in words."""
        one, two = amount(self.stage1, self.unit), amount(self.stage2, self.unit)
        sunk = f"{two}; the context is already prepared"
        return sunk if self.sunk else f"{two} + {one} / {self.reuse:g}"

    def ties(self) -> tuple[StrategyPoint, ...]:
        """Points that the measurements cannot tell from the choice.

        For a target F1 or a budget: points that are no dearer and whose paired F1 difference to
        the choice has an interval that holds 0. For a weight: points whose paired difference in
        score does. Empty when there are no measurements to resample.
        """
        if self._measured.measurements is None:
            return ()
        others = (point for point in self._measured.routable if point.key != self.point.key)
        return tuple(point for point in others if self._alike(point))

    def _alike(self, point: StrategyPoint) -> bool:
        measured, bootstrap = self._measured, self._measured.bootstrap
        rows = measured.row(self.point), measured.row(point)
        if self.objective == Objective.WEIGHT:
            sunk = [measured.row(p) for p in measured.points if p.key in self.prepared]
            return 0.0 in bootstrap.score_difference(*rows, self.reuse, self.value, sunk)
        return self._cost(point) <= self.effective and 0.0 in bootstrap.f1_difference(*rows)

    def why_not(self) -> dict[str, str]:
        """Label of every other point -> why it was not chosen."""
        others = (point for point in self._measured.points if point.key != self.point.key)
        return {point.label: self._reason(point) for point in others}

    def explain(self) -> str:
        """The decision in a few lines for a person."""
        latency, caution = self._measured.latency(self.point), self._measured.caution
        said = {"of": self, "amount": amount, "latency": latency, "caution": caution}
        return rendered("decision.txt.j2", "", **said).rstrip()

    def summary(self) -> dict[str, object]:
        """Plain values for traces and metadata, cheap enough for every query.

        Without intervals, ties and reasons, which take resampling; `to_dict` has them.
        """
        values = {name: getattr(self, name) for name in _SUMMARY.split()}
        return values | {"config": dict(self.config), "objective": str(self.objective)}

    def to_dict(self) -> dict[str, object]:
        """Everything, for ``--json`` and reports."""
        interval = self.f1_interval
        return {
            **self.summary(),
            "f1_interval": [interval.low, interval.high],
            "latency": list(self._measured.latency(self.point) or ()),
            "tokens": self.tokens,
            "exchange_rate": self.exchange_rate,
            "ties": [point.label for point in self.ties()],
            "why_not": self.why_not(),
        }

    # Reasons.

    def _cost(self, point: StrategyPoint) -> float:
        return point.effective(self.reuse, sunk=point.key in self.prepared)

    def _reason(self, point: StrategyPoint) -> str:
        if not point.routable:
            return "measured as an upper bound, never routed"
        seconds = self._measured.latency(point)
        if self.max_seconds is not None and seconds and seconds[1] > self.max_seconds:
            return f"its p95 latency of {seconds[1]:.3g} s is above {self.max_seconds:g} s"
        cost = self._cost(point)
        if self.objective == Objective.TARGET_F1:
            if point.f1 < self.value:
                return f"F1 {point.f1:.3f} is below the target {self.value:.3f}"
            rise = cost / self.effective - 1
            more = f"{rise:.0%} more" if rise >= 0.005 else "a bit more" if rise else "the same"
            return f"reaches the target, but costs {amount(cost, self.unit)}, {more}"
        if self.objective == Objective.BUDGET:
            if cost > self.value:
                return f"{amount(cost, self.unit)} is above the budget"
            return f"fits, but its F1 {point.f1:.3f} is not higher than {self.f1:.3f}"
        as_good = [other for other in self._measured.routable if other.f1 >= point.f1]
        rival = min(as_good, key=lambda other: (self._cost(other), -other.f1))
        if (self._cost(rival), -rival.f1) < (cost, -point.f1):
            return f"dominated by {rival.label}: at least as good and no dearer"
        own = efficiency_score(self.f1, self.effective, self.value)
        text = f"scores {own - efficiency_score(point.f1, cost, self.value):.3g} lower"
        crossing = weight_crossover(self.f1, self.effective, point.f1, cost)
        side = "above" if point.f1 > self.f1 else "below"
        return text if crossing is None else f"{text}; would beat it {side} w = {crossing:.3f}"


def amount(value: float, unit: str) -> str:
    """A cost with its unit: whole tokens, three significant digits of anything else."""
    return f"{value:,.0f} {unit}" if unit == "tokens" else f"{value:.3g} {unit}"


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
        able, limit = target_f1, max_seconds
        pool = self.in_time(limit) if able is None else self.reaching(able, limit)
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
        return self.decided(chosen, Objective(name), value, reuse, ready, max_seconds=max_seconds)

    def decided(
        self,
        point: StrategyPoint,
        objective: Objective,
        value: float,
        reuse: float,
        prepared: frozenset[PointKey],
        **more: Any,
    ) -> RoutingDecision:
        """The decision for a point, with its forecast cost."""
        sunk = point.key in prepared
        parts = (point.effective(reuse, sunk=sunk), self.unit, sunk, prepared, self)
        return RoutingDecision(point, objective, value, reuse, *parts, **more)


def _below(f1: float) -> str:
    """An F1 to four digits, rounded such that it is reached."""
    return f"{f1 if float(f'{f1:.4f}') <= f1 else math.floor(f1 * 1e4) / 1e4:.4f}"


def _above(cost: float) -> str:
    """A cost to six digits, rounded such that it suffices."""
    return f"{cost if float(f'{cost:g}') >= cost else cost * (1 + 1e-5):g}"
