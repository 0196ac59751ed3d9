"""Chains of your own as LlamaIndex query engines: a stage 1 once per context, and its answer.

A translation only: `ecs_plugins.frontier.chains` keeps the preparations.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import BaseNode, QueryBundle, TextNode
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.frontier.chains import (
    NOTHING_PAID,
    CallCounter,
    ChainPreparation,
    PreparationKey,
    register_adapter,
    run_coroutine,
)
from ecs_plugins.frontier.chains import RoutedChain as RoutedChain
from ecs_plugins.frontier.cost import ConfigValue
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.ledger import check_namespace
from ecs_plugins.frontier.strategies.base import Answered, Prepared
from ecs_plugins.llama_index.counting import as_context, counted, current_query
from ecs_plugins.tokens import Stage


class ChainEngine(BaseQueryEngine):
    """A `RoutedChain` that prepares its context and answers.

    Args:
        chain: Its two stages.
    """

    def __init__(self, chain: RoutedChain) -> None:
        super().__init__(None)
        self.chain = chain

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        chain = self.chain
        if chain.prepare is None:
            return engine_of(chain, chain.nodes).query(query_bundle)
        key = self._key(query_bundle)
        kept = chain.store.prepared(key, lambda: prepared_of(chain, chain.nodes))
        return self._engine(kept).query(query_bundle)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        chain = self.chain
        if chain.prepare is None:
            engine = await run_sync(engine_of, chain, chain.nodes)
            return await engine.aquery(query_bundle)
        key = self._key(query_bundle)

        async def make() -> ChainPreparation:
            return await aprepared_of(chain, chain.nodes)

        kept = await chain.store.aprepared(key, make)
        engine = await run_sync(self._engine, kept)
        return await engine.aquery(query_bundle)

    def holds(self, context_id: str | None, namespace: tuple[str, ...]) -> bool:
        """Return True if the preparation of the context is there."""
        return self.chain.store.holds(self._key_of(context_id, namespace))

    def _key(self, bundle: QueryBundle) -> PreparationKey:
        return self._key_of(getattr(bundle, "context_id", None), namespace_of(bundle))

    def _key_of(self, context_id: str | None, namespace: tuple[str, ...]) -> PreparationKey:
        content = as_context(self.chain.nodes).id if self.chain.nodes else ""
        return self.chain.preparation_key(namespace, context_id or "", content)

    def _engine(self, kept: ChainPreparation) -> BaseQueryEngine:
        query = current_query()
        if query is not None:
            query.add_context(self.chain.key, NOTHING_PAID if kept.found else kept.cost)
        return engine_of(self.chain, kept.value)

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {}


def namespace_of(bundle: object) -> tuple[str, ...]:
    """Return the tenant of a query: the field ``namespace`` of a `FrontierQuery`."""
    given = getattr(bundle, "namespace", None) or ()
    return check_namespace((given,) if isinstance(given, str) else given)


def as_engine(chain: Any) -> Any:
    """Return a `RoutedChain` as a query engine, and anything else as it is."""
    return ChainEngine(chain) if isinstance(chain, RoutedChain) else chain


def engine_of(chain: RoutedChain, value: Any) -> BaseQueryEngine:
    """Return the engine that answers from a preparation, or from nodes."""
    engine = chain.answer if isinstance(chain.answer, BaseQueryEngine) else chain.answer(value)
    assert isinstance(engine, BaseQueryEngine)
    return engine


def prepared_of(chain: RoutedChain, nodes: Sequence[BaseNode]) -> ChainPreparation:
    """Run stage 1, and count its calls."""
    prepared: ChainPreparation
    counter = CallCounter(Stage.PREPARE, chain.count_tokens)
    began = time.perf_counter()
    with counted(counter):
        value = chain.prepare(nodes)
    if inspect.isawaitable(value):
        prepared = run_coroutine(_awaited(chain, value))
        return prepared
    return ChainPreparation(value, counter.cost(time.perf_counter() - began))


async def aprepared_of(chain: RoutedChain, nodes: Sequence[BaseNode]) -> ChainPreparation:
    """Run stage 1 off the event loop, or as the coroutine that it is."""
    if inspect.iscoroutinefunction(chain.prepare):
        return await _awaited(chain, chain.prepare(nodes))
    return await run_sync(prepared_of, chain, nodes)


async def _awaited(chain: RoutedChain, value: Any) -> ChainPreparation:
    counter = CallCounter(Stage.PREPARE, chain.count_tokens)
    began = time.perf_counter()
    with counted(counter):
        made = await value
    return ChainPreparation(made, counter.cost(time.perf_counter() - began))


class MeasuredEngine:
    """A `RoutedChain` of query engines as a strategy that answers by itself."""

    def __init__(self, chain: RoutedChain) -> None:
        self.name = chain.name
        self.config: Mapping[str, ConfigValue] = dict(chain.settings or {})
        self.routable = chain.routable
        self._chain = chain

    def prepare(self, context: Context) -> Prepared:
        """Run stage 1, always anew: its cost is measured."""
        if self._chain.prepare is None:
            return Prepared(context, value=_nodes(context))
        made = prepared_of(self._chain, _nodes(context))
        cost = made.cost
        return Prepared(context, "", cost.tokens, cost.seconds, value=made.value, calls=cost.calls)

    def answer(self, prepared: Prepared, question: str) -> Answered:
        """Run stage 2."""
        engine = engine_of(self._chain, prepared.value)
        counter = CallCounter(Stage.QUERY, self._chain.count_tokens)
        began = time.perf_counter()
        with counted(counter):
            response = engine.query(question)
            text = str(response)  # reads a stream to its end
        seconds = time.perf_counter() - began
        counter.check(self._chain.label)
        answer = getattr(response, "response", None)
        structured = answer is not None and not isinstance(answer, str)
        return Answered(
            answer if structured else text,
            counter.tokens,
            seconds,
            calls=max(1, len(counter.calls)),
            answer_field=self._chain.answer_field,
        )


def _nodes(context: Context) -> list[BaseNode]:
    return [
        TextNode(text=document.text, metadata={"title": document.title})
        for document in context.documents
    ]


def _makes_engines(answer: object) -> bool:
    return isinstance(answer, BaseQueryEngine) or (
        callable(answer) and not hasattr(answer, "invoke")
    )


register_adapter(_makes_engines, MeasuredEngine)
