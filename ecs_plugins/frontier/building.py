"""Building the context of a measured strategy, with its stage 1 paid once per context."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from cachetools import LRUCache

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import (
    CallableAnswerModel,
    TokenCounter,
    as_answer_model,
    check_template,
)
from ecs_plugins.frontier.cost import ConfigValue, PointKey, StrategyPoint, config_json
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared, Strategy, writes_notes
from ecs_plugins.frontier.strategies.registry import StrategySet
from ecs_plugins.lm.local import as_model
from ecs_plugins.ranking.embedder import as_embedder, default_embedder
from ecs_plugins.tokens import TokenLedger

_PREPARED = 256  # contexts whose stage 1 is kept

# Calls of models while a context is built: what they cost comes with the context.
_building: ContextVar[bool] = ContextVar("ecs_plugins_building", default=False)


def is_building() -> bool:
    """Whether the calls of models that are made now build a context, and are booked with it."""
    return _building.get()


@contextmanager
def building() -> Iterator[None]:
    """Calls of models within are booked with the context that is built."""
    outer = _building.set(True)
    try:
        yield
    finally:
        _building.reset(outer)


@dataclass(slots=True)
class _Preparation:
    """Stage 1 of a context; whoever comes second waits for the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    prepared: Prepared | None = None


class _Stage1(NamedTuple):
    """What stage 1 made, and whether this query paid for it."""

    prepared: Prepared
    paid: bool


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
        self._embedder: Any = default_embedder
        if self.embedder is not None:
            self._embedder = as_embedder(self.embedder)
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
        with building():
            stage1 = _prepare(strategy, context, preparation)
            built = strategy.build(stage1.prepared, question)
        tokens = TokenLedger()
        seconds = 0.0
        if stage1.paid:
            tokens.add(stage1.prepared.ledger)
            seconds = stage1.prepared.seconds
        tokens.add(built.ledger)
        return BuiltContext(built.text, tokens, seconds)

    def points(
        self,
        frontier: EfficiencyFrontier,
        *,
        prompt: str,
        same_model: bool,
        lasting: bool,
    ) -> list[StrategyPoint]:
        """The points that a router may choose; refuses what cannot run before a query needs it.

        Args:
            frontier: What was measured.
            prompt: The template of the answer.
            same_model: Whether the answering model must be the one that was measured.
            lasting: Whether what is prepared is remembered beyond this process.

        Raises:
            ConfigurationError: A strategy is unknown, or something does not go together.
        """
        if same_model and frontier.provenance.models.get("answer"):
            frontier.provenance.require(answer_model=as_answer_model(self.llm).name)
        check_template(prompt)
        known = self._checked_strategies()
        strategies = [known.get(point.strategy, point.config) for point in frontier.routable]
        if any(writes_notes(strategy) for strategy in strategies):
            self._check_notes(lasting=lasting)
        return list(frontier.routable)

    def _checked_strategies(self) -> StrategySet:
        """Strategies that are made only to see whether they can be."""
        unused: Any = object()
        return StrategySet(
            CallableAnswerModel(str, name="unused"),
            embedder=lambda: unused,
            scorer=lambda: unused,
            own=self.own,
        )

    def _check_notes(self, *, lasting: bool) -> None:
        if lasting and self.cache_dir is None:
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

    def _counter(self) -> TokenCounter | None:
        return self.count_tokens or getattr(self.llm, "count_tokens", None)

    @cached_property
    def _measured(self) -> StrategySet:
        """The package's strategies; embedder and scorer are looked for when one needs them."""
        model = None
        if self.llm is not None:
            model = as_answer_model(self.llm, count_tokens=self._counter())
        return StrategySet(
            model,
            embedder=self._embedder,
            scorer=lambda: as_model(self.scorer),
            cache_dir=self.cache_dir,
            own=self.own,
        )

    def __deepcopy__(self, memo: dict[int, object]) -> ContextBuilder:
        return self

    def __reduce__(self) -> tuple[type[ContextBuilder], tuple[Any, ...]]:
        return ContextBuilder, tuple(getattr(self, each.name) for each in fields(self))


def _prepare(strategy: Strategy, context: Context, preparation: _Preparation) -> _Stage1:
    with preparation.lock:
        if preparation.prepared is not None:
            return _Stage1(preparation.prepared, paid=False)
        prepared = strategy.prepare(context)
        preparation.prepared = prepared
        return _Stage1(prepared, paid=not prepared.reused)
