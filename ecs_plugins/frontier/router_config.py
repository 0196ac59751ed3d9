"""What is asked of every decision of a router."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ecs_plugins.common.config import Config
from ecs_plugins.frontier.decision import objectives
from ecs_plugins.frontier.spending import SpendCap

OnlinePolicy = Literal["deterministic", "randomised"]
"""How to decide without knowing N: within 4 times the optimum always, or e times in expectation."""


class RouterConfig(Config):
    """What is asked of every decision; a call may ask for another objective, and must without one.

    Attributes:
        target_f1: The cheapest that reaches it.
        budget: The best F1 within this cost per query.
        weight: The best efficiency score.
        policy: How to decide when nobody gives N, for a target F1: None trusts the forecast of
            the ledger once it would have saved more than rent or buy, and rents or buys until
            then.
        cautious: Whether the lower end of its interval counts as the F1 of a strategy; scores
            that were observed narrow it, those of other processes after a minute.
        max_seconds: Choose among what answers within it at p95, as it was measured.
        spend_cap: What all queries of a tenant may cost in a day, by what the ledger has booked.
    """

    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None
    policy: OnlinePolicy | None = None
    cautious: bool = False
    max_seconds: float | None = Field(default=None, gt=0)
    spend_cap: SpendCap | None = None

    @model_validator(mode="after")
    def _one_objective(self) -> Self:
        if len(self.objective) > 1:
            raise ValueError("give at most one of target_f1, budget and weight")
        if self.policy is not None and self.objective and self.target_f1 is None:
            raise ValueError("an online policy compares strategies of equal quality: use target_f1")
        return self

    @property
    def objective(self) -> dict[str, float]:
        """The objective by name."""
        return objectives(self.target_f1, self.budget, self.weight)
