"""One routed query on its way: its decision, and the tokens that it has used so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.building import is_building
from ecs_plugins.frontier.chains import CallCounter, ContextCost
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.settlement import FALLBACK, Settlement, spent_of
from ecs_plugins.integrations.tracing import record_metrics, trace_attributes
from ecs_plugins.tokens import Stage, TokenLedger


@dataclass(slots=True)
class RoutedQuery:
    """One query: decided, then counted call by call, then settled.

    Attributes:
        context_id: Of its context.
        namespace: Of its tenant.
        count_tokens: Tokens of each text, for models that do not report them.
        whole: The whole context and the question, if known: the baseline of savings.
        error: Of the chosen chain.
        fallback: The point that answers after an error.
        prepared: Points whose context was built, with the tokens that this took.
        prepare_seconds: Of stage 1.
    """

    router: Router
    decision: RoutingDecision
    context_id: str | None = None
    namespace: tuple[str, ...] = ()
    count_tokens: TokenCounter | None = None
    whole: str = ""
    error: BaseException | None = None
    fallback: PointKey | None = None
    prepared: dict[PointKey, TokenLedger] = field(default_factory=dict)
    prepare_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    _counter: CallCounter = field(default_factory=lambda: CallCounter(Stage.QUERY))
    _failed: TokenLedger | None = None
    _answers: int = 0
    _characters: int = 0

    def add_call(self, prompt: str, reply: str, message: object = None) -> None:
        """Count one call of the answering model: as it reports, else by ``count_tokens``."""
        if is_building():
            return
        self._answers += 1
        self._characters += len(prompt)
        self._counter.count_tokens = self.count_tokens
        self._counter.add_call(prompt, reply, message)

    def add_context(self, key: PointKey, cost: ContextCost) -> None:
        """Count the cost of building the context of a point."""
        self._counter.add_context(key, cost)
        self.prepared.setdefault(key, TokenLedger()).add(cost.tokens)
        self.prepare_seconds += cost.seconds

    def fail(self, error: BaseException, fallback: PointKey | None = None) -> None:
        """Note that the choice has failed, and which point answers in place of it."""
        self.error = error
        self.fallback = fallback or FALLBACK
        self._failed = TokenLedger(dict(self._counter.tokens))

    @property
    def unknown(self) -> int:
        """Calls whose tokens nobody reported; 1 where no call was seen at all."""
        if self._counter.unknown or self._answers or isinstance(self.error, Exception):
            return self._counter.unknown
        return 1

    def settle(self) -> dict[str, object]:
        """Return the decision and, under ``settlement``, its cost next to the forecast.

        A ledger that cannot be written is reported and does not cost the answer.
        """
        seconds = max(0.0, time.perf_counter() - self.started - self.prepare_seconds)
        is_whole = self._has_prepared_unseen()
        if is_whole:
            self.prepared[self.decision.point.key] = TokenLedger()
        spent = spent_of(
            self._counter.tokens,
            calls=self._counter.calls,
            seconds=seconds,
            is_whole=is_whole,
            unknown=self.unknown,
            whole_context=self._whole_tokens(),
        )
        settled = self.router.settle(
            self.decision,
            spent,
            context_id=self.context_id,
            namespace=self.namespace,
            prepared=self.prepared,
            fallback=self.fallback,
            failed=self._failed,
        )
        cost = self._cost(settled, seconds, spent.cached._asdict())
        trace_attributes({"settlement": cost})
        metrics = {"expected": settled.expected_stage1 + settled.expected_stage2}
        if settled.actual_stage1 is not None and settled.actual_stage2 is not None:
            metrics["actual"] = settled.actual_stage1 + settled.actual_stage2
        record_metrics({**metrics, "seconds": seconds}, self.decision.label)
        return {**self.decision.summary(), "settlement": cost}

    def _has_prepared_unseen(self) -> bool:
        """Return True if a chain that says nothing of its stage 1 has answered, so has prepared."""
        lapsing = self.router.frontier.lapsing.get(self.decision.point.key, 0.0)
        prepares = self.decision.stage1 > lapsing
        return prepares and not self.prepared and self.error is None

    def _whole_tokens(self) -> float | None:
        """Return the prompt tokens of this query with the whole context, if they can be told.

        Without a counter they follow from the tokens per character of its own prompts.
        """
        if not self.whole:
            return None
        if self.count_tokens is not None:
            return float(self.count_tokens([self.whole])[0])
        read = sum(call.read for call in self._counter.calls if call.stage == Stage.QUERY)
        if self.unknown or not self._characters or not read:
            return None
        return len(self.whole) * read / self._characters

    def _cost(self, settled: Settlement, seconds: float, cache: dict[str, int]) -> dict[str, Any]:
        cost: dict[str, Any] = {
            "expected": {"stage1": settled.expected_stage1, "stage2": settled.expected_stage2},
            "actual": {"stage1": settled.actual_stage1, "stage2": settled.actual_stage2},
            "ratio": settled.ratio if self.error is None else None,
            "unit": settled.unit,
            "tokens": self._counter.tokens.to_dict(),
            "cache": cache,
            "uncounted": self.unknown,
            "seconds": seconds,
        }
        if settled.ledger_error:
            cost["ledger_error"] = settled.ledger_error
        if isinstance(self.error, Exception):  # otherwise the caller let it go
            cost["fallback_after"] = f"{type(self.error).__name__}: {self.error}"
        return cost
