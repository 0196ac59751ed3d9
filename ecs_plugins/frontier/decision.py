"""One decision of a frontier: the choice, its numbers, and why nothing else was chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ecs_plugins.common.checks import shown
from ecs_plugins.common.config import Config
from ecs_plugins.common.rendering import folded, preformatted, rendered
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import (
    ConfigValue,
    PointKey,
    StrategyPoint,
    amount,
    efficiency_score,
    exchange_rate,
)
from ecs_plugins.frontier.measured import MeasuredPoints
from ecs_plugins.frontier.measurements import Interval

_SUMMARY = (
    "label",
    "strategy",
    "config",
    "objective",
    "value",
    "reuse",
    "f1",
    "effective",
    "stage1",
    "stage2",
    "unit",
    "sunk",
    "note",
)


class Objective(StrEnum):
    """Objective of a router."""

    TARGET_F1 = "target_f1"
    """The cheapest strategy that reaches an F1."""
    BUDGET = "budget"
    """The best strategy within a cost per query."""
    WEIGHT = "weight"
    """The best efficiency score (Eq. 2)."""


def objectives(
    target_f1: float | None, budget: float | None, weight: float | None
) -> dict[str, float]:
    """Return the objectives that are given, by name."""
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


class Terms(NamedTuple):
    """Number of queries that share a stage 1, and the part of it that is due.

    A prepared context serves all ``reuse`` queries, an entry of a prompt cache only the ``run``
    of queries until it lapses. ``due`` holds what of a stage 1 is still to be paid, by point; all
    of it where the point is not there.
    """

    reuse: float
    run: float
    due: Mapping[PointKey, float]


def due_of(prepared: Iterable[PointKey] | Mapping[PointKey, float]) -> Mapping[PointKey, float]:
    """Return the due part of stage 1 for the prepared points of a context.

    Raises:
        InvalidInputError: They are no keys of points.
    """
    if isinstance(prepared, Mapping):
        return prepared
    try:
        return dict.fromkeys(prepared, 0.0)
    except TypeError as error:
        raise InvalidInputError(
            f"prepared must hold keys of points, such as point.key, got {shown(prepared, 60)}"
        ) from error


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """One decision of a frontier.

    Cheap to make: intervals and reasons are worked out when they are asked for.

    Attributes:
        point: The choice, with its measured F1 and its forecast cost per stage.
        value: The target F1, budget or weight that was asked for.
        reuse: N.
        effective: Forecast cost per query at N, stage 1 included unless it is sunk.
        stage1: Forecast cost of preparing the context; 0 when sunk.
        run: Queries that share an entry of a prompt cache; N where no gap lets it lapse.
        note: Other reasons of the choice, such as the source of N.
        max_seconds: The limit of p95 latency that it keeps, if there was one.
    """

    point: StrategyPoint
    objective: Objective
    value: float
    reuse: float
    effective: float
    stage1: float
    unit: str
    run: float
    due: Mapping[PointKey, float] = field(repr=False, hash=False)
    _measured: MeasuredPoints = field(repr=False, compare=False)
    note: str = ""
    max_seconds: float | None = None

    @property
    def strategy(self) -> str:
        """Return the name of the chosen strategy."""
        return self.point.strategy

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """Return the configuration of the chosen strategy."""
        return self.point.config

    @property
    def label(self) -> str:
        """Return strategy and configuration in one text."""
        return self.point.label

    @property
    def f1(self) -> float:
        """Return the measured mean F1 of the choice, in [0, 1]."""
        return self.point.f1

    @property
    def sunk(self) -> bool:
        """Return True if the context is prepared for this strategy."""
        return self.due.get(self.point.key) == 0

    @property
    def stage2(self) -> float:
        """Return the forecast cost of stage 2 of this query, in ``unit``."""
        return self.point.stage2

    @property
    def f1_interval(self) -> Interval:
        """Return the interval of the F1 at 95 %; see `EfficiencyFrontier.f1_interval`."""
        return self._measured.f1_interval(self.point)

    @property
    def exchange_rate(self) -> float | None:
        """Return the rise in cost that 0.01 more F1 is worth at a weight objective; else None."""
        return exchange_rate(self.value) if self.objective == Objective.WEIGHT else None

    @property
    def asked(self) -> str:
        """Return the objective in words."""
        if self.objective == Objective.TARGET_F1:
            return f"the cheapest with F1 >= {self.value:.3f}"
        if self.objective == Objective.BUDGET:
            return f"the best F1 within {amount(self.value, self.unit)} per query"
        rate = exchange_rate(self.value)
        worth = "any cost" if math.isinf(rate) else f"{rate:.1%} more cost"
        return f"the best score at w = {self.value:g} (0.01 more F1 is worth {worth})"

    @property
    def split(self) -> str:
        """Return the cost per query as its two stages, in words."""
        per_query = amount(self.stage2, self.unit)
        if self.sunk:
            return f"{per_query}; the context is already prepared"
        lapsing = min(self.stage1, self._measured.lapsing.get(self.point.key, 0.0))
        if not lapsing or self.run == self.reuse:
            return f"{per_query} + {amount(self.stage1, self.unit)} / {self.reuse:g}"
        text = per_query
        if self.stage1 > lapsing:
            text += f" + {amount(self.stage1 - lapsing, self.unit)} / {self.reuse:g}"
        return f"{text} + {amount(lapsing, self.unit)} / {self.run:.3g} until the cache lapses"

    def why_not(self) -> dict[str, str]:
        """Return label of every other point -> why it was not chosen."""
        others = (point for point in self._measured.points if point.key != self.point.key)
        return {point.label: self._reason(point) for point in others}

    def explain(self) -> str:
        """Return the decision in a few lines for a person."""
        text = rendered(
            "decision.txt.j2",
            "",
            of=self,
            amount=amount,
            latency=self._measured.latency(self.point),
            caution=self._measured.caution,
        )
        return folded(text)

    def _repr_html_(self) -> str:
        """Return the decision, as a notebook shows it."""
        return preformatted(self.explain())

    def summary(self) -> dict[str, object]:
        """Return plain values for traces and metadata, cheap enough for every query.

        Without intervals and reasons, which take resampling; `to_dict` has them.
        """
        values = {name: getattr(self, name) for name in _SUMMARY}
        return values | {"config": dict(self.config), "objective": str(self.objective)}

    def to_dict(self) -> dict[str, object]:
        """Return all fields as a dict, for ``--json`` and reports."""
        interval = self.f1_interval
        return {
            **self.summary(),
            "f1_interval": [interval.low, interval.high],
            "latency": list(self._measured.latency(self.point) or ()),
            "exchange_rate": self.exchange_rate,
            "why_not": self.why_not(),
        }

    def _reason(self, point: StrategyPoint) -> str:
        """Return the reason why a point was not chosen, with its numbers."""
        if not point.routable:
            return "measured as an upper bound, never routed"
        latency = self._measured.latency(point)
        limit = self.max_seconds
        if limit is not None and latency is not None and latency.p95 > limit:
            return f"its p95 latency of {latency.p95:.3g} s is above {limit:g} s"
        terms = Terms(self.reuse, self.run, self.due)
        cost = effective_cost(point, terms, self._measured.lapsing)
        if self.objective == Objective.TARGET_F1:
            reason = "misses the target" if point.f1 < self.value else "reaches it, no cheaper"
        elif self.objective == Objective.BUDGET:
            reason = "above the budget" if cost > self.value else "fits, no better"
        else:
            own = efficiency_score(self.f1, self.effective, self.value)
            reason = f"scores {own - efficiency_score(point.f1, cost, self.value):.3g} lower"
        return f"{reason}: F1 {point.f1:.3f}, {amount(cost, self.unit)} per query"


def effective_cost(point: StrategyPoint, terms: Terms, lapsing: Mapping[PointKey, float]) -> float:
    """Return the cost per query (Eq. 1) with the due and the lapsing part of stage 1."""
    due = terms.due.get(point.key, point.stage1)
    if not due:
        return point.stage2
    if terms.run == terms.reuse:
        return point.stage2 + due / terms.reuse
    entry = min(due, lapsing.get(point.key, 0.0))
    stays = due - entry
    return point.stage2 + stays / terms.reuse + entry / terms.run


OnlinePolicy = Literal["deterministic"]
"""A way to decide without N: rent or buy, within 4 times the optimum."""


class RouterConfig(Config):
    """Settings of every decision; a call may bring another objective, and must without one.

    Attributes:
        target_f1: The cheapest strategy that reaches it.
        budget: The best F1 within this cost per query.
        weight: The best efficiency score.
        policy: The rule where nobody gives N. None expects as many queries as contexts usually
            get, and as many more as have come. ``"deterministic"`` rents or buys, for a target F1:
            it never costs more than its bound times the optimum, and more than the other rule in
            most traffic. Where a prompt cache lapses no bound holds, and the other rule decides.
        cautious: Whether the lower end of its interval counts as the F1 of a strategy.
        max_seconds: Limit of the measured p95 latency.
    """

    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None
    policy: OnlinePolicy | None = None
    cautious: bool = False
    max_seconds: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _check_objective(self) -> Self:
        if len(self.objective) > 1:
            raise ValueError("give at most one of target_f1, budget and weight")
        if self.policy is not None and self.objective and self.target_f1 is None:
            raise ValueError("rent or buy compares strategies of equal quality: use target_f1")
        return self

    @property
    def objective(self) -> dict[str, float]:
        """Return the objective by name."""
        return objectives(self.target_f1, self.budget, self.weight)
