"""The Efficiency Frontier in LlamaIndex: a selector for its routers, and an engine that settles.

A translation only: `ecs_plugins.frontier` decides, prepares, builds and settles. No language model
is asked to choose. N travels with the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptDictType, PromptMixinType
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import ToolMetadata
from typing_extensions import override

from ecs_plugins.common.aio import bridged, run_sync
from ecs_plugins.common.checks import check_each, check_kind
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import ANSWER_PROMPT, TokenCounter, answer_prompt
from ecs_plugins.frontier.building import ContextBuilder
from ecs_plugins.frontier.cost import PointKey, StrategyPoint
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.decision import RoutingDecision, amount
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.reloading import check_frontier, chosen_name, open_frontier
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.routed_query import RoutedQuery
from ecs_plugins.integrations.router_fields import (
    METADATA_KEY,
    RoutingFields,
    key_of_fallback,
    named_fallback,
    settings_of,
)
from ecs_plugins.llama_index.chains import ChainEngine, RoutedChain, as_engine, namespace_of
from ecs_plugins.llama_index.counting import CountedStream, as_context, counted, current_query

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

    def __init__(self, frontier: EfficiencyFrontier | str, **fields: Any) -> None:
        super().__init__(frontier=frontier, **fields)
        self.choices()

    def route(
        self,
        query: QueryBundle | str,
        *,
        context_id: str | None = None,
        count_tokens: TokenCounter | None = None,
        count: bool = True,
        names: Iterable[str] = (),
        stored: Callable[[str, tuple[str, ...]], Mapping[PointKey, bool]] | None = None,
    ) -> RoutedQuery:
        """Decide; ``context_id`` names the context where neither query nor selector does.

        ``stored`` looks up preparations by context and tenant.
        """
        asked: object = query if isinstance(query, FrontierQuery) else {}
        settings = settings_of(asked, self._defaults, {"context_id": context_id})
        tenant = namespace_of(query)
        found = None if stored is None else stored(settings.get("context_id", ""), tenant)
        return self._decided(
            settings,
            namespace=tenant,
            stored=found,
            count_tokens=count_tokens,
            count=count,
            names=names,
        )

    def decide(self, query: QueryBundle | str) -> RoutingDecision:
        """Return the decision for a query, without counting it.

        Raises:
            InvalidInputError: A setting is out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
            ConfigurationError: No objective is given.
            StorageError: The artefact cannot be read.
        """
        return self.route(query, count=False).decision

    @override
    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        names = [choice.get_name() for choice in choices]
        return _selection(self.route(query, names=names).decision, names)

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
    next to the forecast; ``selector_result`` the selection, as in a `RouterQueryEngine`. A stream
    is settled when it ends, and both appear in its metadata then.

    Args:
        selector: Decides.
        engines: Label (``"bm25(depth=4)"``) or strategy (``"bm25"``) -> engine; or a list of
            `RoutedChain`.
        context_id: Names the context where neither query nor selector does.
        fallback: Answers when an engine fails.
        count_tokens: Tokens of each text, for models that do not report them.
        callback_manager: Of LlamaIndex.

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
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_kind("selector", selector, FrontierSelector)
        if not isinstance(engines, Mapping):
            routed = check_each("engines", engines, RoutedChain)
            engines = {chain.label: as_engine(chain) for chain in routed}
        if not engines:
            raise ConfigurationError("engines is empty; give at least one strategy's engine")
        check_each("the names of engines", engines, str)
        self.engines: dict[str, Any] = {name: as_engine(given) for name, given in engines.items()}
        selector.choices(engines)
        self.selector = selector
        self.context_id = context_id
        self.fallback: BaseQueryEngine | None = as_engine(fallback)
        self.count_tokens = count_tokens
        super().__init__(callback_manager)

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
        builder = ContextBuilder(
            llm,
            [*strategies],
            scorer=scorer,
            embedder=embedder,
            cache_dir=cache_dir,
            count_tokens=count_tokens,
        )
        points = builder.points(
            open_frontier(source),
            prompt=prompt,
            same_model=same_model,
        )
        asked = as_context(nodes or ()) if retriever is None else retriever
        engines: dict[str, BaseQueryEngine] = {
            point.label: StrategyQueryEngine(point, builder, llm, asked, prompt) for point in points
        }
        return cls(
            FrontierSelector(source, **settings),
            engines,
            context_id=asked.id if isinstance(asked, Context) else None,
            fallback=named_fallback(fallback, engines),
            count_tokens=count_tokens,
        )

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        run = self._start(query_bundle)
        with counted(run.query):
            try:
                response = run.engine.query(run.bundle)
            except BaseException as error:
                try:
                    response = self._fallback(run.query, error).query(run.bundle)
                except BaseException:
                    run.settle()
                    raise
            run.finish(response)
        return response

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        run = await run_sync(self._start, query_bundle)
        with counted(run.query):
            try:
                response = await run.engine.aquery(run.bundle)
            except BaseException as error:
                try:
                    response = await self._fallback(run.query, error).aquery(run.bundle)
                except BaseException:
                    await run_sync(run.settle)
                    raise
            if _stream_of(response) is None:
                await run_sync(run.finish, response)
            else:
                run.finish(response)
        return response

    def _fallback(self, query: RoutedQuery, error: BaseException) -> BaseQueryEngine:
        key = key_of_fallback(self.fallback, self.engines, query.router.frontier)
        query.fail(error, key)
        if self.fallback is None or not isinstance(error, Exception):
            query.fallback = None
            raise error
        return self.fallback

    def _start(self, bundle: QueryBundle) -> _EngineRun:
        query = self.selector.route(
            bundle,
            context_id=self.context_id,
            count_tokens=self.count_tokens,
            names=self.engines,
            stored=self._stored,
        )
        _dispatcher.event(FrontierDecisionEvent(decision=query.decision.summary()))
        engine = self.engines[chosen_name(query.decision, self.engines)]
        if isinstance(engine, ChainEngine):
            query.count_tokens = self.count_tokens or engine.chain.count_tokens
        context = self._whole(engine)
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
        return _EngineRun(query, engine, asked, list(self.engines))

    def _stored(self, context_id: str, namespace: tuple[str, ...]) -> dict[PointKey, bool]:
        """Return the points whose preparations can be looked up, and whether they are there."""
        stored = {}
        for point in self.selector.choices(self.engines).routable:
            engine = self.engines[chosen_name(point, self.engines)]
            if not point.stage1:
                continue
            if isinstance(engine, ChainEngine) and engine.chain.prepare is not None:
                stored[point.key] = engine.holds(context_id, namespace)
            elif isinstance(engine, StrategyQueryEngine) and isinstance(engine.source, Context):
                stored[point.key] = engine.builder.holds(point, engine.source, namespace)
        return stored

    def _whole(self, engine: BaseQueryEngine) -> Context | None:
        """Return the whole context of a query, where its engine knows it beforehand."""
        if isinstance(engine, StrategyQueryEngine) and isinstance(engine.source, Context):
            return engine.source
        if isinstance(engine, ChainEngine) and engine.chain.nodes:
            return as_context(engine.chain.nodes)
        return None

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return cast("PromptMixinType", dict(self.engines))


@dataclass
class _EngineRun:
    """One query on its way through LlamaIndex."""

    query: RoutedQuery
    engine: BaseQueryEngine
    bundle: FrontierQuery
    names: list[str]

    def finish(self, response: RESPONSE_TYPE) -> None:
        """Settle a response, or a stream at its end, and put the numbers into its metadata."""
        stream = _stream_of(response)
        metadata = dict(response.metadata or {})
        response.metadata = metadata
        if stream is None:
            metadata.update(self.settle())
            return
        metadata[METADATA_KEY] = self.query.decision.summary()
        counted_stream: Any = CountedStream(
            stream, self.query, lambda: metadata.update(self.settle())
        )
        cast("Any", response).response_gen = counted_stream

    def settle(self) -> dict[str, object]:
        """Book the query, and return the numbers."""
        report = self.query.settle()
        _dispatcher.event(FrontierSettlementEvent(report=report))
        selected = _selection(self.query.decision, self.names)
        return {METADATA_KEY: report, "selector_result": selected}


def _stream_of(response: RESPONSE_TYPE) -> Any:
    """Return the stream of a response that has not been read; None of any other."""
    if isinstance(response, StreamingResponse | AsyncStreamingResponse):
        return response.response_gen if response.response_txt is None else None
    return None


@dataclass(eq=False)
class StrategyQueryEngine(BaseQueryEngine):
    """Answers from the context that one measured strategy builds; the default engine."""

    point: StrategyPoint
    builder: ContextBuilder
    llm: LLM
    source: Context | BaseRetriever
    prompt: str = ANSWER_PROMPT

    def __post_init__(self) -> None:
        super().__init__(None)

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        source = self.source
        found = source.retrieve(query_bundle) if isinstance(source, BaseRetriever) else ()
        context, prompt = self._build(found, query_bundle)
        return self._response(context, self.llm.complete(prompt).text)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        source = self.source
        found = await source.aretrieve(query_bundle) if isinstance(source, BaseRetriever) else ()
        context, prompt = await run_sync(self._build, found, query_bundle)
        return self._response(context, (await self.llm.acomplete(prompt)).text)

    def _build(self, found: Sequence[NodeWithScore], bundle: QueryBundle) -> tuple[str, str]:
        """Return the context of a question, and the prompt with both."""
        context = self.source
        if isinstance(context, BaseRetriever):
            context = as_context([node.node for node in found])
        point = self.point
        tenant = namespace_of(bundle)
        question = bundle.query_str
        built = self.builder.build(point.strategy, point.config, context, question, tenant)
        query = current_query()
        if query is not None:
            query.add_context(point.key, built.cost)
        if isinstance(query, RoutedQuery):
            query.whole = f"{context.text}\n\n{question}"
        return built.text, answer_prompt(built.text, question, self.prompt)

    def _response(self, context: str, text: str) -> Response:
        # One node, as the pieces of the text may be parts of several nodes.
        node = TextNode(text=context, metadata={"strategy": self.point.label})
        return Response(text, source_nodes=[NodeWithScore(node=node)])

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {}
