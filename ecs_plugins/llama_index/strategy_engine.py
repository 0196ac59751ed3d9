"""One strategy of the Efficiency Frontier as a LlamaIndex query engine: retrieve, build, answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.answering import (
    ANSWER_PROMPT,
    answer_prompt,
    as_answer_model,
)
from ecs_plugins.frontier.data import Context, Document
from ecs_plugins.frontier.points import StrategyPoint
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.fields import as_model
from ecs_plugins.integrations.running import (
    PaidContext,
    PreparedContexts,
    TokenCounter,
    strategy_of,
)
from ecs_plugins.llama_index._books import closed_books, current_books
from ecs_plugins.ranking.embedder import Embedder


class StrategyQueryEngine(BaseQueryEngine):
    """Answers from the context that one measured strategy builds; the default engine.

    Its arguments are those of `FrontierQueryEngine.from_frontier`, for one point.
    """

    def __init__(
        self,
        point: StrategyPoint,
        *,
        llm: LLM,
        context: Context | None = None,
        retriever: BaseRetriever | None = None,
        custom: Strategy | None = None,
        compressor: LLM | None = None,
        scorer: Any = None,
        embedder: Embedder | None = None,
        cache_dir: str | None = None,
        prompt: str = ANSWER_PROMPT,
        count_tokens: TokenCounter | None = None,
        prepared: PreparedContexts | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        compresses = custom is None and point.strategy.startswith("memory_compression")
        if compresses and count_tokens is None:
            raise ConfigurationError(
                "compressions are sized in tokens; give count_tokens=..., such as "
                "lambda texts: [len(tokenizer.encode(text)) for text in texts]"
            )
        self._point = point
        self._llm = llm
        self._context = context
        self._retriever = retriever
        self._custom = custom
        self._compressor = compressor or llm
        self._scorer = scorer
        self._embedder = embedder
        self._cache_dir = cache_dir
        self._prompt = prompt
        self._count_tokens = count_tokens
        self._prepared = prepared or PreparedContexts()
        super().__init__(callback_manager)

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        context = self._context
        if context is None:
            context = self._found(self._retrieve().retrieve(query_bundle))
        paid = self._build(context, query_bundle.query_str)
        reply = self._llm.complete(self._fill(paid, query_bundle))
        return self._response(paid, reply.text)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        context = self._context
        if context is None:
            context = self._found(await self._retrieve().aretrieve(query_bundle))
        paid = await run_sync(self._build, context, query_bundle.query_str)
        reply = await self._llm.acomplete(self._fill(paid, query_bundle))
        return self._response(paid, reply.text)

    def _retrieve(self) -> BaseRetriever:
        if self._retriever is None:
            raise ConfigurationError("a strategy needs a context or a retriever")
        return self._retriever

    def _found(self, nodes: Sequence[NodeWithScore]) -> Context:
        return as_context([node.node for node in nodes])

    def _build(self, context: Context, question: str) -> PaidContext:
        # The ledger of the strategy has what its models cost; the events would book it again.
        with closed_books():
            paid = self._prepared.build(self._strategy(), context, question)
        books = current_books()
        if books is not None:
            books.ledger.add(paid.ledger)
            books.prepare_seconds += paid.prepare_seconds
        return paid

    def _strategy(self) -> Strategy:
        if self._custom is not None:
            return self._custom
        shaped = "ecs" in self._point.strategy.split("+")
        return strategy_of(
            self._point.strategy,
            self._point.config,
            model=as_answer_model(self._compressor, count_tokens=self._count_tokens),
            embedder=self._embedder,
            scorer=as_model(self._scorer) if shaped else None,
            cache_dir=self._cache_dir,
        )

    def _fill(self, paid: PaidContext, query: QueryBundle) -> str:
        return answer_prompt(paid.text, query.query_str, self._prompt)

    def _response(self, paid: PaidContext, text: str) -> Response:
        # What was read is one text: its pieces may be parts of several nodes.
        node = TextNode(text=paid.text, metadata={"strategy": self._point.label})
        return Response(text, source_nodes=[NodeWithScore(node=node)])

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {}


def as_context(nodes: Sequence[BaseNode]) -> Context:
    """The engine's context of LlamaIndex nodes; their title is in ``metadata["title"]``.

    Raises:
        InvalidInputError: Something is no node, or there is no text.
    """
    for node in nodes:
        if not isinstance(node, BaseNode):
            raise InvalidInputError(f"nodes must be LlamaIndex nodes, got {type(node).__name__}")
    return Context(
        tuple(
            Document(
                node.get_content(metadata_mode=MetadataMode.NONE),
                str(node.metadata.get("title") or ""),
            )
            for node in nodes
        )
    )
