"""The router: one decision per query from the frontier, the reuse ledger and what is prepared.

N comes, in this order, from the caller; from the ledger, as this query and the forecast of those
to come; or is 1. With a policy, N is taken as unknown and rent or buy decides between strategies
of equal quality, within a bound of the optimum that holds for every N: see `online`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from ecs_plugins.common.checks import check_kind, shown
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.cost import PointKey, check_number, check_reuse
from ecs_plugins.frontier.decision import (
    Objective,
    RoutingDecision,
    UnreachableTargetError,
    due_of,
    objectives,
)
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.forecast import ReuseModel
from ecs_plugins.frontier.ledger import Ledger, Observed
from ecs_plugins.frontier.lifetimes import Lifetimes
from ecs_plugins.frontier.observing import (
    cautious_frontier,
    drift_alarms,
    key_of,
    of_points,
    pooled_frontier,
)
from ecs_plugins.frontier.online import Position, coin, decide_online, game_of
from ecs_plugins.frontier.readings import ContextReadings
from ecs_plugins.frontier.router_config import RouterConfig
from ecs_plugins.frontier.settlement import (
    Settlement,
    booking_of,
    has_failed,
    newly_prepared,
    prepared_by,
    settled,
)
from ecs_plugins.frontier.spending import is_capped
from ecs_plugins.frontier.trust import trusted_gain
from ecs_plugins.frontier.usage import NO_CACHE
from ecs_plugins.tokens import Role, Stage, TokenLedger

_log = logging.getLogger(__name__)
_LEARN_SECONDS = 60.0
_LEASE_SECONDS = 120.0  # how long a preparation may take before the next may try
_UNTIL = ", until a forecast that has shown its worth decides in place of this rule"


class _Known(NamedTuple):
    """What the ledger knows at a query.

    Attributes:
        at: Its place in the game.
        due: What of a stage 1 is due.
        free: Points that were prepared before the first query.
        reuse: N, where the caller gave it.
        forecast: Of the queries to come.
        unfitted: Contexts that the forecast does not know yet.
    """

    at: Position
    due: Mapping[PointKey, float]
    free: frozenset[PointKey]
    reuse: float | None
    forecast: ReuseModel
    unfitted: int


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
    _read: ContextReadings = field(default_factory=ContextReadings, init=False)
    _lifetimes: Lifetimes = field(init=False)

    def __post_init__(self) -> None:
        check_kind("frontier", self.frontier, EfficiencyFrontier)
        check_kind("config", self.config, RouterConfig)
        if self.ledger is not None:
            check_kind("ledger", self.ledger, Ledger)  # type: ignore[type-abstract]
        self._lifetimes = Lifetimes.of(self.frontier)

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
            InvalidInputError: A value out of range or of the wrong type.
            ConfigurationError: No objective is given.
            UnreachableTargetError: Nothing measured can do it.
            SpendCapError: The cap of the day is reached, and says to refuse.

        A ledger that fails costs no answer: the query is then decided as without one, and the
        note of the decision says so.
        """
        asked = self._asked(target_f1, budget, weight)
        ready = frozenset(due_of(prepared))
        if context_id is not None and not isinstance(context_id, str):
            raise InvalidInputError(f"context_id must be a text, got {shown(context_id, 60)}")
        queries = 1.0
        note = ""
        if reuse is None:
            note = self._why_alone()
        else:
            queries = check_reuse(reuse)
        if self.ledger is not None:
            try:
                cap = self.config.spend_cap
                capped = False
                if cap is not None:
                    capped = is_capped(cap, self.ledger, self.frontier.unit)
                if context_id:
                    given = None if reuse is None else queries
                    known = self._known(self.ledger, context_id, asked, ready, given, count=count)
                    if capped:
                        return self._cheapest(known.due)
                    decision = self._by_ledger(context_id, asked, known)
                    return self._unless_leased(decision, context_id, asked, known, count=count)
                if capped:
                    return self._cheapest(dict.fromkeys(ready, 0.0))
            except StorageError as failure:
                note = (
                    f"N = {queries:g}, as the ledger failed and the query was not counted: "
                    f"{failure}"
                )
                _log.warning("%s", note)
        decision = self._judged.decide(reuse=queries, prepared=ready, **asked)
        return replace(decision, note=note)

    def _asked(
        self, target_f1: float | None, budget: float | None, weight: float | None
    ) -> dict[str, Any]:
        """The objective of a query, and what else is asked of it."""
        given = objectives(target_f1, budget, weight)
        if len(given) > 1:
            raise InvalidInputError("give at most one of target_f1, budget and weight")
        chosen = {name: check_number(name, value) for name, value in given.items()}
        chosen = chosen or dict(self._configured)
        if not chosen:
            raise ConfigurationError(f"exactly one objective is needed: {', '.join(Objective)}")
        return {**chosen, "max_seconds": self.config.max_seconds}

    @cached_property
    def _configured(self) -> Mapping[str, float]:
        """The objective of queries that bring none."""
        return self.config.objective

    def _why_alone(self) -> str:
        if self.ledger is None:
            return "N = 1: no reuse was given and there is no ledger"
        return "N = 1: no reuse was given, and no context_id by which the ledger could count"

    def _known(
        self,
        ledger: Ledger,
        context_id: str,
        asked: Mapping[str, Any],
        given: frozenset[PointKey],
        reuse: float | None,
        *,
        count: bool,
    ) -> _Known:
        """Ask the ledger, and count the query."""
        lifetimes = self._lifetimes
        life = lifetimes.cache_seconds
        game = ""
        target = asked.get("target_f1")
        usual = self.config.target_f1
        if target is not None and target != usual:
            game = game_of(self.frontier.routable, usual, target)
        counted = ledger.count_query(context_id, game=game, life=life, add=count)
        finished: Mapping[int, int] = {}
        if counted.lapses and lifetimes.is_mixed:
            finished = ledger.finished_runs(context_id, game)
        due: dict[PointKey, float] = {}
        if lifetimes.in_memory:
            read = self._read.costs(context_id, lifetimes.in_memory)
            due = dict.fromkeys(read, 0.0)
        if counted.preparations:
            due |= lifetimes.due(counted.preparations)
        due |= dict.fromkeys(given, 0.0)
        free = set(given)
        for key, preparation in counted.preparations.items():
            if not preparation.cost and key in due:
                free.add(key)
        position = Position(counted.queries, counted.run, finished, counted.lapses)
        forecast = ledger.latest_model(life)
        return _Known(position, due, frozenset(free), reuse, forecast, ledger.unfitted)

    def _cheapest(self, due: Mapping[PointKey, float]) -> RoutingDecision:
        """What costs the least for this query, whatever was asked for."""
        decision = self._judged.decide(reuse=1, weight=0.0, prepared=due)
        return replace(
            decision, note="the spend cap of the day is reached: what costs the least for a query"
        )

    def _by_ledger(
        self, context_id: str, asked: Mapping[str, Any], known: _Known
    ) -> RoutingDecision:
        """Decide with what the ledger knows, for a given N or a forecast of it."""
        frontier = self._judged
        if known.reuse is not None:
            return frontier.decide(reuse=known.reuse, prepared=known.due, **asked)
        more = known.forecast.expected(known.at.seen)
        target = asked.get("target_f1")
        if target is None or self._is_trusted(frontier, target, known):
            return self._by_forecast(frontier, more, asked, known)
        draw = None
        if self.config.policy == "randomised":
            draw = coin(context_id)
        decision = decide_online(
            frontier,
            target,
            known.at,
            prepared=known.due,
            free=known.free,
            max_seconds=self.config.max_seconds,
            draw=draw,
        )
        effective = decision.stage2 + decision.stage1 / (1 + more)
        note = decision.note
        if self.config.policy is None:
            note += _UNTIL
        return replace(decision, reuse=1 + more, effective=effective, note=note)

    def _by_forecast(
        self, frontier: EfficiencyFrontier, more: float, asked: Mapping[str, Any], known: _Known
    ) -> RoutingDecision:
        """Decide for this query and so many ``more``."""
        note = (
            f"N = {1 + more:.1f}: query {known.at.seen} of this context, {more:.1f} more expected"
        )
        run = None
        if self._lifetimes.cache_seconds:
            at = known.at
            until_lapse = min(more, known.forecast.expected_run(at.seen, at.lapses))
            run = 1 + until_lapse
            note += f", {until_lapse:.1f} of them before a prompt cache lapses"
        decision = frontier.decide(reuse=1 + more, run=run, prepared=known.due, **asked)
        return replace(decision, note=note)

    def _is_trusted(self, frontier: EfficiencyFrontier, target: float, known: _Known) -> bool:
        """Whether the forecast would have paid off so far, by more than one mistake costs."""
        if self.config.policy is not None:
            return False
        able = frontier.reaching(target, self.config.max_seconds)
        gain = trusted_gain(frontier, able, known.forecast)
        # Each context since the fit may have been a mistake, and this one may be the next.
        mistakes = 1 + known.unfitted
        return gain.saved >= mistakes * gain.price

    def _unless_leased(
        self,
        decision: RoutingDecision,
        context_id: str,
        asked: Mapping[str, Any],
        known: _Known,
        *,
        count: bool,
    ) -> RoutingDecision:
        """The decision, or another one while somebody else prepares its context."""
        point = decision.point
        preparing = decision.stage1 > self.frontier.lapsing.get(point.key, 0.0)
        if not preparing or not count or self.ledger is None:
            return decision
        if self.ledger.begin_preparation(context_id, point.key, _LEASE_SECONDS):
            return decision
        elsewhere = f"{point.label} is being prepared elsewhere"
        try:
            without = self._judged.decide(reuse=1, prepared=known.due, without={point.key}, **asked)
        except UnreachableTargetError:
            return replace(decision, note=f"{decision.note}; {elsewhere}, too")
        return replace(without, note=f"{elsewhere}; until then the cheapest without it")

    def settle(
        self,
        decision: RoutingDecision,
        actual: TokenLedger,
        *,
        context_id: str | None = None,
        seconds: float = 0.0,
        cache: tuple[int, int, int] = NO_CACHE,
        prepared: Mapping[PointKey, TokenLedger] | None = None,
        answered: bool = True,
        whole: bool = False,
        shadow: bool = False,
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
            whole: Whether the tokens of ``actual`` do not say which of them prepared; see
                `settlement.settled`.
            shadow: Whether it was answered beside what was chosen, and is booked by itself.

        Raises:
            InvalidInputError: More cached prompt tokens than prompt tokens.
        """
        settlement = settled(decision, actual, self.frontier, cache, seconds, whole=whole)
        if self.ledger is None:
            return settlement
        if prepared is None:
            prepared = prepared_by(decision, actual)
        read = actual.total(Stage.QUERY, Role.ANSWER_INPUT) > 0
        noted = newly_prepared(decision, prepared, self.frontier, cached=read and answered)
        if whole:
            noted[decision.point.key] = settlement.actual_stage1
        spent = booking_of(decision, settlement, self.frontier, shadow=shadow)
        ratio = settlement.ratio if answered else None
        try:
            if not context_id:
                self.ledger.book("", {}, None, spent)
                return settlement
            self.ledger.book(context_id, self._lasting(context_id, noted), ratio, spent)
            if not shadow and has_failed(decision, noted, self.frontier):
                self.ledger.end_preparation(context_id, decision.point.key)
        except StorageError as failure:
            _log.warning("what a routed query prepared could not be noted: %s", failure)
            return replace(settlement, ledger_error=str(failure))
        return settlement

    def _lasting(self, context_id: str, noted: Mapping[PointKey, float]) -> dict[PointKey, float]:
        """What the ledger notes; what was read is kept here."""
        lasting = dict(noted)
        for key in self._lifetimes.in_memory & noted.keys():
            self._read.note(context_id, key, lasting.pop(key))
        return lasting

    def observe(self, decision: RoutingDecision | Mapping[str, Any], score: float) -> None:
        """Note how good an answer was, in [0, 1], as F1 is measured; kept in the ledger.

        The decision may be its `RoutingDecision.summary`, as traces and responses hold it.

        Raises:
            InvalidInputError: The score is out of range, or there is no ledger.
            StorageError: It cannot be written.
        """
        value = check_number("score", score)
        if self.ledger is None or not 0 <= value <= 1:
            raise InvalidInputError(f"a score in [0, 1] and a ledger are needed, got {value!r}")
        self.ledger.observe(key_of(decision), "score", value)
        self._lower = None

    def recalibrate(self, path: str | os.PathLike[str]) -> EfficiencyFrontier:
        """Pool what was observed with what was measured, and write it to an artefact.

        The observations are in the artefact then, and the ledger forgets them, but keeps those
        that came in between. Routers that were given the path go on with the new one.

        Raises:
            InvalidInputError: There is no ledger.
            StorageError: The ledger cannot be read, or the artefact not be written.
        """
        if self.ledger is None:
            raise InvalidInputError("what was observed is in a ledger; give one")
        scores = of_points(self.frontier, self.ledger.observed("score"))
        costs = of_points(self.frontier, self.ledger.observed("cost"))
        frontier = pooled_frontier(self.frontier, scores, costs)
        frontier.save(path)
        self.ledger.forget_observed("score", scores)
        self.ledger.forget_observed("cost", costs)
        self._lower = None
        return frontier

    def drift(self) -> list[str]:
        """Where scores or costs have left what was measured, one sentence each.

        The observed mean lies further from the measured one than three times the errors of both
        together, after at least 30 observations.

        Raises:
            StorageError: The ledger cannot be read.
        """
        if self.ledger is None:
            return []
        return drift_alarms(self.frontier, self.ledger)

    @property
    def _judged(self) -> EfficiencyFrontier:
        """What is decided on: the frontier, or its cautious copy."""
        if not self.config.cautious:
            return self.frontier
        now = time.monotonic()
        if self._lower is None or now - self._learned > _LEARN_SECONDS:
            observed: Mapping[PointKey, Observed] = {}
            try:
                observed = {} if self.ledger is None else self.ledger.observed("score")
            except StorageError as failure:
                _log.warning("observed scores could not be read: %s", failure)
            self._lower = cautious_frontier(self.frontier, observed)
            self._learned = now
        return self._lower
