"""The router: one decision per query from the frontier, the reuse ledger and what is prepared.

N comes, in this order, from the caller; from the ledger, as this query and the forecast of those
to come; or is 1. With a policy, N is taken as unknown and rent or buy decides between two
strategies of equal quality: renting costs ``d`` more per query, buying a stage 1 of ``B`` once.
This is ski rental with ``B / d`` queries to break even. Buying when rent has reached the price
never costs more than twice what an all-knowing router would have paid (Karlin et al. 1988).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

from pydantic import model_validator

from ecs_plugins.common.config import Config
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import Usage
from ecs_plugins.frontier.decision import Objective, RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.points import PointKey
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.tokens import Role, Stage, TokenLedger

OnlinePolicy = Literal["deterministic"]
"""How to decide without knowing N; ``"deterministic"`` is at most 2 times the optimum, always."""


@dataclass(frozen=True, slots=True)
class RentOrBuy:
    """Rent at ``rent_extra`` > 0 more per query, or buy once at ``price``, for one context."""

    rent_extra: float
    price: float

    @property
    def break_even(self) -> float:
        """The number of queries for which both cost the same."""
        return self.price / self.rent_extra

    @property
    def rentals(self) -> int:
        """How many queries to rent for before buying."""
        # Buying at query k means k - 1 rentals; k - 1 <= B / d < k keeps the ratio at 2.
        return max(0, math.ceil(self.break_even) - 1)


def decide_online(
    frontier: EfficiencyFrontier,
    target_f1: float,
    seen: int,
    *,
    prepared: Iterable[PointKey] = (),
) -> RoutingDecision:
    """Rent or buy at equal quality, both reaching ``target_f1``; the reason is the note.

    Rent is the cheapest for a single query, buy the cheapest without end of reuse.

    Args:
        frontier: What was measured.
        target_f1: What both must reach.
        seen: Queries to this context so far, this one included; >= 1.
        prepared: Keys of points whose stage 1 is already paid for this context.

    Raises:
        UnreachableTargetError: Nothing reaches the target.
    """
    ready = frozenset(prepared)
    rent, owned = (
        frontier.decide(reuse=reuse, target_f1=target_f1, prepared=ready) for reuse in (1, math.inf)
    )
    extra, price = rent.stage2 - owned.stage2, owned.stage1 - rent.stage1
    if extra <= 0 or price <= 0:
        note = f"{owned.label} is the cheapest from this query on, however many follow"
        return replace(owned, note=note)
    choice = RentOrBuy(extra, price)
    left = choice.rentals - seen + 1
    what = f"rent for {left} queries yet" if left > 0 else "prepare the context now"
    note = (
        f"query {seen} of this context: {what}. Preparing for {owned.label} costs {price:.4g} "
        f"{frontier.unit}, {rent.label} costs {extra:.4g} more per query, so they break even "
        f"after {choice.break_even:.1f} queries"
    )
    return replace(rent if left > 0 else owned, note=note)


class RouterConfig(Config):
    """What is asked of every decision, unless a call says otherwise; exactly one objective.

    Attributes:
        target_f1: The cheapest that reaches it.
        budget: The best F1 within this cost per query.
        weight: The best efficiency score.
        policy: How to decide when nobody gives N, for a target F1: None trusts the forecast of
            the ledger.
    """

    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None
    policy: OnlinePolicy | None = None

    @model_validator(mode="after")
    def _one_objective(self) -> Self:
        if len(self.objective) != 1:
            raise ValueError("a router needs exactly one objective: target_f1, budget or weight")
        if self.policy is not None and self.target_f1 is None:
            raise ValueError("an online policy compares strategies of equal quality: use target_f1")
        return self

    @property
    def objective(self) -> dict[str, float]:
        """The objective by name."""
        return _given(self.target_f1, self.budget, self.weight)


def _given(*values: float | None) -> dict[str, float]:
    named = zip(Objective, values, strict=True)
    return {str(name): value for name, value in named if value is not None}


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a routed query cost, beside what was expected; a prepared stage 1 is expected as 0."""

    expected_stage1: float
    expected_stage2: float
    actual_stage1: float
    actual_stage2: float
    unit: str

    @property
    def ratio(self) -> float:
        """Actual over expected stage 2; far from 1, the traffic is not like the calibration."""
        return self.actual_stage2 / self.expected_stage2


class Router:
    """Routes queries; thread-safe, as the frontier is read-only and the ledger locks.

    Args:
        frontier: What was measured.
        config: What to ask of it.
        ledger: Counts queries per context and knows what is prepared; None routes each query
            by itself.
    """

    def __init__(
        self,
        frontier: EfficiencyFrontier,
        config: RouterConfig,
        *,
        ledger: ReuseLedger | None = None,
    ) -> None:
        self.frontier = frontier
        self.config = config
        self.ledger = ledger

    def route(
        self,
        *,
        context_id: str | None = None,
        reuse: float | None = None,
        target_f1: float | None = None,
        budget: float | None = None,
        weight: float | None = None,
        prepared: Iterable[PointKey] = (),
        count: bool = True,
    ) -> RoutingDecision:
        """Decide for one query.

        Args:
            context_id: What it is asked about; `Context.id`, or any id of the caller's.
            reuse: N, where the caller knows it.
            target_f1: Instead of the configured objective; likewise the next two.
            budget: See `RouterConfig`.
            weight: See `RouterConfig`.
            prepared: Points prepared for the context beyond what the ledger knows.
            count: Whether to count this query in the ledger; False for a dry run.

        Raises:
            InvalidInputError: A value out of range.
            UnreachableTargetError: Nothing measured can do it.
            StorageError: The ledger failed.
        """
        given = _given(target_f1, budget, weight)
        if len(given) > 1:
            raise InvalidInputError("give at most one of target_f1, budget and weight")
        asked = given or self.config.objective
        ready = frozenset(prepared)
        if self.ledger is None or not context_id:
            known = 1.0 if reuse is None else reuse
            decision = self.frontier.decide(reuse=known, prepared=ready, **asked)
            note = "N = 1: no reuse was given and there is no ledger"
            return replace(decision, note=note) if reuse is None else decision
        ready |= self.ledger.prepared(context_id)
        seen = self.ledger.record(context_id) if count else self.ledger.count(context_id) + 1
        if reuse is not None:
            return self.frontier.decide(reuse=reuse, prepared=ready, **asked)
        more = self.ledger.model().remaining(seen)
        decision = self.frontier.decide(reuse=1 + more, prepared=ready, **asked)
        if self.config.policy is None or "target_f1" not in asked:
            note = f"N = {1 + more:.1f}: query {seen} of this context, {more:.1f} more expected"
            return replace(decision, note=note)
        online = decide_online(self.frontier, asked["target_f1"], seen, prepared=ready)
        cost = online.stage2 + online.stage1 / (1 + more)
        return replace(online, reuse=1 + more, effective=cost)

    def settle(
        self,
        decision: RoutingDecision,
        actual: TokenLedger,
        *,
        context_id: str | None = None,
        seconds: float = 0.0,
        cached_input: int = 0,
        prepared: bool = False,
    ) -> Settlement:
        """Book what a decision really cost, and note what it prepared.

        A stage 1 that was paid, or found done, is noted in the ledger, so it is sunk for the
        next query.

        Args:
            decision: What `route` returned.
            actual: Tokens of the run, both stages.
            context_id: As given to `route`.
            seconds: Wall time of stage 2, for prices per second.
            cached_input: How many of the answering model's prompt tokens came from its cache.
            prepared: Whether stage 1 was found done, in a cache on disk say.

        Raises:
            InvalidInputError: More cached prompt tokens than prompt tokens.
        """
        read = actual.total(Stage.QUERY, Role.ANSWER_INPUT)
        if not 0 <= cached_input <= read:
            raise InvalidInputError(f"{cached_input} of {read} prompt tokens cannot be cached")
        prices = self.frontier.prices
        one, two = prices.stages(Usage(dict(actual), query_seconds=seconds))
        two -= cached_input * prices.cache_saving
        if self.ledger is not None and context_id and (prepared or actual.total(Stage.PREPARE)):
            self.ledger.mark_prepared(context_id, decision.point.key, one)
        return Settlement(decision.stage1, decision.stage2, one, two, self.frontier.unit)
