"""The router: one decision per query from the frontier, the reuse ledger and what is prepared.

Everything that the integrations need and no framework: they ask for a decision, run the chain
that belongs to it, and book what it really cost.

N comes, in this order, from the caller; from the ledger, as this query and the forecast of
those to come; or is 1. With a policy, N is taken as unknown and rent or buy decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.decision import Objective, RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.online import OnlinePolicy, decide_online
from ecs_plugins.frontier.points import PointKey
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.tokens import Role, Stage, TokenLedger


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """What is asked of every decision, unless a call says otherwise.

    Attributes:
        target_f1: The cheapest that reaches it.
        budget: The best F1 within this cost per query.
        weight: The best efficiency score.
        policy: How to decide when nobody gives N: None trusts the forecast of the ledger.
        trust: How far `OnlinePolicy.FORECAST` trusts the forecast; see `RentOrBuy.rentals`.
        seed: Of the randomised policy.

    Raises:
        ConfigurationError: Not exactly one objective, or a policy without a target F1, which
            rent or buy needs to compare at equal quality.
    """

    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None
    policy: OnlinePolicy | None = None
    trust: float = 0.5
    seed: int = 42

    def __post_init__(self) -> None:
        if sum(v is not None for v in (self.target_f1, self.budget, self.weight)) != 1:
            raise ConfigurationError(
                "a router needs exactly one objective: target_f1, budget or weight"
            )
        if self.policy is not None and self.target_f1 is None:
            raise ConfigurationError(
                "an online policy compares strategies of equal quality: give target_f1"
            )


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a routed query cost, beside what was expected.

    Attributes:
        expected_stage1: Forecast of stage 1; 0 when the context was prepared already.
        expected_stage2: Forecast of stage 2.
        actual_stage1: As booked.
        actual_stage2: As booked.
        unit: What they are counted in.
    """

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
        self._lock = threading.Lock()
        self._settled: list[float] = [0.0, 0.0]

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
        override = {"target_f1": target_f1, "budget": budget, "weight": weight}
        given = {name: value for name, value in override.items() if value is not None}
        if len(given) > 1:
            raise InvalidInputError("give at most one of target_f1, budget and weight")
        asked = given or {
            name: value for name in override if (value := getattr(self.config, name)) is not None
        }
        ready = frozenset(prepared)
        seen, source = 1, "N = 1: no reuse was given and there is no ledger"
        if self.ledger is not None and context_id:
            ready |= self.ledger.prepared(context_id)
            seen = self.ledger.record(context_id) if count else self._next(context_id)
        if reuse is not None:
            return self.frontier.decide(reuse=reuse, prepared=ready, **asked)
        if self.ledger is not None and context_id:
            forecast = self.ledger.model().forecast(seen)
            if self.config.policy is not None and "target_f1" in asked:
                return self._online(asked["target_f1"], context_id, seen, ready)
            reuse = forecast.reuse
            source = (
                f"N = {reuse:.1f}: query {seen} of this context, "
                f"{forecast.remaining:.1f} more expected"
            )
        decision = self.frontier.decide(reuse=reuse or 1.0, prepared=ready, **asked)
        return replace(decision, note=source)

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
        one = two = 0.0
        for (stage, role), tokens in actual:
            cost = prices.of(Role(role)) * tokens
            if stage == Stage.PREPARE:
                one += prices.prepare_factor * cost
            else:
                two += cost
        two += prices.per_second * seconds
        two -= cached_input * prices.answer.cache_saving
        if self.ledger is not None and context_id and (prepared or actual.total(Stage.PREPARE)):
            self.ledger.mark_prepared(context_id, decision.point.key, one)
        with self._lock:
            self._settled[0] += decision.stage1 + decision.stage2
            self._settled[1] += one + two
        return Settlement(decision.stage1, decision.stage2, one, two, self.frontier.unit)

    @property
    def totals(self) -> tuple[float, float]:
        """Expected and actual cost of everything settled so far."""
        with self._lock:
            return self._settled[0], self._settled[1]

    def _next(self, context_id: str) -> int:
        assert self.ledger is not None
        return self.ledger.count(context_id) + 1

    def _online(
        self, target_f1: float, context_id: str, seen: int, ready: frozenset[PointKey]
    ) -> RoutingDecision:
        assert self.ledger is not None
        assert self.config.policy is not None
        forecast = self.ledger.model().forecast(seen)
        chosen = decide_online(
            self.frontier,
            target_f1,
            seen,
            context_id=context_id,
            prepared=ready,
            policy=self.config.policy,
            forecast=forecast,
            trust=self.config.trust,
            seed=self.config.seed,
        )
        sunk = chosen.point.key in ready
        return RoutingDecision(
            chosen.point,
            Objective.TARGET_F1,
            target_f1,
            forecast.reuse,
            chosen.point.effective(forecast.reuse, sunk=sunk),
            self.frontier.unit,
            sunk,
            ready,
            self.frontier,
            chosen.reason,
        )

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
