"""The router: one decision per query from the frontier and the reuse ledger.

N comes from the caller; else from the ledger: as many queries are expected as contexts usually get,
and no fewer than have come. Without both it is 1. With a policy, rent or buy decides between
strategies of equal quality: see `rental`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

from ecs_plugins.common.checks import check_kind, shown
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.cost import PointKey, Usage, check_number, check_reuse
from ecs_plugins.frontier.decision import (
    Objective,
    RouterConfig,
    RoutingDecision,
    UnreachableTargetError,
    objectives,
)
from ecs_plugins.frontier.envelope import EfficiencyFrontier, cautious_frontier
from ecs_plugins.frontier.rental import decide_online, game_of
from ecs_plugins.frontier.reuse import (
    Count,
    Lease,
    Preparation,
    ReuseLedger,
    check_namespace,
)
from ecs_plugins.frontier.settlement import (
    Settlement,
    Spent,
    bookings_of,
    due_costs,
    newly_prepared,
    settled,
    spent_of,
)
from ecs_plugins.frontier.usage import NO_CACHE
from ecs_plugins.tokens import Role, Stage, TokenLedger

_log = logging.getLogger(__name__)
_LEASE_SECONDS = 120.0  # how long a preparation may take before the next may try


@dataclass(eq=False, repr=False)
class Router:
    """Routes queries; thread-safe, as the frontier is read-only and the ledger locks.

    Args:
        frontier: The measured points.
        config: The settings of every decision.
        ledger: Counts queries per context and knows its preparations; None routes each query by
            itself.
    """

    frontier: EfficiencyFrontier
    config: RouterConfig
    _: KW_ONLY
    ledger: ReuseLedger | None = None

    def __post_init__(self) -> None:
        check_kind("frontier", self.frontier, EfficiencyFrontier)
        check_kind("config", self.config, RouterConfig)
        if self.ledger is not None:
            check_kind("ledger", self.ledger, ReuseLedger)

    def check_reachable(self) -> None:
        """Refuse a configured objective that no query can reach.

        Raises:
            UnreachableTargetError: Nothing measured reaches it.
        """
        if self.config.budget is not None:
            in_time = self._judged.in_time(self.config.max_seconds)
            sunk = [point.key for point in in_time]
            self._judged.decide(reuse=1, prepared=sunk, **self._asked(None, None, None))
        elif self.config.objective:
            self._judged.decide(reuse=1, **self._asked(None, None, None))

    def route(
        self,
        *,
        context_id: str | None = None,
        namespace: tuple[str, ...] = (),
        reuse: float | None = None,
        target_f1: float | None = None,
        budget: float | None = None,
        weight: float | None = None,
        stored: Mapping[PointKey, bool] | None = None,
        count: bool = True,
    ) -> RoutingDecision:
        """Return the decision, the strategy to use, for one query.

        Args:
            context_id: Name of its context; `Context.id`, or any id of the caller's.
            namespace: Tenant, below that of the ledger.
            reuse: N, where the caller knows it.
            target_f1: Instead of the configured objective; likewise the next two.
            budget: See `RouterConfig`.
            weight: See `RouterConfig`.
            stored: Points whose preparations were looked up, and whether they are there.
            count: Whether to count this query in the ledger; False for a dry run.

        Raises:
            InvalidInputError: A value out of range or of the wrong type.
            ConfigurationError: No objective is given.
            UnreachableTargetError: Nothing measured can do it; the query is not counted.

        A ledger that fails costs no answer: the query is then decided as without one, and the
        note of the decision says so.
        """
        asked = self._asked(target_f1, budget, weight)
        found = stored or {}
        if context_id is not None and not isinstance(context_id, str):
            raise InvalidInputError(f"context_id must be a text, got {shown(context_id, 60)}")
        queries = None if reuse is None else check_reuse(reuse)
        note = ""
        if queries is None:
            why = (
                "no context_id by which the ledger could count"
                if self.ledger is not None
                else "no ledger"
            )
            note = f"N = 1: no reuse was given, and there is {why}"
        ledger = self._ledger_of(namespace)
        if ledger is not None and context_id:
            try:
                return self._by_ledger(ledger, context_id, asked, queries, found, count=count)
            except StorageError as failure:
                note = (
                    f"N = {queries or 1:g}, as the ledger failed and the query was not counted: "
                    f"{failure}"
                )
                _log.warning("%s", note)
        ready = [key for key, is_there in found.items() if is_there]
        decision = self._judged.decide(reuse=queries or 1, prepared=ready, **asked)
        return replace(decision, note=note)

    def _ledger_of(self, namespace: tuple[str, ...]) -> ReuseLedger | None:
        labels = check_namespace(namespace)
        if self.ledger is None or not labels:
            return self.ledger
        return self.ledger.within(labels)

    def _asked(
        self, target_f1: float | None, budget: float | None, weight: float | None
    ) -> dict[str, Any]:
        """Return the objective and the limits of a query."""
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
        """Return the objective of queries that bring none."""
        return self.config.objective

    def _by_ledger(
        self,
        ledger: ReuseLedger,
        context_id: str,
        asked: Mapping[str, Any],
        reuse: float | None,
        stored: Mapping[PointKey, bool],
        *,
        count: bool,
    ) -> RoutingDecision:
        """Decide by the counts of the ledger, and count the query unless it is refused."""
        game = ""
        target = asked.get("target_f1")
        if target is not None:
            self._judged.reaching(target, self.config.max_seconds)
            if target != self.config.target_f1:
                game = game_of(self.frontier.routable, self.config.target_f1, target)
        life = self.frontier.cache_seconds
        if count and "budget" in asked:
            # The cost of a query depends on the count, so it is decided before it is counted.
            ahead = ledger.count_query(context_id, game=game, life=life, add=False)
            due = due_costs(self.frontier, ahead.preparations, stored)
            self._by_count(asked, ahead, due, None)
        known = ledger.count_query(context_id, game=game, life=life, add=count)
        due = due_costs(self.frontier, known.preparations, stored)
        decision = self._by_count(asked, known, due, reuse)
        point = decision.point
        entry = self.frontier.lapsing.get(point.key, 0.0)
        if not count or decision.stage1 <= entry:
            return decision
        lease = ledger.begin_preparation(context_id, point.key, _LEASE_SECONDS)
        if lease == Lease.NEW:
            return decision
        if lease == Lease.OWN:
            # Another query of this process pays for it, and this one will find it.
            return self._by_count(asked, known, {**due, point.key: entry}, reuse)
        elsewhere = f"{point.label} is being prepared elsewhere"
        try:
            without = self._judged.decide(reuse=1, prepared=due, without={point.key}, **asked)
        except UnreachableTargetError:
            return replace(decision, note=f"{decision.note}; {elsewhere}, too")
        return replace(without, note=f"{elsewhere}; until then the cheapest without it")

    def _by_count(
        self,
        asked: Mapping[str, Any],
        known: Count,
        due: Mapping[PointKey, float],
        reuse: float | None,
    ) -> RoutingDecision:
        """Decide for a given N, or for the queries that are expected."""
        frontier = self._judged
        if reuse is not None:
            return frontier.decide(reuse=reuse, prepared=due, **asked)
        target = asked.get("target_f1")
        # Where an entry of a cache lapses, no bound holds.
        if self.config.policy is not None and target is not None and not frontier.lapsing:
            paid = known.preparations
            free = [key for key in due if key in paid and not paid[key].cost]
            limit = self.config.max_seconds
            return decide_online(
                frontier, target, known.queries, prepared=due, free=free, max_seconds=limit
            )
        more = _expected(known.queries, known.usual)
        more_run = min(more, _expected(known.run, known.usual_run))
        note = (
            f"N = {1 + more:.1f}: query {known.queries} of this context, {more:.1f} more expected"
        )
        if frontier.lapsing:
            note += f", {more_run:.1f} of them before a prompt cache lapses"
        decision = frontier.decide(reuse=1 + more, run=1 + more_run, prepared=due, **asked)
        return replace(decision, note=note)

    def settle(
        self,
        decision: RoutingDecision,
        actual: TokenLedger | Spent,
        *,
        context_id: str | None = None,
        namespace: tuple[str, ...] = (),
        seconds: float = 0.0,
        cache: tuple[int, int, int] = NO_CACHE,
        prepared: Mapping[PointKey, TokenLedger] | None = None,
        fallback: PointKey | None = None,
        failed: TokenLedger | None = None,
    ) -> Settlement:
        """Book the cost of a query, and note its preparations.

        A stage 1 that was paid, or found done, is noted in the ledger, so it is sunk for the
        next query. So is the entry of a prompt cache once it has been read.

        Args:
            decision: The result of `route`.
            actual: Tokens of the query in both stages, or a `Spent` with its calls.
            context_id: As given to `route`; likewise ``namespace``.
            namespace: Tenant, below that of the ledger.
            seconds: Wall time of stage 2, for prices per second.
            cache: How many of the answering model's prompt tokens came from its prompt cache,
                were written to it for 5 minutes, and for an hour.
            prepared: Key of each point whose stage 1 is now done -> tokens paid for it, none
                where it was found done, in a cache on disk say. By default the chosen one, if
                ``actual`` has tokens of stage 1.
            fallback: The strategy that answered where the choice failed.
            failed: Tokens that the choice had used until it failed.

        Raises:
            InvalidInputError: More cached prompt tokens than prompt tokens.
        """
        spent = actual
        if not isinstance(spent, Spent):
            spent = spent_of(spent, cache=cache, seconds=seconds)
        settlement = settled(decision, spent, self.frontier)
        ledger = self._ledger_of(namespace)
        if ledger is None:
            return settlement
        own = decision.point.key
        if prepared is None:
            prepared = {own: spent.tokens} if spent.tokens.total(Stage.PREPARE) else {}
        reads = fallback is None and spent.tokens.total(Stage.QUERY, Role.ANSWER_INPUT) > 0
        noted = newly_prepared(decision, prepared, self.frontier, cached=spent.cached, reads=reads)
        if spent.is_whole:
            noted[own] = Preparation(settlement.actual_stage1 or 0.0, 0.0)
        lost = 0.0
        if failed is not None:
            lost = sum(self.frontier.prices.stages(Usage(dict(failed))))
        booked = bookings_of(decision, settlement, fallback=fallback, failed=lost)
        try:
            ledger.book(context_id or "", noted if context_id else {}, booked)
            was_due = decision.stage1 > self.frontier.lapsing.get(own, 0.0)
            if context_id and was_due and own not in noted:  # the strategy has not prepared
                ledger.end_preparation(context_id, own)
        except StorageError as failure:
            _log.warning("a routed query could not be noted: %s", failure)
            return replace(settlement, ledger_error=str(failure))
        return settlement

    @cached_property
    def _judged(self) -> EfficiencyFrontier:
        """Return the frontier; if cautious, a copy with the lower confidence bounds as F1."""
        return cautious_frontier(self.frontier) if self.config.cautious else self.frontier


def _expected(seen: int, usual: float) -> float:
    """Return how many queries are expected to follow, after some that have come."""
    return max(usual - seen, float(seen))
