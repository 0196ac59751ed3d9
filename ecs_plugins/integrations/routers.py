"""Fields of the routers of both frameworks, and one routed query on its way.

A translation only: `ecs_plugins.frontier` decides, prepares, builds and settles.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, Field, PlainValidator, Strict, model_validator

from ecs_plugins.common.checks import check_each
from ecs_plugins.common.config import StrictFields
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.building import is_building
from ecs_plugins.frontier.chains import CallCounter, RoutedChain
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.decision import Objective, RouterConfig, RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.preparations import ContextCost
from ecs_plugins.frontier.reloading import check_frontier, chosen_name, open_frontier
from ecs_plugins.frontier.reuse import ReuseLedger, check_namespace
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.settlement import FALLBACK, Settlement, spent_of
from ecs_plugins.integrations.tracing import trace_attributes
from ecs_plugins.tokens import Stage, TokenLedger

METADATA_KEY = "frontier"
"""The metadata key under which a response carries its decision and its settlement."""

OBJECTIVES = tuple(str(objective) for objective in Objective)
SETTINGS = ("reuse", "context_id", *OBJECTIVES)
"""Settings of one call of a router; ``reuse`` is N."""

T = TypeVar("T")

_log = logging.getLogger(__name__)
_WHOLE = (
    "No context_id, documents or retriever say what the query is about, so all queries of these "
    "chains count as one context"
)
_Number = Annotated[float | None, Strict()]


def settings_of(*sources: object) -> dict[str, Any]:
    """Return N, context and objective, each from the first mapping or object that gives it.

    Raises:
        InvalidInputError: One source gives two objectives.
    """
    settings: dict[str, Any] = {}
    for source in sources:
        values = source if isinstance(source, Mapping) else vars(source)
        given = {name: values[name] for name in SETTINGS if values.get(name) is not None}
        asked = [name for name in OBJECTIVES if name in given]
        if len(asked) > 1:
            raise InvalidInputError(f"give at most one of {', '.join(OBJECTIVES)}, got {asked}")
        if asked and not settings.keys().isdisjoint(OBJECTIVES):
            del given[asked[0]]
        settings = given | settings
    return settings


def tenant_of(given: object) -> tuple[str, ...]:
    """Return a tenant from its label or labels, or from None.

    Raises:
        ConfigurationError: It is something else.
    """
    labels = given or ()
    return check_namespace((labels,) if isinstance(labels, str) else labels)


def by_label(chains: Any) -> dict[Any, Any]:
    """Return chains by their labels, from a mapping or a list of `RoutedChain`."""
    if isinstance(chains, Mapping):
        return dict(chains)
    return {chain.label: chain for chain in check_each("chains", chains, RoutedChain)}


@lru_cache(maxsize=32)
def _named_ledger(path: str) -> ReuseLedger:
    # A path is opened once.
    return ReuseLedger(path)


@lru_cache(maxsize=32)
def _router(
    frontier: EfficiencyFrontier,
    config: RouterConfig,
    ledger: ReuseLedger | None,
) -> Router:
    # Kept, as a cautious one works out its intervals once.
    return Router(frontier, config, ledger=ledger)


class RoutingFields(StrictFields):
    """Fields of every integration that routes.

    Attributes:
        frontier: An `EfficiencyFrontier`, or the path of an artefact, read again when it changes.
        reuse: N, where it is known and the same for all.
        target_f1: Choose the cheapest strategy that reaches it.
        context_id: Name of the context of queries that bring none.
        ledger: A `ReuseLedger`, its path or address; gives N otherwise.
        routing: A `RouterConfig` with everything else: another objective, the policy, caution, a
            limit of latency.
    """

    frontier: Annotated[Any, PlainValidator(check_frontier, json_schema_input_type=str)]
    reuse: _Number = Field(default=None, description="N: queries that share the context.")
    target_f1: _Number = Field(default=None, description="The cheapest that reaches it.")
    context_id: str | None = Field(
        default=None, min_length=1, description="The context of queries."
    )
    ledger: ReuseLedger | str | None = None
    routing: Annotated[RouterConfig, BeforeValidator(RouterConfig.from_any)] = RouterConfig()

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        self._router_config()
        return self

    @property
    def _defaults(self) -> dict[str, Any]:
        return {"reuse": self.reuse, "context_id": self.context_id}

    def _router_config(self) -> RouterConfig:
        if self.target_f1 is None:
            return self.routing
        return self.routing.replace(target_f1=self.target_f1)

    def choices(self, names: Iterable[str] = ()) -> EfficiencyFrontier:
        """Return the frontier; raise if it cannot serve these names.

        Raises:
            StorageError: The artefact cannot be read.
            ConfigurationError: ``names`` do not run its choices.
            UnreachableTargetError: No query can reach the objective.
        """
        return open_frontier(self.frontier, names, self._router_config())

    @property
    def core(self) -> Router:
        """Return the router that decides and books, without a framework.

        Raises:
            StorageError: The frontier or the ledger cannot be opened.
        """
        return self._core(())

    def _core(self, names: Iterable[str]) -> Router:
        ledger: Any = self.ledger
        if isinstance(ledger, str):
            ledger = _named_ledger(ledger)
        frontier = self.choices(names)
        return _router(frontier, self._router_config(), ledger)

    def _decided(
        self,
        asked: Mapping[str, Any],
        namespace: tuple[str, ...],
        chains: Mapping[str, T],
        holds: Callable[[T], bool | None],
        *,
        count: bool = True,
    ) -> RoutedQuery:
        """Decide for one query, by the `settings_of` it.

        ``chains`` run the choices, where they are known; ``holds`` tells whether the preparation
        of one is there, or None where it cannot be looked up. With ``count=False`` it is a dry
        run. A ledger that fails is noted in the decision and costs no answer.
        """
        note = ""
        try:
            router = self._core(chains)
        except StorageError as failure:
            note = f"the ledger failed: {failure}"
            _log.warning("%s", note)
            router = Router(self.choices(chains), self._router_config())
        if self.ledger is not None and "context_id" not in asked and chains:
            asked = {**asked, "context_id": f"the data of {', '.join(sorted(chains))}"}
            note = note or _WHOLE
        stored = self._stored(chains, holds)
        decision = router.route(namespace=namespace, stored=stored, count=count, **asked)
        if note:
            decision = replace(decision, note=". ".join(filter(None, [decision.note, note])))
        trace_attributes(decision.summary())
        return RoutedQuery(router, decision, asked.get("context_id"), namespace)

    def _stored(
        self,
        chains: Mapping[str, T],
        holds: Callable[[T], bool | None],
    ) -> dict[PointKey, bool]:
        """Return the points whose preparations can be looked up, and whether they are there."""
        stored = {}
        if chains:
            for point in self.choices(chains).routable:
                if point.stage1:
                    is_there = holds(chains[chosen_name(point, chains)])
                    if is_there is not None:
                        stored[point.key] = is_there
        return stored


def named_fallback(fallback: T | str | None, made: Mapping[str, T]) -> T | None:
    """Return a fallback; a name is looked up among the chains that were made."""
    if not isinstance(fallback, str):
        return fallback
    if fallback not in made:
        raise ConfigurationError(f"the fallback {fallback!r} is none of {', '.join(made)}")
    return made[fallback]


@dataclass(slots=True)
class RoutedQuery:
    """State of one query, from its decision to its settlement.

    Attributes:
        router: Decides and settles.
        decision: The choice.
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
    _counter: CallCounter = field(default_factory=lambda: CallCounter(Stage.QUERY))
    _failed: TokenLedger | None = None
    _answers: int = 0
    _characters: int = 0

    def add_call(
        self,
        prompt: str,
        reply: str,
        message: object = None,
    ) -> None:
        """Count one call of the answering model: as it reports, else by ``count_tokens``."""
        if is_building():
            return
        self._answers += 1
        self._characters += len(prompt)
        self._counter.count_tokens = self.count_tokens
        self._counter.add_call(prompt, reply, message)

    def add_context(
        self,
        key: PointKey,
        cost: ContextCost,
    ) -> None:
        """Count the cost of building the context of a point."""
        self._counter.add_context(key, cost)
        self.prepared.setdefault(key, TokenLedger()).add(cost.tokens)
        self.prepare_seconds += cost.seconds

    def fail(
        self,
        error: Exception,
        fallback: object,
        chains: Mapping[str, object],
    ) -> None:
        """Note that the choice has failed, and which of some chains answers in place of it."""
        self.error = error
        self.fallback = FALLBACK
        self._answers = 0
        self._failed = TokenLedger(dict(self._counter.tokens))
        names = [name for name, chain in chains.items() if chain is fallback]
        for point in self.router.frontier.points:
            if point.label in names or point.strategy in names:
                self.fallback = point.key
                return

    @property
    def unknown(self) -> int:
        """Calls whose tokens nobody reported; 1 if no call of the answering chain was seen."""
        has_failed = isinstance(self.error, Exception) and self.fallback is None
        if self._counter.unknown or self._answers or has_failed:
            return self._counter.unknown
        return 1

    def settle(self) -> dict[str, object]:
        """Return the decision and, under ``settlement``, its cost next to the forecast.

        A ledger that cannot be written is reported and does not cost the answer.
        """
        elapsed = time.perf_counter() - self._counter.started
        seconds = max(0.0, elapsed - self.prepare_seconds)
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
        return {**self.decision.summary(), "settlement": cost}

    def _has_prepared_unseen(self) -> bool:
        """Return True if a chain that says nothing of its stage 1 has answered, so has prepared."""
        lapsing = self.router.frontier.lapsing.get(self.decision.point.key, 0.0)
        prepares = self.decision.stage1 > lapsing
        return prepares and not self.prepared and self.error is None

    def _whole_tokens(self) -> float | None:
        """Return the prompt tokens of this query with the whole context; None if unknown.

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

    def _cost(
        self,
        settled: Settlement,
        seconds: float,
        cache: dict[str, int],
    ) -> dict[str, Any]:
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
