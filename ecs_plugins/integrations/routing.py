"""What the routers of both frameworks share: what is asked, what is chosen, built, and paid.

A translation only: `ecs_plugins.frontier` decides, prepares, builds and settles. Here the settings
of a call are merged, a decision is matched with what the user gave to run it, and the tokens of a
run are collected until they are compared with the forecast.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from cachetools import LRUCache
from pydantic import Field, PlainValidator, Strict, model_validator

from ecs_plugins.common.config import StrictFields
from ecs_plugins.errors import ConfigurationError, EcsPluginsError, InvalidInputError, StorageError
from ecs_plugins.frontier.answering import (
    CacheTokens,
    CallableAnswerModel,
    TokenCounter,
    as_answer_model,
    cache_tokens,
    check_template,
    reported_tokens,
)
from ecs_plugins.frontier.cost import ConfigValue, PointKey, StrategyPoint, config_json
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.envelope import EfficiencyFrontier, Objective, RoutingDecision
from ecs_plugins.frontier.reuse import Ledger, ReuseLedger
from ecs_plugins.frontier.routing import OnlinePolicy, Router, RouterConfig
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared, Strategy
from ecs_plugins.integrations.fields import as_model
from ecs_plugins.integrations.tracing import record_metrics, trace_attributes
from ecs_plugins.ranking.embedder import as_embedder, default_embedder
from ecs_plugins.tokens import Role, Stage, TokenLedger

METADATA_KEY = "frontier"
"""The metadata key under which a response carries its decision and its settlement."""

_PREPARED = 256  # contexts whose stage 1 is kept

T = TypeVar("T")

_log = logging.getLogger(__name__)

# Calls of models while a context is built: what they cost comes with the context.
_building: ContextVar[bool] = ContextVar("ecs_plugins_building", default=False)


_Number = Annotated[float | None, Strict()]

# Sources: an object, or the path of one, opened when it is needed and then shared.


def check_frontier(value: object) -> EfficiencyFrontier | str:
    """A frontier, or the path of an artefact that exists."""
    # A dict is what `langchain_core.load.dumps` made of an object.
    if isinstance(value, Mapping) and isinstance(value.get("artefact"), str):
        return EfficiencyFrontier.from_json(value["artefact"], source="the router's frontier")
    if isinstance(value, EfficiencyFrontier):
        return value
    if not isinstance(value, str | os.PathLike):
        raise ConfigurationError(
            f"frontier must be an EfficiencyFrontier or the path of one, got {type(value).__name__}"
        )
    if not Path(value).is_file():
        raise StorageError(
            f"there is no frontier at {value}; make one with: ecs-plugins calibrate --out {value}"
        )
    return str(value)


def open_frontier(
    source: EfficiencyFrontier | str, names: Iterable[str] = ()
) -> EfficiencyFrontier:
    """The frontier behind a field; a file is read again when it has changed.

    With the ``names`` of what runs its choices, what else a newer file may choose is refused.
    """
    if isinstance(source, EfficiencyFrontier):
        return source
    return _artefact(source, frozenset(names)).current()


class _Artefact:
    """A frontier in a file. The first reading pins what was measured with which models.

    A newer file that does not go with them is reported and not taken: what runs goes on as it is.
    """

    def __init__(self, path: str, names: frozenset[str]) -> None:
        self._path = path
        self._names = names
        self._taken: EfficiencyFrontier | None = None
        self._stamp: object = None
        self._lock = threading.Lock()

    def current(self) -> EfficiencyFrontier:
        stamp = self._stamp  # where the file is gone, what was taken goes on
        with contextlib.suppress(OSError):
            status = Path(self._path).stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        with self._lock:
            if self._taken is None:
                first = EfficiencyFrontier.load(self._path)
                check_names(self._names, first)
                self._taken = first
            elif self._stamp != stamp:
                try:
                    self._taken = self._newer(self._taken)
                except EcsPluginsError as error:
                    said = "the frontier %s is not taken: %s; restart to use it"
                    _log.warning(said, self._path, error)
            self._stamp = stamp
            return self._taken

    def _newer(self, old: EfficiencyFrontier) -> EfficiencyFrontier:
        new = EfficiencyFrontier.load(self._path)
        was, now = ((f.provenance.fingerprint, f.unit) for f in (old, new))
        if was != now:
            raise ConfigurationError(f"it was measured with {now}, not {was}")
        for point in new.routable if self._names else ():
            chosen_name(point, self._names)
        return new


_artefact = lru_cache(maxsize=32)(_Artefact)


_named_ledger = lru_cache(maxsize=32)(ReuseLedger)  # a path is opened once


# What a call asks for.


SETTINGS = ("reuse", "context_id", *map(str, Objective))
"""What a call asks of a router; ``reuse`` is N."""


def settings_of(*sources: object) -> dict[str, Any]:
    """N, context and objective, each from the first mapping or object that gives it.

    Raises:
        InvalidInputError: A value is of the wrong type, or one source gives two objectives.
    """
    found: dict[str, Any] = {}
    for source in sources:
        values = source if isinstance(source, Mapping) else vars(source)
        given = {name: values[name] for name in SETTINGS if values.get(name) is not None}
        for name, value in given.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (isinstance(value, str) and value) if name == "context_id" else not number:
                kind = "text" if name == "context_id" else "a number"
                raise InvalidInputError(f"{name} must be {kind}, got {value!r:.60}")
        asked = given.keys() & {*Objective}
        if len(asked) > 1:
            raise InvalidInputError(f"give at most one of {', '.join(Objective)}, got {asked}")
        if asked and found.keys() & {*Objective}:
            del given[asked.pop()]
        found = given | found
    return found


# What is chosen for it.


@dataclass(slots=True)
class RoutedQuery:
    """One query on its way: what was decided for it, and the tokens that it has used so far.

    Calls of a model that neither reported nor could be counted are ``uncounted``.
    """

    router: Router
    decision: RoutingDecision
    context_id: str | None = None
    count_tokens: TokenCounter | None = None
    error: BaseException | None = None
    usage: TokenLedger = field(default_factory=TokenLedger)
    prepared: dict[PointKey, TokenLedger] = field(default_factory=dict)
    uncounted: int = 0
    cache: CacheTokens = (0, 0, 0)
    prepare_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def add_call(self, prompt: str, reply: str, said: object = None) -> None:
        """Count one call of the answering model: as it reports, else by ``count_tokens``."""
        if _building.get():
            return
        read, written = reported_tokens(said)
        now = cache_tokens(said)
        self.cache = (self.cache[0] + now[0], self.cache[1] + now[1], self.cache[2] + now[2])
        if read is None or written is None:
            if self.count_tokens is None:
                self.uncounted += 1
            else:
                counts = self.count_tokens([prompt, reply])
                read = int(counts[0]) if read is None else read
                written = int(counts[1]) if written is None else written
        self.usage.book(Stage.QUERY, Role.ANSWER_INPUT, read or 0)
        self.usage.book(Stage.QUERY, Role.ANSWER_OUTPUT, written or 0)

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
        read = self.usage.total(Stage.QUERY, Role.ANSWER_INPUT)
        settled = self.router.settle(
            self.decision,
            self.usage,
            context_id=self.context_id,
            seconds=seconds,
            cache=self.cache if sum(self.cache) <= read else (0, 0, 0),
            prepared=self.prepared,
            answered=self.error is None,
        )
        cost: dict[str, Any] = {
            "expected": {"stage1": settled.expected_stage1, "stage2": settled.expected_stage2},
            "actual": {"stage1": settled.actual_stage1, "stage2": settled.actual_stage2},
            "ratio": None if self.uncounted or self.error is not None else settled.ratio,
            "unit": settled.unit,
            "tokens": self.usage.to_dict(),
            "cache": dict(zip(("read", "written", "written_1h"), self.cache, strict=True)),
            "uncounted": self.uncounted,
            "seconds": seconds,
        }
        if settled.ledger_error:
            cost["ledger_error"] = settled.ledger_error
        if isinstance(self.error, Exception):  # else the caller let it go
            cost["fallback_after"] = f"{type(self.error).__name__}: {self.error}"
        trace_attributes({"settlement": cost})
        sums = {name: sum(cost[name].values()) for name in ("expected", "actual")}
        record_metrics({**sums, "seconds": seconds}, self.decision.label)
        return {**self.decision.summary(), "settlement": cost}


@lru_cache(maxsize=32)
def _router(frontier: EfficiencyFrontier, config: RouterConfig, ledger: Ledger | None) -> Router:
    # Kept, as a cautious one works out its intervals once.
    return Router(frontier, config, ledger=ledger)


class RoutingFields(StrictFields):
    """The fields of every integration that routes.

    Attributes:
        frontier: An `EfficiencyFrontier`, or the path of an artefact, read when first needed.
        reuse: N, where it is known and the same for all.
        target_f1: Choose the cheapest that reaches it.
        budget: Choose the best F1 within this cost per query.
        weight: Choose the best efficiency score.
        context_id: What queries are about, where they do not say.
        ledger: A `ReuseLedger`, its path or address, or another `Ledger`; gives N otherwise.
        policy: How to decide when N is unknown; None trusts the forecast of the ledger.
        cautious: Whether the lower end of its interval counts as the F1 of a strategy.
        max_seconds: Choose among what answers within it at p95, as it was measured.
    """

    frontier: Annotated[
        Any, PlainValidator(check_frontier, json_schema_input_type=str | dict[str, str])
    ]
    reuse: _Number = Field(default=None, description="N: queries that share the context.")
    target_f1: _Number = Field(default=None, description="The cheapest that reaches it.")
    budget: _Number = Field(default=None, description="The best F1 within this cost.")
    weight: _Number = Field(default=None, description="The best efficiency score.")
    context_id: str | None = Field(default=None, description="What queries are about.")
    ledger: Ledger | str | None = None
    policy: OnlinePolicy | None = None
    cautious: bool = False
    max_seconds: float | None = None

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        settings_of(self), self._config
        return self

    @property
    def _config(self) -> RouterConfig:
        return RouterConfig(
            policy=self.policy, cautious=self.cautious, max_seconds=self.max_seconds
        )

    @property
    def core(self) -> Router:
        """The engine's router: `Router.observe` and `Router.drift`.

        Raises:
            StorageError: The frontier or the ledger cannot be opened.
        """
        return self._core(())

    def _core(self, names: Iterable[str]) -> Router:
        ledger: Any = self.ledger
        opened = _named_ledger(ledger) if isinstance(ledger, str) else ledger
        make = _router if isinstance(opened, Hashable) else _router.__wrapped__
        return make(open_frontier(self.frontier, names), self._config, opened)

    def _decided(
        self,
        asked: Mapping[str, Any],
        *,
        count_tokens: TokenCounter | None = None,
        count: bool = True,
        names: Iterable[str] = (),
    ) -> RoutedQuery:
        """Decide for one query, by `settings_of` it.

        ``names`` is what runs the choices, where that is known; with ``count=False`` it is a dry
        run. A ledger that fails is noted in the decision and costs no answer.
        """
        frontier, failed = open_frontier(self.frontier, names), ""
        try:
            router = self._core(names)
        except StorageError as failure:
            failed = f"as the ledger failed: {failure}"
            _log.warning("%s", failed)
            router = Router(frontier, self._config)
        decision = router.route(count=count, **asked)
        if failed:
            decision = replace(decision, note=f"N = {decision.reuse:g}, {failed}")
        trace_attributes(decision.summary())
        return RoutedQuery(router, decision, asked.get("context_id"), count_tokens)


def chosen_name(decision: RoutingDecision | StrategyPoint, names: Collection[str]) -> str:
    """Which of ``names`` runs a choice: its label or, for all configurations, its strategy."""
    for name in (decision.label, decision.strategy):
        if name in names:
            return name
    raise ConfigurationError(
        f"the frontier chose {decision.label}, and nothing runs that: there is "
        f"{', '.join(sorted(names)) or 'nothing'}. Add {decision.label!r} or "
        f"{decision.strategy!r}, or route among fewer: frontier.only([...])"
    )


def check_names(names: Iterable[str], frontier: EfficiencyFrontier) -> None:
    """Refuse names that no decision of ``frontier`` can have."""
    known = {name for point in frontier.routable for name in (point.label, point.strategy)}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ConfigurationError(
            f"the frontier never chooses {', '.join(unknown)}; it chooses among "
            f"{', '.join(point.label for point in frontier.routable)}"
        )


# What it runs on.


@dataclass(slots=True)
class _Preparation:
    lock: threading.Lock = field(default_factory=threading.Lock)
    prepared: Prepared | None = None


@dataclass(eq=False)
class ContextBuilder:
    """Builds the contexts of measured strategies, and pays for stage 1 once per context.

    Models are made when a query needs them. Concurrent queries about a new context wait for the
    first of them. Copies share what is prepared; a pickle begins without.
    """

    llm: Any = None
    own: Sequence[Strategy] = ()
    scorer: Any = None
    embedder: Any = None
    cache_dir: str | None = None
    count_tokens: TokenCounter | None = None

    def __post_init__(self) -> None:
        given = self.embedder
        self._embedder = default_embedder if given is None else as_embedder(given)
        self._prepared: LRUCache[tuple[PointKey, str], _Preparation] = LRUCache(_PREPARED)
        self._lock = threading.Lock()

    def build(
        self, name: str, config: Mapping[str, ConfigValue], context: Context, question: str
    ) -> BuiltContext:
        """The context for a question, with what this query paid: tokens, and seconds of stage 1."""
        key = (name, config_json(config))
        with self._lock:
            strategy = self._measured.get(name, config)
            preparation = self._prepared.setdefault((key, context.id), _Preparation())
        building = _building.set(True)
        try:
            with preparation.lock:
                prepared, paid = preparation.prepared, False
                if prepared is None:
                    prepared = preparation.prepared = strategy.prepare(context)
                    paid = not prepared.reused
            built = strategy.build(prepared, question)
        finally:
            _building.reset(building)
        tokens = TokenLedger()
        if paid:
            tokens.add(prepared.ledger)
        tokens.add(built.ledger)
        return BuiltContext(built.text, tokens, prepared.seconds if paid else 0.0)

    def points(
        self,
        source: EfficiencyFrontier | str,
        *,
        prompt: str,
        same_model: bool,
        ledger: Ledger | str | None,
    ) -> list[StrategyPoint]:
        """The points that a router may choose; refuses what cannot run before a query needs it."""
        frontier = open_frontier(source)
        if same_model and frontier.provenance.models.get("answer"):
            frontier.provenance.require(answer_model=as_answer_model(self.llm).name)
        check_template(prompt)
        if any(point.strategy.startswith("memory_compression") for point in frontier.routable):
            if isinstance(ledger, str) and self.cache_dir is None:
                raise ConfigurationError(
                    "a ledger in a file remembers which contexts are prepared, but without "
                    "cache_dir the compressions are lost with the process; give cache_dir=..., "
                    "for example beside it"
                )
            if self._counter() is None:
                raise ConfigurationError(
                    "compressions are sized in tokens and this model does not count them; give "
                    "count_tokens=..., such as "
                    "lambda texts: [len(tokenizer.encode(text)) for text in texts]"
                )
        unused: Any = object()  # a strategy is made only to see whether it can be
        model = CallableAnswerModel(str, name="unused")
        known = StrategySet(model, embedder=lambda: unused, scorer=lambda: unused, own=self.own)
        for point in frontier.routable:
            known.get(point.strategy, point.config)
        return list(frontier.routable)

    def _counter(self) -> TokenCounter | None:
        return self.count_tokens or getattr(self.llm, "count_tokens", None)

    @cached_property
    def _measured(self) -> StrategySet:
        """The package's strategies; embedder and scorer are looked for when one needs them."""
        llm, count = self.llm, self._counter()
        return StrategySet(
            None if llm is None else as_answer_model(llm, count_tokens=count),
            embedder=self._embedder,
            scorer=lambda: as_model(self.scorer),
            cache_dir=self.cache_dir,
            own=self.own,
        )

    def __deepcopy__(self, memo: dict[int, object]) -> ContextBuilder:
        return self

    def __reduce__(self) -> tuple[type[ContextBuilder], tuple[Any, ...]]:
        return ContextBuilder, tuple(getattr(self, each.name) for each in fields(self))


def named_fallback(fallback: T | str | None, made: Mapping[str, T]) -> T | None:
    """A fallback, or the one of a name."""
    if not isinstance(fallback, str):
        return fallback
    if fallback not in made:
        raise ConfigurationError(f"the fallback {fallback!r} is none of {', '.join(made)}")
    return made[fallback]
