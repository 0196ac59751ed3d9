"""A query engine of the user's own behind a router: what it prepares per context, and its answer.

A translation only: `ecs_plugins.frontier.chains` keeps what was prepared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import BaseNode, QueryBundle, TextNode
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.common.checks import check_kind, check_text
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.chains import (
    CallCounter,
    ChainPreparation,
    PreparationStore,
    check_lasting,
)
from ecs_plugins.frontier.cost import ConfigValue, PointKey, config_json, label_of
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.strategies.base import Answered, Prepared
from ecs_plugins.llama_index.counting import as_context, counted, current_query
from ecs_plugins.tokens import Stage, TokenLedger

Preparation = Callable[[Sequence[BaseNode]], Any]
EngineMaker = Callable[[Any], BaseQueryEngine]


class RoutedEngine(BaseQueryEngine):
    """An engine with a stage 1 of its own, for a `FrontierQueryEngine` and for `calibrate`.

    ```python
    RoutedEngine("notes", prepare=summarise, answer=lambda notes: NotesEngine(llm, notes))
    ```

    ``prepare`` runs once per context and what it gives is kept; ``answer`` makes the engine that
    answers from it. Tokens of both are counted by themselves.

    Args:
        name: The strategy; with ``settings`` what its point is called.
        answer: Stage 2: a query engine, or with ``prepare`` what makes one of what was kept. For
            `calibrate` it may also be a function of the nodes of a question's context.
        prepare: Stage 1: from nodes to text or plain values; None for none.
        nodes: What queries are asked about, and what is prepared.
        settings: The configuration, where a strategy has several.
        directory: Keeps what was prepared for other processes and the next start.
        count_tokens: Tokens of each text, for models that do not report what they used.
        routable: Whether a router may choose it.

    Raises:
        ConfigurationError: It prepares, and nothing makes an engine of that, or an argument
            cannot be used.
    """

    def __init__(
        self,
        name: str,
        *,
        answer: BaseQueryEngine | EngineMaker,
        prepare: Preparation | None = None,
        nodes: Sequence[BaseNode] = (),
        settings: Mapping[str, ConfigValue] | None = None,
        directory: str | None = None,
        count_tokens: TokenCounter | None = None,
        routable: bool = True,
    ) -> None:
        if not check_text("the name of an engine", name):
            raise ConfigurationError("an engine needs the name of its strategy")
        if not isinstance(answer, BaseQueryEngine) and not callable(answer):
            raise ConfigurationError(f"{name}: answer is neither a query engine nor makes one")
        if prepare is not None and not callable(prepare):
            raise ConfigurationError(f"{name}: prepare is no function of the nodes")
        if prepare is not None and isinstance(answer, BaseQueryEngine):
            raise ConfigurationError(
                f"{name} prepares something and its engine is never given it; let answer make the "
                "engine: answer=lambda prepared: ..."
            )
        super().__init__(None)
        self.name = name
        self.answer = answer
        self.prepare = prepare
        self.nodes = list(nodes)
        self.settings = dict(check_kind("settings", settings or {}, Mapping))  # type: ignore[type-abstract]
        self.directory = directory
        self.count_tokens = count_tokens
        self.routable = routable
        self._store = PreparationStore(directory)

    @property
    def key(self) -> PointKey:
        """What its point is called."""
        return (self.name, config_json(self.settings))

    @property
    def label(self) -> str:
        """The label of its point."""
        return label_of(self.name, self.settings)

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        return self._engine(query_bundle).query(query_bundle)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        engine = await run_sync(self._engine, query_bundle)
        return await engine.aquery(query_bundle)

    def _engine(self, query_bundle: QueryBundle) -> BaseQueryEngine:
        if self.prepare is None:
            return self.engine_for(self.nodes)
        given = getattr(query_bundle, "context_id", None)
        context = given or (as_context(self.nodes).id if self.nodes else "")
        kept = self._store.prepared(self.key, context, lambda: self.prepared_of(self.nodes))
        query = current_query()
        if query is not None:
            tokens = TokenLedger() if kept.found else kept.ledger
            query.add_context(self.key, tokens, 0.0 if kept.found else kept.seconds)
        return self.engine_for(kept.value)

    def engine_for(self, value: Any) -> BaseQueryEngine:
        """The engine that answers from what was prepared, or from nodes."""
        return self.answer if isinstance(self.answer, BaseQueryEngine) else self.answer(value)

    def prepared_of(self, nodes: Sequence[BaseNode]) -> ChainPreparation:
        """Stage 1 of some nodes, always anew."""
        assert self.prepare is not None
        counter = CallCounter(Stage.PREPARE, self.count_tokens)
        began = time.perf_counter()
        with counted(counter):
            value = self.prepare(nodes)
        return ChainPreparation(value, counter.ledger, time.perf_counter() - began)

    def check_lasting(self, *, lasting: bool) -> None:
        """Refuse what is forgotten with the process (`ecs_plugins.frontier.chains`)."""
        check_lasting(
            "RoutedEngine",
            self.label,
            prepares=self.prepare is not None,
            directory=self.directory,
            lasting=lasting,
        )

    def as_strategy(self) -> MeasuredEngine:
        """What `calibrate` measures."""
        return MeasuredEngine(self)

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {}


class MeasuredEngine:
    """A `RoutedEngine` as a strategy that answers by itself."""

    def __init__(self, chain: RoutedEngine) -> None:
        self.name = chain.name
        self.config: Mapping[str, ConfigValue] = chain.settings
        self.routable = chain.routable
        self._chain = chain

    def prepare(self, context: Context) -> Prepared:
        """Stage 1, always anew: its cost is measured."""
        if self._chain.prepare is None:
            return Prepared(context, value=_nodes(context))
        made = self._chain.prepared_of(_nodes(context))
        return Prepared(context, "", made.ledger, made.seconds, value=made.value)

    def answer(self, prepared: Prepared, question: str) -> Answered:
        """Stage 2."""
        engine = self._chain.engine_for(prepared.value)
        counter = CallCounter(Stage.QUERY, self._chain.count_tokens)
        began = time.perf_counter()
        with counted(counter):
            response = engine.query(question)
        seconds = time.perf_counter() - began
        counter.check(self._chain.label)
        return Answered(str(response), counter.ledger, seconds)


def _nodes(context: Context) -> list[BaseNode]:
    return [
        TextNode(text=document.text, metadata={"title": document.title})
        for document in context.documents
    ]
