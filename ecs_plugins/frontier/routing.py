"""The router: one decision per query from the frontier, the reuse ledger and what is prepared.

N comes, in this order, from the caller; from the ledger, as this query and the forecast of those
to come; or is 1. With a policy, N is taken as unknown and rent or buy decides between strategies
of equal quality, within a bound of the optimum that holds for every N: see `rental`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

from cachetools import TTLCache
from pydantic import Field, model_validator

from ecs_plugins.common.config import Config
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.answering import CacheTokens
from ecs_plugins.frontier.cost import PointKey, Usage, config_json
from ecs_plugins.frontier.envelope import (
    EfficiencyFrontier,
    Objective,
    RoutingDecision,
    amount,
    objectives,
)
from ecs_plugins.frontier.measurements import FEW_QUESTIONS, wilson
from ecs_plugins.frontier.rental import Slope, plan_forecast, plan_random, plan_rental
from ecs_plugins.frontier.reuse import HORIZON, Ledger, ReuseModel
from ecs_plugins.tokens import Role, Stage, TokenLedger

_log = logging.getLogger(__name__)
_LEARN_SECONDS = 60.0
_NOT_KEPT = -math.inf  # for how long the ledger keeps what is in memory alone
# What the scoring model of this process has read of a context, and its cost.
_read: TTLCache[tuple[str, PointKey], float] = TTLCache(maxsize=4096, ttl=3600.0)
_reading = threading.Lock()

OnlinePolicy = Literal["deterministic", "randomised"]
"""How to decide without knowing N: within 4 times the optimum always, or e times in expectation."""


def decide_online(
    frontier: EfficiencyFrontier,
    target_f1: float,
    seen: int,
    *,
    prepared: Iterable[PointKey] = (),
    free: Iterable[PointKey] = (),
    max_seconds: float | None = None,
    draw: float | None = None,
) -> RoutingDecision:
    """Rent or buy at equal quality, all `EfficiencyFrontier.reaching` it; the reason is the note.

    It is query ``seen`` >= 1 of its context. Of the points ``prepared`` for it one is used where
    what the plan would use costs no less per query. Those that were before the first query are
    ``free``: the optimum has them too.
    """
    given = frozenset(free)
    ready = given | frozenset(prepared)
    able = frontier.reaching(target_f1, max_seconds)
    slopes = tuple((0.0 if point.key in given else point.stage1, point.stage2) for point in able)
    plan = plan_rental(slopes) if draw is None else plan_random(slopes, draw)
    place = plan.at(seen)
    chosen = able[plan.choices[place]]
    owned = [point for point in able if point.key in ready]
    if owned and (best := min(owned, key=lambda point: point.stage2)).stage2 <= chosen.stage2:
        chosen = best
    unit = frontier.unit
    note = f"query {seen} of this context: {chosen.label} "
    later = zip(plan.starts[place + 1 :], plan.choices[place + 1 :], strict=True)
    cheaper = ((n, able[choice]) for n, choice in later if able[choice].stage2 < chosen.stage2)
    start, following = next(cheaper, (0, None))
    if following is None:
        note += "from this query on, however many follow"
    else:
        note += (
            f"for {start - seen} queries yet, then {following.label}, whose preparation costs "
            f"{amount(following.stage1, unit)} and which costs "
            f"{amount(chosen.stage2 - following.stage2, unit)} less per query"
        )
    most = "Never more than" if draw is None else "In expectation at most"
    note += f". {most} {plan.bound:.2f} times the optimum, however many queries come"
    said = {"note": note, "max_seconds": max_seconds}
    return frontier.decided(chosen, Objective.TARGET_F1, target_f1, float(seen), ready, **said)


def _draw(context_id: str) -> float:
    """The coin of a context, in [0, 1): the same in every process, at every query."""
    digest = hashlib.blake2b(context_id.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


@lru_cache(maxsize=256)
def forecast_gain(slopes: tuple[Slope, ...], model: ReuseModel) -> tuple[float, float]:
    """What the forecast had saved over rent or buy on the contexts that it was fitted to.

    The second number is the dearest stage 1 that either of them buys.

    Both are played on each context as far as it has come; what has not been asked yet is no
    gain. Contexts beyond the horizon of the forecast count up to it.
    """
    counts = [(min(queries, HORIZON), contexts) for queries, contexts in model.counts]
    longest = max((queries for queries, _ in counts), default=0)
    plans = (
        plan_rental(slopes),
        plan_forecast(slopes, [model.expected(seen) for seen in range(1, longest + 1)]),
    )
    careful, bold = (
        sum(contexts * plan.cost(slopes, queries) for queries, contexts in counts) for plan in plans
    )
    return careful - bold, max(slopes[choice][0] for plan in plans for choice in plan.choices)


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
    """

    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None
    policy: OnlinePolicy | None = None
    cautious: bool = False
    max_seconds: float | None = Field(default=None, gt=0)

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


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a routed query cost, beside what was expected; a prepared stage 1 is expected as 0.

    ``ledger_error`` says why the ledger could not note what was prepared; empty where it could.
    """

    expected_stage1: float
    expected_stage2: float
    actual_stage1: float
    actual_stage2: float
    unit: str
    ledger_error: str = ""

    @property
    def ratio(self) -> float:
        """Actual over expected stage 2; far from 1, the traffic is not like the calibration."""
        return self.actual_stage2 / self.expected_stage2


@dataclass(eq=False, repr=False)
class Router:
    """Routes queries; thread-safe, as the frontier is read-only and the ledger locks.

    Args:
        frontier: What was measured.
        config: What to ask of it.
        ledger: Counts queries per context and knows what is prepared; None routes each query
            by itself.
    """

    frontier: EfficiencyFrontier
    config: RouterConfig
    _: KW_ONLY
    ledger: Ledger | None = None
    _lower: EfficiencyFrontier | None = field(default=None, init=False)
    _learned: float = field(default=0.0, init=False)

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
            ConfigurationError: No objective is given.
            UnreachableTargetError: Nothing measured can do it.

        A ledger that fails costs no answer: the query is then decided as without one, and the
        note of the decision says so.
        """
        given = objectives(target_f1, budget, weight)
        if len(given) > 1:
            raise InvalidInputError("give at most one of target_f1, budget and weight")
        asked: dict[str, Any] = given or self.config.objective
        if not asked:
            raise ConfigurationError(f"exactly one objective is needed: {', '.join(Objective)}")
        asked["max_seconds"] = self.config.max_seconds
        ready = frozenset(prepared)
        known = 1.0 if reuse is None else reuse
        why = "" if reuse is not None else "N = 1: no reuse was given and there is no ledger"
        if self.ledger is not None and context_id:
            try:
                paid = self.ledger.prepared(context_id, self._lives) | self._held(context_id)
                if count:
                    seen = self.ledger.record(context_id)
                else:
                    seen = self.ledger.count(context_id) + 1
                known_reuse = self.ledger.latest_model() if reuse is None else reuse
            except StorageError as failure:
                why = (
                    f"N = {known:g}, as the ledger failed and the query was not counted: {failure}"
                )
                _log.warning("%s", why)
            else:
                return self._by_ledger(context_id, asked, ready, paid, seen, known_reuse)
        decision = self._judged.decide(reuse=known, prepared=ready, **asked)
        return replace(decision, note=why)

    def _by_ledger(
        self,
        context_id: str,
        asked: Mapping[str, Any],
        given: frozenset[PointKey],
        paid: Mapping[PointKey, float],
        seen: int,
        reuse: float | ReuseModel,
    ) -> RoutingDecision:
        """Decide with what the ledger knows, for a given N or a forecast of it."""
        ready = given | paid.keys()
        if not isinstance(reuse, ReuseModel):
            return self._judged.decide(reuse=reuse, prepared=ready, **asked)
        more = reuse.expected(seen)
        decision = self._judged.decide(reuse=1 + more, prepared=ready, **asked)
        target = asked.get("target_f1")
        if target is None or (self.config.policy is None and self._trusted(reuse, target)):
            note = f"N = {1 + more:.1f}: query {seen} of this context, {more:.1f} more expected"
            return replace(decision, note=note)
        free = given | {key for key, cost in paid.items() if not cost}
        draw = _draw(context_id) if self.config.policy == "randomised" else None
        limit = self.config.max_seconds
        online = decide_online(
            self._judged, target, seen, prepared=ready, free=free, max_seconds=limit, draw=draw
        )
        cost = online.stage2 + online.stage1 / (1 + more)
        return replace(online, reuse=1 + more, effective=cost)

    def _trusted(self, model: ReuseModel, target: float) -> bool:
        """Whether the forecast would have paid off so far, by more than one mistake costs."""
        able = self._judged.reaching(target, self.config.max_seconds)
        slopes = tuple((point.stage1, point.stage2) for point in able)
        # Each context since the fit may have been a mistake, and this one may be the next.
        mistakes = 1 + (self.ledger.unfitted if self.ledger is not None else 0)
        gain, price = forecast_gain(slopes, model)
        return gain >= mistakes * price

    def settle(
        self,
        decision: RoutingDecision,
        actual: TokenLedger,
        *,
        context_id: str | None = None,
        seconds: float = 0.0,
        cache: CacheTokens = (0, 0, 0),
        prepared: Mapping[PointKey, TokenLedger] | None = None,
        answered: bool = True,
    ) -> Settlement:
        """Book what a decision really cost, and note what it prepared.

        A stage 1 that was paid, or found done, is noted in the ledger, so it is sunk for the
        next query. So is what a prompt cache holds once it has been read.

        Args:
            decision: What `route` returned.
            actual: Tokens of the run, both stages.
            context_id: As given to `route`.
            seconds: Wall time of stage 2, for prices per second.
            cache: How many of the answering model's prompt tokens came from its prompt cache,
                were written to it for 5 minutes, and for an hour.
            prepared: Key of each point whose stage 1 is now done -> tokens paid for it, none
                where it was found done, in a cache on disk say. By default the chosen one, if
                ``actual`` has tokens of stage 1.
            answered: False where the choice failed and something else answered.

        Raises:
            InvalidInputError: More cached prompt tokens than prompt tokens.
        """
        read = actual.total(Stage.QUERY, Role.ANSWER_INPUT)
        if min(cache) < 0 or sum(cache) > read:
            raise InvalidInputError(f"{cache} of {read} prompt tokens cannot be cached")
        prices = self.frontier.prices
        one, two = prices.stages(Usage(dict(actual), query_seconds=seconds))
        two += prices.answer.cache_extra(*cache)
        if prepared is None:
            prepared = {decision.point.key: actual} if actual.total(Stage.PREPARE) else {}
        failed = ""
        if self.ledger is not None and context_id:
            try:
                cached = bool(read) and answered
                for key, cost in self._done(decision, prepared, cached=cached).items():
                    if self._lives.get(key) == _NOT_KEPT:
                        with _reading:
                            _read[context_id, key] = cost
                    else:
                        self.ledger.mark_prepared(context_id, key, cost)
                if answered:
                    self.ledger.observe(decision.point.key, "cost", two / decision.stage2)
            except StorageError as failure:
                failed = str(failure)
                _log.warning("what a routed query prepared could not be noted: %s", failure)
        return Settlement(decision.stage1, decision.stage2, one, two, self.frontier.unit, failed)

    def observe(self, decision: RoutingDecision | Mapping[str, Any], score: float) -> None:
        """Note how good an answer was, in [0, 1], as F1 is measured; kept in the ledger.

        The decision may be its `RoutingDecision.summary`, as traces and responses hold it.

        Raises:
            InvalidInputError: The score is out of range, or there is no ledger.
            StorageError: It cannot be written.
        """
        if self.ledger is None or not 0 <= score <= 1:
            raise InvalidInputError(f"a score in [0, 1] and a ledger are needed, got {score!r}")
        if isinstance(decision, Mapping):
            if not {"strategy", "config"} <= decision.keys():
                raise InvalidInputError("a decision as a mapping has a strategy and a config")
            key = (str(decision["strategy"]), config_json(decision["config"]))
        else:
            key = decision.point.key
        self.ledger.observe(key, "score", float(score))
        self._lower = None

    def drift(self) -> list[str]:
        """Where scores or costs have left what was measured, one sentence each.

        The observed mean lies further from the measured one than three times the errors of both
        together, after at least 30 observations.

        Raises:
            StorageError: The ledger cannot be read.
        """
        alarms = []
        for kind, shown in (("score", "F1"), ("cost", "cost over the forecast")):
            seen = {} if self.ledger is None else self.ledger.observed(kind)
            for point in self.frontier.routable:
                n, mean, error = seen.get(point.key, (0, 0.0, 0.0))
                known, own = point.f1, self.frontier.f1_interval(point)
                if kind == "cost":
                    known, own = 1.0, self.frontier.cost_interval(point)
                away = 3 * math.hypot(error, (own.high - own.low) / (2 * 1.96))
                if n >= FEW_QUESTIONS and abs(mean - known) > away:
                    found = f"{shown} {mean:.3f} in {n} queries, measured {known:.3f}"
                    alarms.append(f"{point.label}: {found}; calibrate again")
        return alarms

    @property
    def _judged(self) -> EfficiencyFrontier:
        """What is decided on: the frontier, or its cautious copy."""
        if not self.config.cautious:
            return self.frontier
        now = time.monotonic()
        if self._lower is None or now - self._learned > _LEARN_SECONDS:
            seen: dict[PointKey, tuple[int, float, float]] = {}
            try:
                seen = {} if self.ledger is None else self.ledger.observed("score")
            except StorageError as failure:
                _log.warning("observed scores could not be read: %s", failure)
            lower = []
            for point in self.frontier.points:
                n, mean, _ = seen.get(point.key, (0, 0.0, 0.0))
                pooled = (point.f1 * point.n + mean * n) / (point.n + n)
                known = replace(point, f1=pooled, n=point.n + n)
                low = self.frontier.f1_interval(point) if not n else wilson(known)
                lower.append(replace(point, f1=low.low))
            self._lower, self._learned = self.frontier.with_points(lower), now
        return self._lower

    def _done(
        self, decision: RoutingDecision, prepared: Mapping[PointKey, TokenLedger], *, cached: bool
    ) -> dict[PointKey, float]:
        """What the ledger does not know yet of the points that are prepared now, and its cost."""
        prices, priced = self.frontier.prices, {p.key: p.stage1 for p in self.frontier.points}
        done = {
            key: float(prices.stages(Usage(dict(tokens)))[0])
            for key, tokens in prepared.items()
            if tokens.total(Stage.PREPARE) or (priced.get(key) and key not in decision.prepared)
        }
        if cached and decision.point.key in self._lives:
            # Read again, it lives on from here.
            done.setdefault(decision.point.key, decision.point.stage1)
        return done

    def _held(self, context_id: str) -> dict[PointKey, float]:
        with _reading:
            keys = [key for key in self._lives if (context_id, key) in _read]
            return {key: _read[context_id, key] for key in keys}

    @cached_property
    def _lives(self) -> dict[PointKey, float]:
        """For how long the ledger keeps a stage 1: as long as a prompt cache, or not at all."""
        prices, lives = self.frontier.prices, {}
        for point in self.frontier.points:
            if point.stage1 and point.usage is not None:
                tokens = point.usage.tokens.items()
                paid = {role for (stage, role), n in tokens if n and stage == Stage.PREPARE}
                if paid == {Role.SCORER}:
                    lives[point.key] = _NOT_KEPT
                elif prices.caches and not paid:
                    lives[point.key] = prices.answer.cache_seconds
        return lives
