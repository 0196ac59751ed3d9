"""Query engines of a router: a measured strategy's, and those of chains of one's own.

A translation only: `ecs_plugins.frontier` prepares, builds and keeps the preparations.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.answering import ANSWER_PROMPT, answer_prompt
from ecs_plugins.frontier.building import ContextBuilder
from ecs_plugins.frontier.chains import (
    CallCounter,
    ChainAdapter,
    register_adapter,
    run_coroutine,
)
from ecs_plugins.frontier.chains import RoutedChain as RoutedChain
from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.data import Context, Document
from ecs_plugins.frontier.preparations import NOTHING_PAID, ChainPreparation, PreparationKey
from ecs_plugins.frontier.strategies.base import Prepared
from ecs_plugins.integrations.routers import RoutedQuery, tenant_of
from ecs_plugins.llama_index.counting import counted, current_query
from ecs_plugins.tokens import Stage


@dataclass(eq=False)
class StrategyEngine(BaseQueryEngine):
    """Query engine that answers from the context that one measured strategy builds.

    Attributes:
        point: The strategy and its settings.
        builder: Builds contexts, and keeps their preparations.
        llm: Answers.
        context: Context of every query; None where a retriever finds it.
        retriever: Finds the context of a query.
        prompt: Template with {context} and {question}.
    """

    point: StrategyPoint
    builder: ContextBuilder
    llm: LLM
    context: Context | None = None
    retriever: BaseRetriever | None = None
    prompt: str = ANSWER_PROMPT

    def __post_init__(self) -> None:
        super().__init__(None)

    def holds(self, context_id: str, namespace: tuple[str, ...]) -> bool | None:
        """Return True if stage 1 of the nodes is there; None if a retriever finds them."""
        del context_id
        if self.context is None:
            return None
        return self.builder.holds(self.point, self.context, namespace)

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        found = self.retriever.retrieve(query_bundle) if self.retriever else ()
        context, prompt = self._build(found, query_bundle)
        return self._response(context, self.llm.complete(prompt).text)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        found = await self.retriever.aretrieve(query_bundle) if self.retriever else ()
        context, prompt = await run_sync(self._build, found, query_bundle)
        return self._response(context, (await self.llm.acomplete(prompt)).text)

    def _build(
        self,
        found: Sequence[NodeWithScore],
        bundle: QueryBundle,
    ) -> tuple[str, str]:
        """Return the context of a question, and the prompt with both."""
        context = self.context or as_context([node.node for node in found])
        question = bundle.query_str
        built = self.builder.build(self.point, context, question, namespace_of(bundle))
        query = current_query()
        if query is not None:
            query.add_context(self.point.key, built.cost)
        if isinstance(query, RoutedQuery):
            query.whole = f"{context.text}\n\n{question}"
        return built.text, answer_prompt(built.text, question, self.prompt)

    def _response(
        self,
        context: str,
        text: str,
    ) -> Response:
        # One node, as the pieces of the text may be parts of several nodes.
        node = TextNode(text=context, metadata={"strategy": self.point.label})
        return Response(text, source_nodes=[NodeWithScore(node=node)])

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {}


class ChainEngine(BaseQueryEngine):
    """Query engine of a `RoutedChain`, which prepares its context and answers.

    Args:
        chain: Its two stages.
    """

    def __init__(self, chain: RoutedChain) -> None:
        super().__init__(None)
        self.chain = chain

    @property
    def context(self) -> Context | None:
        """Context of the chain's nodes, as they are now."""
        return as_context(self.chain.nodes) if self.chain.nodes else None

    def holds(self, context_id: str, namespace: tuple[str, ...]) -> bool | None:
        """Return True if the preparation of the nodes is there; None if there is no stage 1."""
        if self.chain.prepare is None:
            return None
        return self.chain.store.find(self._key(context_id, namespace)) is not None

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        chain = self.chain
        if chain.prepare is None:
            return _engine_of(chain, chain.nodes).query(query_bundle)
        key = self._key_of(query_bundle)
        kept = chain.store.prepared(key, partial(_prepared, chain, chain.nodes))
        return self._engine(kept).query(query_bundle)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        chain = self.chain
        if chain.prepare is None:
            engine = await run_sync(_engine_of, chain, chain.nodes)
        else:
            key = self._key_of(query_bundle)
            kept = await chain.store.aprepared(key, partial(_aprepared, chain, chain.nodes))
            engine = await run_sync(self._engine, kept)
        return await engine.aquery(query_bundle)

    def _key_of(self, bundle: QueryBundle) -> PreparationKey:
        return self._key(getattr(bundle, "context_id", None) or "", namespace_of(bundle))

    def _key(self, context_id: str, namespace: tuple[str, ...]) -> PreparationKey:
        context = self.context
        content = "" if context is None else context.id
        return self.chain.preparation_key(namespace, context_id, content)

    def _engine(self, kept: ChainPreparation) -> BaseQueryEngine:
        query = current_query()
        if query is not None:
            query.add_context(self.chain.key, NOTHING_PAID if kept.found else kept.cost)
        return _engine_of(self.chain, kept.value)

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {}


PreparedEngine = StrategyEngine | ChainEngine
"""Engine with a stage 1 that can be looked up."""


def as_engine(chain: Any) -> Any:
    """Return a `RoutedChain` as a query engine, and anything else as it is."""
    return ChainEngine(chain) if isinstance(chain, RoutedChain) else chain


def _engine_of(chain: RoutedChain, value: Any) -> BaseQueryEngine:
    """Return the engine that answers from a preparation, or from nodes."""
    engine = chain.answer if isinstance(chain.answer, BaseQueryEngine) else chain.answer(value)
    assert isinstance(engine, BaseQueryEngine)
    return engine


def _prepared(chain: RoutedChain, nodes: Sequence[BaseNode]) -> ChainPreparation:
    """Run stage 1, and count its calls."""
    counter = CallCounter(Stage.PREPARE, chain.count_tokens)
    with counted(counter):
        value = chain.prepare(nodes)
    if inspect.isawaitable(value):
        prepared: ChainPreparation = run_coroutine(_awaited(value, counter))
        return prepared
    return ChainPreparation(value, counter.cost())


async def _aprepared(chain: RoutedChain, nodes: Sequence[BaseNode]) -> ChainPreparation:
    """Run stage 1 off the event loop, or as the coroutine that it is."""
    if inspect.iscoroutinefunction(chain.prepare):
        return await _awaited(chain.prepare(nodes), CallCounter(Stage.PREPARE, chain.count_tokens))
    return await run_sync(_prepared, chain, nodes)


async def _awaited(value: Any, counter: CallCounter) -> ChainPreparation:
    with counted(counter):
        made = await value
    return ChainPreparation(made, counter.cost())


# Calibration.


def _prepare_context(chain: RoutedChain, context: Context) -> ChainPreparation:
    return _prepared(chain, _nodes(context))


def _answer(
    chain: RoutedChain,
    prepared: Prepared,
    question: str,
    counter: CallCounter,
) -> Any:
    value = _nodes(prepared.context) if chain.prepare is None else prepared.value
    engine = _engine_of(chain, value)
    with counted(counter):
        response = engine.query(question)
        text = str(response)  # reads a stream to its end
    answer = getattr(response, "response", None)
    return text if answer is None or isinstance(answer, str) else answer


def _nodes(context: Context) -> list[BaseNode]:
    return [
        TextNode(text=document.text, metadata={"title": document.title})
        for document in context.documents
    ]


def _makes_engines(answer: object) -> bool:
    is_function = callable(answer) and not hasattr(answer, "invoke")
    return is_function or isinstance(answer, BaseQueryEngine)


register_adapter(ChainAdapter(_makes_engines, _prepare_context, _answer))


# Inputs.


def namespace_of(bundle: object) -> tuple[str, ...]:
    """Return the tenant of a query: the field ``namespace`` of a `FrontierQuery`."""
    return tenant_of(getattr(bundle, "namespace", None))


def as_context(nodes: Sequence[BaseNode]) -> Context:
    """Return LlamaIndex nodes as a context; their title is in ``metadata["title"]``.

    Raises:
        InvalidInputError: Something is no node, or there is no text.
    """
    for node in nodes:
        if not isinstance(node, BaseNode):
            raise InvalidInputError(f"nodes must be LlamaIndex nodes, got {type(node).__name__}")
    texts = [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
    titles = [str(node.metadata.get("title") or "") for node in nodes]
    return Context(tuple(map(Document, texts, titles)))
