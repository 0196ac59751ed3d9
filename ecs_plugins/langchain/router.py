"""The Efficiency Frontier as a LangChain router: a chain per strategy, chosen for every query.

A translation only: `ecs_plugins.frontier` decides and settles. The run follows
`RunnableBranch`: one traced run whose child carries the tag of the choice.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, aclosing, closing
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated, Any, Self, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.language_models import LanguageModelLike
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableSerializable,
)
from pydantic import BeforeValidator
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.common.checks import check_several
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import ANSWER_PROMPT, TokenCounter
from ecs_plugins.frontier.building import ContextBuilder
from ecs_plugins.frontier.chains import RoutedChain
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.reloading import check_frontier, chosen_name, open_frontier
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.routers import (
    METADATA_KEY,
    RoutedQuery,
    RoutingFields,
    by_label,
    named_fallback,
    settings_of,
)
from ecs_plugins.langchain.chains import (
    CallbackCounter,
    Chain,
    StrategyChain,
    as_context,
    as_runnable,
    is_prepared,
    namespace_of,
    question_of,
)

DECISION_EVENT = "frontier_decision"
"""Name of the custom event with the decision, before its chain runs."""

SETTLEMENT_EVENT = "frontier_settlement"
"""Name of the custom event with expected and actual cost, after the run."""

SyncManager = CallbackManagerForChainRun
AsyncManager = AsyncCallbackManagerForChainRun


class FrontierRouter(RoutingFields, RunnableSerializable[Any, Any]):
    """Runs the chain of the strategy that is right for this query's reuse and target.

    ```python
    router = FrontierRouter.from_frontier(
        "frontier.json", llm=llm, documents=documents, target_f1=0.7, ledger="reuse.db",
        cache_dir="notes",
    )
    router.invoke("Who built the mill?")                                    # N from the ledger
    router.invoke("Who built the mill?", {"configurable": {"reuse": 40}})   # N from the caller
    ```

    The settings of a query come from the input where that is a dict, else from
    ``config["configurable"]``, else from the fields here; N at last from the ledger. The tenant
    comes from ``config["configurable"]["namespace"]`` alone. A chain is given the input as it
    came; with ``documents`` or ``retriever``, ``{"question": ..., "documents": [...]}``. Decision
    and cost are custom events, and stand in ``response_metadata["frontier"]`` of a message or of
    the last chunk of a stream.

    The fields are those of `RoutingFields`, where ``context_id`` is by default the hash of the
    documents, and:

    Attributes:
        chains: Label (``"bm25(depth=4)"``) or strategy (``"bm25"``) -> chain; or a list of
            `RoutedChain`. Chains that retrieve for themselves need no documents.
        documents: The context of every query.
        retriever: Finds the context of a query, in place of ``documents``.
        fallback: Runs when a chain fails, unless its stream has begun.
        count_tokens: Tokens of each text, for models that do not report them.

    Raises:
        StorageError: The artefact cannot be read.
        ConfigurationError: A field cannot be used, or the chains are not those of the frontier.
        UnreachableTargetError: No query can reach the objective.
    """

    chains: Annotated[dict[str, Chain], BeforeValidator(by_label)]
    documents: list[Document] | None = None
    retriever: Runnable[Any, Any] | None = None
    fallback: Chain | None = None
    count_tokens: TokenCounter | None = None

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Raise if fields cannot work together."""
        if not self.chains:
            raise ConfigurationError("chains is empty; give at least one strategy's chain")
        if self.documents is not None and self.retriever is not None:
            raise ConfigurationError("give documents or a retriever, not both")
        self.choices(self.chains)

    @classmethod
    def from_frontier(
        cls,
        frontier: EfficiencyFrontier | str,
        *,
        llm: LanguageModelLike,
        documents: Sequence[Document] | None = None,
        retriever: Runnable[str, list[Document]] | None = None,
        strategies: Iterable[Strategy] = (),
        scorer: object = None,
        embedder: object = None,
        cache_dir: str | None = None,
        prompt: str = ANSWER_PROMPT,
        fallback: str | Runnable[Any, Any] | None = None,
        same_model: bool = True,
        **fields: Any,
    ) -> Self:
        """Return a router with a chain for every point that the frontier can choose.

        Each chain builds the strategy's context, fills the prompt of the calibration, and asks
        ``llm``. Without ``documents`` and ``retriever``, they come with each input.

        Args:
            frontier: What was measured, or its path.
            llm: Answers, and writes compressions.
            documents: What every query is asked about.
            retriever: Finds what a query is asked about.
            strategies: Own strategies that were measured.
            scorer: The local model of ECS; None for the bundled one.
            embedder: For dense retrieval; the offline one by default, where it is needed.
            cache_dir: Where compressions are kept; None keeps them for the life of the process.
            prompt: With {context} and, behind it, {question}.
            fallback: A chain, or the name of one of those made here.
            same_model: Refuse an ``llm`` with another name than the one measured.
            fields: Any other field of the router.

        Raises:
            StorageError: There is no such artefact, or it cannot be read.
            InvalidInputError: It is not valid.
            ConfigurationError: A strategy or a field is unknown, or something else does not go
                together.
        """
        source = check_frontier(frontier)
        counter = fields.get("count_tokens")
        builder = ContextBuilder(llm, [*strategies], scorer, embedder, cache_dir, counter)
        frontier = open_frontier(source)
        reply = _answer_template(prompt) | llm
        chains: dict[str, Chain] = {}
        for point in builder.points(frontier, prompt=prompt, same_model=same_model):
            chains[point.label] = StrategyChain(point, builder, reply)
        return cls(
            frontier=source,
            chains=chains,
            documents=None if documents is None else list(documents),
            retriever=retriever,
            fallback=named_fallback(fallback, chains),
            **fields,
        )

    def decide(
        self,
        input: Any,
        config: RunnableConfig | None = None,
    ) -> RoutingDecision:
        """Return the choice for an input, without running or counting it.

        The decision explains itself: intervals, ties, and why not another one.

        Raises:
            EcsPluginsError: As `invoke`.
        """
        given = config or {}
        documents = self._documents(input, given)
        return self._routed(input, given, documents, count=False).decision

    @override
    def invoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the answer of the chain that is right for the query, and book its cost.

        Raises:
            InvalidInputError: A setting is out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
            ConfigurationError: No objective is given.
            StorageError: The artefact or the ledger cannot be read.
        """
        return self._call_with_config(self._invoke, input, config, **kwargs)

    @override
    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Do as `invoke`, off the event loop."""
        return await self._acall_with_config(self._ainvoke, input, config, **kwargs)

    @override
    def stream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield the answer in chunks; the last one of messages has decision and cost."""
        yield from self._transform_stream_with_config(iter([input]), self._stream, config, **kwargs)

    @override
    async def astream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Do as `stream`, off the event loop."""

        async def inputs() -> AsyncIterator[Any]:
            yield input

        chunks = self._atransform_stream_with_config(inputs(), self._astream, config, **kwargs)
        # LangChain leaves it open when the stream is closed early.
        async with aclosing(cast("AsyncGenerator[Any]", chunks)):
            async for chunk in chunks:
                yield chunk

    def _invoke(
        self,
        input: Any,
        run_manager: SyncManager,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Any:
        with _RoutedRun(self, input, run_manager, config, kwargs) as run:
            output = run.chain.invoke(run.input, run.config)
        return _with_report(output, run.report)

    async def _ainvoke(
        self,
        input: Any,
        run_manager: AsyncManager,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Any:
        async with _RoutedRun(self, input, run_manager, config, kwargs) as run:
            output = await run.chain.ainvoke(run.input, run.config)
        return _with_report(output, run.report)

    def _stream(
        self,
        inputs: Iterator[Any],
        run_manager: SyncManager,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Iterator[Any]:
        chunk = None
        with ExitStack() as open_:
            run = open_.enter_context(_RoutedRun(self, next(inputs), run_manager, config, kwargs))
            chunks = cast("Generator[Any]", run.chain.stream(run.input, run.config))
            for chunk in open_.enter_context(closing(chunks)):
                yield chunk
        yield from _last_chunk(chunk, run.report)

    async def _astream(
        self,
        inputs: AsyncIterator[Any],
        run_manager: AsyncManager,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        chunk = None
        async with _RoutedRun(self, await anext(inputs), run_manager, config, kwargs) as run:
            stream = cast("AsyncGenerator[Any]", run.chain.astream(run.input, run.config))
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    yield chunk
        for last in _last_chunk(chunk, run.report):
            yield last

    def _documents(self, input: Any, config: RunnableConfig) -> Any:
        given = self._given(input)
        if given is None and self.retriever is not None:
            return self.retriever.invoke(question_of(input), config)
        return given

    def _given(self, input: Any) -> Any:
        given = input.get("documents") if isinstance(input, Mapping) else None
        return self.documents if given is None else given

    def _routed(
        self,
        input: Any,
        config: RunnableConfig,
        documents: Sequence[Document] | None,
        *,
        count: bool = True,
    ) -> RoutedQuery:
        given = input if isinstance(input, Mapping) else {}
        asked = settings_of(given, config.get("configurable", {}), self._defaults)
        context = as_context(documents) if documents else None
        if "context_id" not in asked and self.ledger is not None and context is not None:
            asked["context_id"] = context.id
        tenant = namespace_of(config)
        context_id = asked.get("context_id", "")

        def holds(chain: Chain) -> bool | None:
            return is_prepared(chain, list(documents or ()), context_id, tenant)

        query = self._decided(asked, tenant, self.chains, holds, count=count)
        if context is not None:
            query.whole = f"{context.text}\n\n{question_of(input)}"
        return query


@dataclass
class _RoutedRun:
    """Run of one query: routed when it is entered, settled when it is left."""

    router: FrontierRouter
    input: Any
    manager: SyncManager | AsyncManager
    config: RunnableConfig
    keywords: Mapping[str, Any]
    report: dict[str, object] = field(default_factory=dict)
    query: RoutedQuery = field(init=False)
    counter: CallbackCounter = field(init=False)
    chain: Runnable[Any, Any] = field(init=False)

    def __enter__(self) -> Self:
        return self._route(self.router._documents(self.input, self.config))

    async def __aenter__(self) -> Self:
        router = self.router
        documents = router._given(self.input)
        if documents is None and router.retriever is not None:
            documents = await router.retriever.ainvoke(question_of(self.input), self.config)
        return await run_sync(self._route, documents)

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        trace: object,
    ) -> None:
        self.query.error = error or self.query.error
        self.counter.close()
        self.report = self.query.settle()
        dispatch_custom_event(SETTLEMENT_EVENT, self.report, config=self.config)

    async def __aexit__(self, *raised: Any) -> None:
        await run_sync(self.__exit__, *raised)

    def _route(self, documents: Sequence[Document] | None) -> Self:
        # Another attempt of `with_retry` is the same query.
        again = any(tag.startswith("retry:attempt:") for tag in self.manager.tags)
        if documents is not None:
            documents = list(check_several("documents", documents))
        self.query = self.router._routed(self.input, self.config, documents, count=not again)
        if documents is not None:
            rest = self.input if isinstance(self.input, Mapping) else {}
            self.input = {**rest, "question": question_of(self.input), "documents": documents}
        summary = self.query.decision.summary()
        dispatch_custom_event(DECISION_EVENT, summary, config=self.config)
        self.counter = CallbackCounter(self.query)
        chain = self._chosen()
        self.chain = chain.with_config(metadata={METADATA_KEY: summary}, callbacks=[self.counter])
        if self.query.context_id is not None:  # the preparing step reads it
            configurable = self.config.get("configurable", {})
            named = {**configurable, "context_id": self.query.context_id}
            self.config = {**self.config, "configurable": named}
        return self

    def _chosen(self) -> Runnable[Any, Any]:
        """Return the chosen chain, with a fallback that works until the first streamed part."""
        router = self.router
        decision = self.query.decision
        chosen = router.chains[chosen_name(decision, router.chains)]
        own = chosen.count_tokens if isinstance(chosen, RoutedChain) else None
        self.query.count_tokens = router.count_tokens or own
        tags = [f"strategy:{decision.label}"]
        chain = as_runnable(chosen, **self.keywords).with_config(tags=tags)
        if router.fallback is None:
            return chain
        input = self.input

        def failed(given: dict[str, Any]) -> Any:
            self.query.fail(given["error"], router.fallback, router.chains)
            return input

        fallback = as_runnable(router.fallback, **self.keywords).with_config(tags=["fallback"])
        self.input = {"input": input}
        first: Runnable[Any, Any] = RunnableLambda(itemgetter("input")) | chain
        return first.with_fallbacks([RunnableLambda(failed) | fallback], exception_key="error")


def _with_report(output: Any, report: Mapping[str, object]) -> Any:
    if not isinstance(output, BaseMessage):
        return output
    metadata = {**output.response_metadata, METADATA_KEY: dict(report)}
    return output.model_copy(update={"response_metadata": metadata})


def _last_chunk(chunk: Any, report: Mapping[str, object]) -> Iterator[AIMessageChunk]:
    """Yield a chunk with the numbers after a stream of messages."""
    if isinstance(chunk, AIMessageChunk):
        yield _with_report(AIMessageChunk(content="", id=chunk.id), report)


def _answer_template(template: str) -> PromptTemplate:
    """Return the prompt of the calibration; braces around anything else are plain text."""
    text = template.replace("{", "{{").replace("}", "}}")
    for place in ("{context}", "{question}"):
        text = text.replace(f"{{{place}}}", place)
    return PromptTemplate.from_template(text)
