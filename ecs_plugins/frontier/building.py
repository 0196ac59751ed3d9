"""Contexts of measured strategies, with stage 1 paid once per context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import (
    CallableAnswerModel,
    TokenCounter,
    as_answer_model,
    check_template,
)
from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.preparations import (
    NOTHING_PAID,
    ChainPreparation,
    ContextCost,
    PreparationStore,
)
from ecs_plugins.frontier.strategies.base import Prepared, Strategy, key_of
from ecs_plugins.frontier.strategies.catalogue import StrategySet
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from ecs_plugins.lm.local import as_model
from ecs_plugins.ranking.embedder import as_embedder, default_embedder
from ecs_plugins.tokens import TokenLedger

# Calls of models while a context is built: what they cost comes with the context.
_building: ContextVar[bool] = ContextVar("ecs_plugins_building", default=False)


def is_building() -> bool:
    """Return True while model calls build a context, and are booked with it."""
    return _building.get()


@contextmanager
def building() -> Iterator[None]:
    """Book the model calls within the block with the context that is built."""
    outer = _building.set(True)
    try:
        yield
    finally:
        _building.reset(outer)


class BuiltForQuery(NamedTuple):
    """A context for a question, and its cost for this query."""

    text: str
    cost: ContextCost


@dataclass(eq=False)
class ContextBuilder:
    """Builds the contexts of measured strategies, and pays for stage 1 once per context.

    Embedder and scorer are made when a query needs them. Concurrent queries about a new context
    wait for the first of them. Tenants share no preparation. Copies share the preparations; a
    pickle begins without those in memory.
    """

    llm: Any = None
    own: Sequence[Strategy] = ()
    scorer: Any = None
    embedder: Any = None
    cache_dir: str | None = None
    count_tokens: TokenCounter | None = None

    def __post_init__(self) -> None:
        embedder: Any = default_embedder
        if self.embedder is not None:
            embedder = as_embedder(self.embedder)
        model = None
        if self.llm is not None:
            model = as_answer_model(self.llm, count_tokens=self._counter())
        self._store = PreparationStore(self.cache_dir)
        self._strategies = StrategySet(
            model, embedder=embedder, scorer=lambda: as_model(self.scorer), own=self.own
        )

    def build(
        self,
        point: StrategyPoint,
        context: Context,
        question: str,
        namespace: tuple[str, ...] = (),
    ) -> BuiltForQuery:
        """Return the context for a question, with its cost for this query."""
        strategy = self._strategies.get(point.strategy, point.config)

        def make() -> ChainPreparation:
            prepared = strategy.prepare(context)
            return ChainPreparation(prepared.value, prepared.cost)

        with building():
            kept = self._store.prepared(key_of(strategy, context, namespace), make)
            built = strategy.build(Prepared(context, kept.value, kept.cost), question)
        paid = NOTHING_PAID if kept.found else kept.cost
        tokens = TokenLedger(dict(built.ledger))
        tokens.add(paid.tokens)
        return BuiltForQuery(built.text, paid._replace(tokens=tokens))

    def holds(
        self, point: StrategyPoint, context: Context, namespace: tuple[str, ...] = ()
    ) -> bool:
        """Return True if the preparation of a context is stored, in memory or on disk."""
        strategy = self._strategies.get(point.strategy, point.config)
        return self._store.find(key_of(strategy, context, namespace)) is not None

    def points(
        self, frontier: EfficiencyFrontier, *, prompt: str, same_model: bool
    ) -> list[StrategyPoint]:
        """Return the points that a router may choose, and refuse those that cannot run.

        Args:
            frontier: The measured points.
            prompt: The template of the answer.
            same_model: Whether the answering model must be the one that was measured.

        Raises:
            ConfigurationError: A strategy is unknown, or something does not go together.
        """
        if same_model and frontier.provenance.models.get("answer"):
            frontier.provenance.require(answer_model=as_answer_model(self.llm).name)
        check_template(prompt)
        known = self._checked_strategies()
        strategies = [known.get(point.strategy, point.config) for point in frontier.routable]
        writes = any(isinstance(strategy, MemoryCompression) for strategy in strategies)
        if writes and self._counter() is None:
            raise ConfigurationError(
                "compressions are sized in tokens and this model does not count them; give "
                "count_tokens=..., such as "
                "lambda texts: [len(tokenizer.encode(text)) for text in texts]"
            )
        return list(frontier.routable)

    def _checked_strategies(self) -> StrategySet:
        """Return strategies that are made only to see whether they can be."""
        unused: Any = object()
        return StrategySet(
            CallableAnswerModel(str, name="unused"),
            embedder=lambda: unused,
            scorer=lambda: unused,
            own=self.own,
        )

    def _counter(self) -> TokenCounter | None:
        return self.count_tokens or getattr(self.llm, "count_tokens", None)

    def __deepcopy__(self, memo: dict[int, object]) -> ContextBuilder:
        return self

    def __reduce__(self) -> tuple[type[ContextBuilder], tuple[Any, ...]]:
        return ContextBuilder, tuple(getattr(self, each.name) for each in fields(self))
