"""Contexts of measured strategies, with stage 1 paid once per context."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from cachetools import LRUCache

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import (
    CallableAnswerModel,
    TokenCounter,
    as_answer_model,
    check_template,
)
from ecs_plugins.frontier.chains import ContextCost
from ecs_plugins.frontier.cost import ConfigValue, PointKey, StrategyPoint, config_json
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.strategies.base import Prepared, Strategy
from ecs_plugins.frontier.strategies.catalogue import StrategySet
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from ecs_plugins.lm.local import as_model
from ecs_plugins.ranking.embedder import as_embedder, default_embedder
from ecs_plugins.tokens import TokenLedger

_PREPARED = 1024  # contexts whose stage 1 is kept
_TENANTS = 64  # whose strategies are kept
_Place = tuple[tuple[str, ...], PointKey, str]

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


@dataclass(slots=True)
class _Preparation:
    """Stage 1 of a context; others wait for the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    prepared: Prepared | None = None


class BuiltForQuery(NamedTuple):
    """A context for a question, and its cost for this query."""

    text: str
    cost: ContextCost


@dataclass(eq=False)
class ContextBuilder:
    """Builds the contexts of measured strategies, and pays for stage 1 once per context.

    Models are made when a query needs them. Concurrent queries about a new context wait for the
    first of them. Each tenant has its own strategies and its own folder in ``cache_dir``. Copies
    share the preparations; a pickle begins without.
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
        self._prepared: LRUCache[_Place, _Preparation] = LRUCache(_PREPARED)
        self._tenants: LRUCache[tuple[str, ...], StrategySet] = LRUCache(_TENANTS)
        self._lock = threading.Lock()

    def build(
        self,
        name: str,
        config: Mapping[str, ConfigValue],
        context: Context,
        question: str,
        namespace: tuple[str, ...] = (),
    ) -> BuiltForQuery:
        """Return the context for a question, with its cost for this query."""
        key = (name, config_json(config))
        with self._lock:
            strategy = self._measured(namespace).get(name, config)
            place = (namespace, key, context.id)
            preparation = self._prepared.setdefault(place, _Preparation())
        with building():
            prepared, is_paid = _prepare(strategy, context, preparation)
            built = strategy.build(prepared, question)
        tokens = TokenLedger(dict(built.ledger))
        if not is_paid:
            return BuiltForQuery(built.text, ContextCost(tokens))
        tokens.add(prepared.ledger)
        return BuiltForQuery(built.text, ContextCost(tokens, prepared.calls, prepared.seconds))

    def holds(
        self, point: StrategyPoint | PointKey, context: Context, namespace: tuple[str, ...] = ()
    ) -> bool:
        """Return True if the preparation of a point is stored, in memory or on disk."""
        key = point if isinstance(point, tuple) else point.key
        with self._lock:
            kept = self._prepared.get((namespace, key, context.id))
            if kept is not None and kept.prepared is not None:
                return True
            strategy = self._measured(namespace).get(key[0], json.loads(key[1]))
        holds: Callable[[Context], bool] | None = getattr(strategy, "holds", None)
        return holds is not None and holds(context)

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

    def _measured(self, namespace: tuple[str, ...]) -> StrategySet:
        """Return the strategies of a tenant; embedder and scorer are made when one needs them."""
        if namespace not in self._tenants:
            model = None
            if self.llm is not None:
                model = as_answer_model(self.llm, count_tokens=self._counter())
            folder = self.cache_dir
            if folder is not None and namespace:
                tenant = hashlib.sha256(json.dumps(namespace).encode()).hexdigest()
                folder = str(Path(folder) / tenant[:32])
            self._tenants[namespace] = StrategySet(
                model,
                embedder=self._embedder,
                scorer=lambda: as_model(self.scorer),
                cache_dir=folder,
                own=self.own,
            )
        return self._tenants[namespace]

    def __deepcopy__(self, memo: dict[int, object]) -> ContextBuilder:
        return self

    def __reduce__(self) -> tuple[type[ContextBuilder], tuple[Any, ...]]:
        return ContextBuilder, tuple(getattr(self, each.name) for each in fields(self))


def _prepare(
    strategy: Strategy, context: Context, preparation: _Preparation
) -> tuple[Prepared, bool]:
    """Return stage 1 of a context, and whether this query pays for it."""
    with preparation.lock:
        if preparation.prepared is not None:
            return preparation.prepared, False
        preparation.prepared = strategy.prepare(context)
        return preparation.prepared, not preparation.prepared.reused
