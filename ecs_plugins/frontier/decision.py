"""What a router gets back: the choice, the numbers behind it, and why nothing else was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import exchange_rate
from ecs_plugins.frontier.points import ConfigValue, PointKey, StrategyPoint

if TYPE_CHECKING:
    from ecs_plugins.frontier.bootstrap import Interval
    from ecs_plugins.frontier.envelope import EfficiencyFrontier


class Objective(StrEnum):
    """What a router is asked for."""

    TARGET_F1 = "target_f1"
    """The cheapest strategy that reaches an F1."""
    BUDGET = "budget"
    """The best strategy within a cost per query."""
    WEIGHT = "weight"
    """The best efficiency score (Eq. 2)."""


class UnreachableTargetError(InvalidInputError):
    """No measured strategy reaches the target, or none fits the budget.

    Attributes:
        nearest: The nearest target or budget that can be met.
    """

    def __init__(self, message: str, nearest: float) -> None:
        super().__init__(message)
        self.nearest = nearest

    def __reduce__(self) -> tuple[type[UnreachableTargetError], tuple[str, float]]:
        return (UnreachableTargetError, (str(self), self.nearest))


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """One decision of a frontier.

    Cheap to make: intervals, ties and reasons are worked out when they are asked for.

    Attributes:
        point: What was chosen, with its measured F1 and its forecast cost per stage.
        objective: What was asked for.
        value: The target F1, budget or weight that was asked for.
        reuse: N.
        effective: Forecast cost per query at N, stage 1 included unless it is sunk.
        unit: What costs are counted in.
        sunk: Whether the context is already prepared for this strategy.
        prepared: All strategies for which it is.
        note: What else led to it, such as where N comes from; empty for a plain look-up.
    """

    point: StrategyPoint
    objective: Objective
    value: float
    reuse: float
    effective: float
    unit: str
    sunk: bool
    prepared: frozenset[PointKey]
    _frontier: EfficiencyFrontier = field(repr=False, compare=False)
    note: str = ""

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
        out: dict[str, dict[str, float]] = {}
        if self.point.usage is not None:
            for (stage, role), count in self.point.usage.tokens.items():
                if not (self.sunk and stage == "prepare"):
                    out.setdefault(str(stage), {})[str(role)] = count
        return out

    @property
    def f1_interval(self) -> Interval:
        """Bootstrap interval of the F1, or a normal one from the standard error."""
        return self._frontier.f1_interval(self.point)

    @property
    def exchange_rate(self) -> float | None:
        """At a weight objective: the rise in cost that one point of F1 (0.01) is worth."""
        return exchange_rate(self.value) if self.objective == Objective.WEIGHT else None

    def ties(self) -> tuple[StrategyPoint, ...]:
        """Points that the measurements cannot tell from the choice.

        For a target F1 or a budget: points that are no dearer and whose paired F1 difference to
        the choice has an interval that holds 0. For a weight: points whose paired difference in
        score does. Empty when there are no measurements to resample.
        """
        from ecs_plugins.frontier.explain import ties

        return ties(self._frontier, self)

    def why_not(self) -> dict[str, str]:
        """Label of every other point -> why it was not chosen."""
        from ecs_plugins.frontier.explain import why_not

        return why_not(self._frontier, self)

    def explain(self) -> str:
        """The decision in a few lines for a person."""
        from ecs_plugins.frontier.explain import explain

        return explain(self)

    def summary(self) -> dict[str, object]:
        """Plain values for traces and metadata, cheap enough for every query.

        Without intervals, ties and reasons, which take resampling; `to_dict` has them.
        """
        return {
            "label": self.label,
            "strategy": self.strategy,
            "config": dict(self.config),
            "objective": str(self.objective),
            "value": self.value,
            "reuse": self.reuse,
            "f1": self.f1,
            "effective": self.effective,
            "stage1": self.stage1,
            "stage2": self.stage2,
            "unit": self.unit,
            "sunk": self.sunk,
            "note": self.note,
        }

    def to_dict(self) -> dict[str, object]:
        """Everything, for ``--json`` and reports."""
        interval = self.f1_interval
        return {
            **self.summary(),
            "f1_interval": [interval.low, interval.high],
            "tokens": self.tokens,
            "exchange_rate": self.exchange_rate,
            "ties": [point.label for point in self.ties()],
            "why_not": self.why_not(),
        }
