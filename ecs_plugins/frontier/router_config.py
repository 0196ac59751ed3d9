"""Settings of every decision of a router."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ecs_plugins.common.config import Config
from ecs_plugins.frontier.decision import objectives

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
            most traffic.
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
