"""One routed query on its way: what was decided for it, and the tokens that it has used so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.building import is_building
from ecs_plugins.frontier.chains import tokens_of_call
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.settlement import Settlement
from ecs_plugins.frontier.usage import NO_CACHE, CacheTokens, reported_usage
from ecs_plugins.integrations.tracing import record_metrics, trace_attributes
from ecs_plugins.tokens import Role, Stage, TokenLedger


@dataclass(slots=True)
class RoutedQuery:
    """One query: decided, then counted call by call, then settled.

    Calls of a model that neither reported nor could be counted are ``uncounted``. One that
    ``is_shadow`` is answered beside what was chosen. The ``last_call`` is a prompt and its reply.
    """

    router: Router
    decision: RoutingDecision
    context_id: str | None = None
    count_tokens: TokenCounter | None = None
    error: BaseException | None = None
    is_shadow: bool = False
    last_call: tuple[str, str] | None = None
    usage: TokenLedger = field(default_factory=TokenLedger)
    prepared: dict[PointKey, TokenLedger] = field(default_factory=dict)
    uncounted: int = 0
    cache: CacheTokens = NO_CACHE
    prepare_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def add_call(self, prompt: str, reply: str, message: object = None) -> None:
        """Count one call of the answering model: as it reports, else by ``count_tokens``."""
        if is_building():
            return
        self.last_call = (prompt, reply)
        usage = reported_usage(message)
        tokens = tokens_of_call(usage, prompt, reply, self.count_tokens)
        self.cache = self.cache.plus(usage.cache)
        self.uncounted += not tokens.known
        self.usage.book(Stage.QUERY, Role.ANSWER_INPUT, tokens.read)
        self.usage.book(Stage.QUERY, Role.ANSWER_OUTPUT, tokens.written)

    def add_context(self, key: PointKey, tokens: TokenLedger, prepare_seconds: float) -> None:
        """Count what building the context of a point cost."""
        self.usage.add(tokens)
        self.prepared.setdefault(key, TokenLedger()).add(tokens)
        self.prepare_seconds += prepare_seconds

    def settle(self) -> dict[str, object]:
        """The decision and, under ``settlement``, its cost beside the forecast; plain values.

        A ledger that cannot be written is reported and does not cost the answer.
        """
        seconds = max(0.0, time.perf_counter() - self.started - self.prepare_seconds)
        whole = self._prepared_unseen()
        if whole:
            self.prepared[self.decision.point.key] = TokenLedger()
        read = self.usage.total(Stage.QUERY, Role.ANSWER_INPUT)
        settled = self.router.settle(
            self.decision,
            self.usage,
            context_id=self.context_id,
            seconds=seconds,
            cache=self.cache if self.cache.total <= read else NO_CACHE,
            prepared=self.prepared,
            answered=self.error is None,
            whole=whole,
            shadow=self.is_shadow,
        )
        cost = self._cost(settled, seconds)
        if not self.is_shadow:
            trace_attributes({"settlement": cost})
            sums = {name: sum(cost[name].values()) for name in ("expected", "actual")}
            record_metrics({**sums, "seconds": seconds}, self.decision.label)
        return {**self.decision.summary(), "settlement": cost}

    def _prepared_unseen(self) -> bool:
        """Whether a chain that says nothing of its stage 1 has answered, and so has prepared."""
        lapsing = self.router.frontier.lapsing.get(self.decision.point.key, 0.0)
        prepares = self.decision.stage1 > lapsing
        return prepares and not self.prepared and self.error is None

    def _cost(self, settled: Settlement, seconds: float) -> dict[str, Any]:
        compared = not self.uncounted and self.error is None
        cost: dict[str, Any] = {
            "expected": {"stage1": settled.expected_stage1, "stage2": settled.expected_stage2},
            "actual": {"stage1": settled.actual_stage1, "stage2": settled.actual_stage2},
            "ratio": settled.ratio if compared else None,
            "unit": settled.unit,
            "tokens": self.usage.to_dict(),
            "cache": self.cache._asdict(),
            "uncounted": self.uncounted,
            "seconds": seconds,
        }
        if settled.ledger_error:
            cost["ledger_error"] = settled.ledger_error
        if isinstance(self.error, Exception):  # else the caller let it go
            cost["fallback_after"] = f"{type(self.error).__name__}: {self.error}"
        return cost
