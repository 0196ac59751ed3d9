"""The Efficiency Frontier in LlamaIndex: a selector for its routers, and an engine that settles.

A translation only: `ecs_plugins.frontier` decides, prepares, builds and settles. No language model
is asked to choose. N travels with the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    StreamingResponse,
)
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptDictType, PromptMixinType
from llama_index.core.schema import BaseNode, QueryBundle
from llama_index.core.tools import ToolMetadata
from typing_extensions import override

from ecs_plugins.common.aio import bridged, run_sync
from ecs_plugins.common.checks import check_each, check_kind
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import ANSWER_PROMPT, TokenCounter
from ecs_plugins.frontier.building import ContextBuilder
from ecs_plugins.frontier.cost import amount
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
from ecs_plugins.llama_index.chains import (
    ChainEngine,
    PreparedEngine,
    RoutedChain,
    StrategyEngine,
    as_context,
    as_engine,
    namespace_of,
)
from ecs_plugins.llama_index.counting import CountedStream, counted

_dispatcher = get_dispatcher(__name__)


class _FrontierEvent(BaseEvent):
    @classmethod
    @override
    def class_name(cls) -> str:
        """Return its name in LlamaIndex."""
        return cls.__name__


class FrontierDecisionEvent(_FrontierEvent):
    """The decision for a query, with its numbers, before its engine runs."""

    decision: dict[str, Any]


class FrontierSettlementEvent(_FrontierEvent):
    """The decision and, under ``settlement``, the cost of the query next to its forecast."""

    report: dict[str, Any]


@dataclass
class FrontierQuery(QueryBundle):
    """A query with its context, its tenant and its objective.

    It goes wherever a `QueryBundle` goes, so it reaches the selector through LlamaIndex's own
    routers. Besides the fields of a `QueryBundle` it has ``reuse`` (N), ``context_id``, at most
    one of ``target_f1``, ``budget`` and ``weight``, and ``namespace``: the tenant, whose counts
    and preparations no other tenant sees.
    """

    reuse: float | None = None
    context_id: str | None = None
    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None
    namespace: tuple[str, ...] = ()


class FrontierSelector(RoutingFields, BaseSelector):
    """Selects the tool of the strategy that is right for the query's reuse and target.

    ```python
    engine = RouterQueryEngine(
        selector=FrontierSelector("frontier.json", target_f1=0.7),
        query_engine_tools=[
            QueryEngineTool.from_defaults(full, name="full_context"),
            QueryEngineTool.from_defaults(top_5, name="bm25(depth=5)"),
        ],
        llm=MockLLM(),  # LlamaIndex asks for one; none is used to select
    )
    engine.query(FrontierQuery("Who built the mill?", reuse=40))
    ```

    A tool is named like a point (``"bm25(depth=5)"``) or like a strategy, for all its
    configurations. The reason of the selection holds the numbers. A selector does not see the
    cost of a query: `FrontierQueryEngine` settles too.

    The fields are those of `RoutingFields`.

    Raises:
        StorageError: There is no such artefact.
        ConfigurationError: A field is unknown or cannot be used.
        UnreachableTargetError: No query can reach the objective.
    """

    def __init__(
        self,
        frontier: EfficiencyFrontier | str,
        **fields: Any,
    ) -> None:
        super().__init__(frontier=frontier, **fields)
        self.choices()

    def routed(
        self,
        query: QueryBundle | str,
        engines: Mapping[str, object],
        *,
        context_id: str | None = None,
        count: bool = True,
    ) -> RoutedQuery:
        """Return a query with its decision among engines.

        ``context_id`` names the context of queries that bring none.
        """
        asked: object = query if isinstance(query, FrontierQuery) else {}
        settings = settings_of(asked, self._defaults, {"context_id": context_id})
        tenant = namespace_of(query)
        context = settings.get("context_id", "")

        def holds(engine: object) -> bool | None:
            return engine.holds(context, tenant) if isinstance(engine, PreparedEngine) else None

        return self._decided(settings, tenant, engines, holds, count=count)

    def decide(self, query: QueryBundle | str) -> RoutingDecision:
        """Return the decision for a query, without counting it.

        Raises:
            InvalidInputError: A setting is out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
            ConfigurationError: No objective is given.
            StorageError: The artefact cannot be read.
        """
        return self.routed(query, {}, count=False).decision

    @override
    def _select(
        self,
        choices: Sequence[ToolMetadata],
        query: QueryBundle,
    ) -> SelectorResult:
        names = [choice.get_name() for choice in choices]
        return _selection(self.routed(query, dict.fromkeys(names)).decision, names)

    _aselect = bridged(_select, asks_model=True)

    @override
    def _get_prompts(self) -> PromptDictType:
        return {}

    @override
    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """Do nothing: there are none."""


def _selection(decision: RoutingDecision, names: Sequence[str]) -> SelectorResult:
    index = list(names).index(chosen_name(decision, names))
    cost = f"{amount(decision.effective, decision.unit)} per query at N = {decision.reuse:g}"
    known = f"measured F1 {decision.f1:.3f}, {cost} ({decision.split})"
    reason = f"{decision.label}: {decision.asked}; {known}"
    reason += f". {decision.note}" if decision.note else ""
    return SelectorResult(selections=[SingleSelection(index=index, reason=reason)])


class FrontierQueryEngine(BaseQueryEngine):
    """Answers each query with the engine of the strategy that is right for it.

    ```python
    engine = FrontierQueryEngine.from_frontier(
        "frontier.json", llm=llm, nodes=nodes, target_f1=0.7, ledger="reuse.db", cache_dir="notes"
    )
    engine.query("Who built the mill?")                             # N from the ledger
    engine.query(FrontierQuery("Who built the mill?", reuse=40))    # N from the caller
    ```

    ``response.metadata["frontier"]`` holds the decision and, under ``settlement``, its cost
    next to the forecast. A stream is settled when it ends, and its cost appears then.

    Args:
        selector: Decides.
        engines: Label (``"bm25(depth=4)"``) or strategy (``"bm25"``) -> engine; or a list of
            `RoutedChain`.
        context_id: Names the context where neither query nor selector does.
        fallback: Answers when an engine fails.
        count_tokens: Tokens of each text, for models that do not report them.

    Raises:
        ConfigurationError: No engine, or the engines are not those of the frontier.
    """

    def __init__(
        self,
        selector: FrontierSelector,
        engines: Mapping[str, BaseQueryEngine | RoutedChain] | Sequence[RoutedChain],
        *,
        context_id: str | None = None,
        fallback: BaseQueryEngine | RoutedChain | None = None,
        count_tokens: TokenCounter | None = None,
    ) -> None:
        check_kind("selector", selector, FrontierSelector)
        named = cast("dict[str, BaseQueryEngine | RoutedChain]", by_label(engines))
        if not named:
            raise ConfigurationError("engines is empty; give at least one strategy's engine")
        check_each("the names of engines", named, str)
        self.engines: dict[str, BaseQueryEngine] = {}
        for name, engine in named.items():
            self.engines[name] = as_engine(engine)
            if engine is fallback:
                fallback = self.engines[name]
        selector.choices(named)
        self.selector = selector
        self.context_id = context_id
        self.fallback: BaseQueryEngine | None = as_engine(fallback)
        self.count_tokens = count_tokens
        super().__init__(None)

    @classmethod
    def from_frontier(
        cls,
        frontier: EfficiencyFrontier | str,
        *,
        llm: LLM,
        nodes: Sequence[BaseNode] | None = None,
        retriever: BaseRetriever | None = None,
        strategies: Iterable[Strategy] = (),
        scorer: Any = None,
        embedder: Any = None,
        cache_dir: str | None = None,
        prompt: str = ANSWER_PROMPT,
        fallback: str | BaseQueryEngine | None = None,
        count_tokens: TokenCounter | None = None,
        same_model: bool = True,
        **settings: Any,
    ) -> FrontierQueryEngine:
        """Return an engine for every point that the frontier can choose.

        Args:
            frontier: What was measured, or its path.
            llm: Answers, and writes compressions.
            nodes: What every query is asked about; LlamaIndex Documents are nodes.
            retriever: Finds what a query is asked about, in place of ``nodes``.
            strategies: Own strategies that were measured.
            scorer: The local model of ECS; None for the bundled one.
            embedder: For dense retrieval; the offline one by default, where it is needed.
            cache_dir: Where compressions are kept; None keeps them for the life of the process.
            prompt: With {context} and, behind it, {question}.
            fallback: An engine, or the name of one of those made here.
            count_tokens: Tokens of each text, for models that do not report what they used.
            same_model: Refuse an ``llm`` with another name than the one measured.
            settings: Those of `FrontierSelector`.

        Raises:
            StorageError: There is no such artefact, or it cannot be read.
            InvalidInputError: It is not valid.
            ConfigurationError: A strategy is unknown, or something else does not go together.
        """
        source = check_frontier(frontier)
        if (nodes is None) == (retriever is None):
            raise ConfigurationError("give either nodes or a retriever")
        builder = ContextBuilder(llm, [*strategies], scorer, embedder, cache_dir, count_tokens)
        context = as_context(nodes) if nodes is not None else None
        engines: dict[str, BaseQueryEngine] = {}
        for point in builder.points(open_frontier(source), prompt=prompt, same_model=same_model):
            engine = StrategyEngine(point, builder, llm, context, retriever, prompt)
            engines[point.label] = engine
        return cls(
            FrontierSelector(source, **settings),
            engines,
            context_id=None if context is None else context.id,
            fallback=named_fallback(fallback, engines),
            count_tokens=count_tokens,
        )

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        query, engine, bundle = self._start(query_bundle)
        with counted(query):
            try:
                try:
                    response = engine.query(bundle)
                except Exception as error:
                    response = self._fallback(query, error).query(bundle)
            except BaseException as error:
                query.error = error
                self._settled(query)
                raise
            self._finish(query, response)
        return response

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        query, engine, bundle = await run_sync(self._start, query_bundle)
        with counted(query):
            try:
                try:
                    response = await engine.aquery(bundle)
                except Exception as error:
                    response = await self._fallback(query, error).aquery(bundle)
            except BaseException as error:
                query.error = error
                await run_sync(self._settled, query)
                raise
            if _stream_of(response) is None:
                await run_sync(self._finish, query, response)
            else:
                self._finish(query, response)
        return response

    def _start(self, bundle: QueryBundle) -> tuple[RoutedQuery, BaseQueryEngine, FrontierQuery]:
        """Return a routed query, the engine of its choice, and the bundle that the engine gets."""
        query = self.selector.routed(bundle, self.engines, context_id=self.context_id)
        query.count_tokens = self.count_tokens
        _dispatcher.event(FrontierDecisionEvent(decision=query.decision.summary()))
        engine = self.engines[chosen_name(query.decision, self.engines)]
        if isinstance(engine, ChainEngine):
            query.count_tokens = self.count_tokens or engine.chain.count_tokens
        context = engine.context if isinstance(engine, PreparedEngine) else None
        if context is not None:
            query.whole = f"{context.text}\n\n{bundle.query_str}"
        asked = FrontierQuery(
            bundle.query_str,
            image_path=bundle.image_path,
            custom_embedding_strs=bundle.custom_embedding_strs,
            embedding=bundle.embedding,
            context_id=query.context_id,
            namespace=query.namespace,
        )
        return query, engine, asked

    def _fallback(
        self,
        query: RoutedQuery,
        error: Exception,
    ) -> BaseQueryEngine:
        if self.fallback is None:
            raise error
        query.fail(error, self.fallback, self.engines)
        return self.fallback

    def _finish(
        self,
        query: RoutedQuery,
        response: RESPONSE_TYPE,
    ) -> None:
        """Settle a response, or a stream at its end, and put the numbers into its metadata."""
        stream = _stream_of(response)
        metadata = dict(response.metadata or {})
        response.metadata = metadata
        if stream is None:
            metadata[METADATA_KEY] = self._settled(query)
            return
        metadata[METADATA_KEY] = query.decision.summary()
        counted_stream: Any = CountedStream(
            stream, query, lambda: metadata.update({METADATA_KEY: self._settled(query)})
        )
        cast("Any", response).response_gen = counted_stream

    def _settled(self, query: RoutedQuery) -> dict[str, object]:
        """Book a query, and return its numbers."""
        report = query.settle()
        _dispatcher.event(FrontierSettlementEvent(report=report))
        return report

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return cast("PromptMixinType", dict(self.engines))


def _stream_of(response: RESPONSE_TYPE) -> Any:
    """Return the stream of a response that has not been read; None of any other."""
    if isinstance(response, StreamingResponse | AsyncStreamingResponse):
        return response.response_gen if response.response_txt is None else None
    return None
