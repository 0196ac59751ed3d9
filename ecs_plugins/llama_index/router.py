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
from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
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
from ecs_plugins.common.config import strict_keywords
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import ANSWER_PROMPT, TokenCounter, answer_prompt
from ecs_plugins.frontier.building import ContextBuilder
from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.decision import RoutingDecision, amount
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.reloading import check_frontier, check_names, chosen_name, open_frontier
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.routed_query import RoutedQuery
from ecs_plugins.integrations.routing import (
    METADATA_KEY,
    RoutingFields,
    named_fallback,
    settings_of,
)
from ecs_plugins.integrations.shadowing import SecondAnswer, learn
from ecs_plugins.llama_index.chains import RoutedEngine
from ecs_plugins.llama_index.counting import as_context, counted, current_query

_dispatcher = get_dispatcher(__name__)


class _FrontierEvent(BaseEvent):
    @classmethod
    @override
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return cls.__name__


class FrontierDecisionEvent(_FrontierEvent):
    """What was chosen for a query, with the numbers behind it, before its engine runs."""

    decision: dict[str, Any]


class FrontierSettlementEvent(_FrontierEvent):
    """The decision and, under ``settlement``, what the query cost beside what was expected."""

    report: dict[str, Any]


@dataclass
class FrontierQuery(QueryBundle):
    """A query that says how often its context is asked and what is wanted of the answer.

    It goes wherever a `QueryBundle` goes, so it reaches the selector through LlamaIndex's own
    routers. Besides the fields of a `QueryBundle` it has ``reuse`` (N), ``context_id``, and at
    most one of ``target_f1``, ``budget`` and ``weight``, as `FrontierSelector` has them.
    """

    reuse: float | None = None
    context_id: str | None = None
    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None


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
    configurations. The reason of the selection holds the numbers. A selector does not see what
    a query costs: `FrontierQueryEngine` settles too.

    The fields are those of `RoutingFields`.

    Raises:
        StorageError: There is no such artefact.
        ConfigurationError: The frontier or the policy is none, a number is none, two objectives are
            given, or a field is unknown.
    """

    def __init__(self, frontier: EfficiencyFrontier | str, **fields: Any) -> None:
        super().__init__(frontier=frontier, **fields)

    def route(
        self,
        query: QueryBundle | str,
        *,
        context_id: str | None = None,
        count_tokens: TokenCounter | None = None,
        count: bool = True,
        names: Iterable[str] = (),
    ) -> RoutedQuery:
        """Decide; ``context_id`` is what it is about where neither query nor selector says."""
        asked: object = query if isinstance(query, FrontierQuery) else {}
        settings = settings_of(asked, self, {"context_id": context_id})
        return self._decided(settings, count_tokens=count_tokens, count=count, names=names)

    def decide(self, query: QueryBundle | str) -> RoutingDecision:
        """What would be chosen, without counting the query.

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
        """There are none."""


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
    beside the forecast; ``selector_result`` what `RouterQueryEngine` would have put there. A
    streaming response is settled with what was known when it was returned.

    Args:
        selector: Decides.
        engines: Label (``"bm25(depth=4)"``) or strategy (``"bm25"``) -> engine; or a list of
            `RoutedEngine`.
        context_id: What queries are about, where neither query nor selector says.
        fallback: Answers when an engine fails.
        count_tokens: Tokens of each text, for models that do not report what they used.
        callback_manager: Of LlamaIndex.

    Raises:
        ConfigurationError: No engine, or one for a strategy that was not measured.
    """

    @strict_keywords
    def __init__(
        self,
        selector: FrontierSelector,
        engines: Mapping[str, BaseQueryEngine] | Sequence[RoutedEngine],
        *,
        context_id: str | None = None,
        fallback: BaseQueryEngine | None = None,
        count_tokens: TokenCounter | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_kind("selector", selector, FrontierSelector)
        if not isinstance(engines, Mapping):
            routed = check_each("engines", engines, RoutedEngine)
            engines = {engine.label: engine for engine in routed}
        if not engines:
            raise ConfigurationError("engines is empty; give at least one strategy's engine")
        check_each("the names of engines", engines, str)
        for engine in engines.values():
            if isinstance(engine, RoutedEngine):
                engine.check_lasting(lasting=isinstance(selector.ledger, str))
        check_names(engines, open_frontier(selector.frontier, engines))
        self.selector = selector
        self.engines = dict(engines)
        self.context_id = context_id
        self.fallback = fallback
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
        """An engine for every point that the frontier can choose.

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
            lasting=isinstance(settings.get("ledger"), str),
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
        query, engine = self._start(query_bundle)
        with counted(query):
            try:
                response = engine.query(query_bundle)
            except BaseException as error:
                response = self._fallback(query, error).query(query_bundle)
            finally:
                report = self._settle(query)
        self._shadow(query, query_bundle, response)
        response.metadata = {**(response.metadata or {}), **report}
        return response

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        query, engine = await run_sync(self._start, query_bundle)
        with counted(query):
            try:
                response = await engine.aquery(query_bundle)
            except BaseException as error:
                response = await self._fallback(query, error).aquery(query_bundle)
            finally:
                report = await run_sync(self._settle, query)
        self._shadow(query, query_bundle, response)
        response.metadata = {**(response.metadata or {}), **report}
        return response

    def _fallback(self, query: RoutedQuery, error: BaseException) -> BaseQueryEngine:
        query.error = error
        if self.fallback is None or not isinstance(error, Exception):
            raise error
        return self.fallback

    def _shadow(self, query: RoutedQuery, bundle: QueryBundle, response: RESPONSE_TYPE) -> None:
        """Judge the answer, and answer again by what was not chosen, if that is to be."""

        def ask(name: str, again: RoutedQuery) -> str:
            with counted(again):
                return str(self._runs(name, again).query(bundle))

        def second() -> SecondAnswer:
            return SecondAnswer(
                query=query,
                question=bundle.query_str,
                answer=str(response) if isinstance(response, Response) else "",
                names=self.engines,
                ask=ask,
                support=self.selector.support_judge,
            )

        learn(self.selector.shadow, self.selector.support_judge, second)

    def _start(self, bundle: QueryBundle) -> tuple[RoutedQuery, BaseQueryEngine]:
        query = self.selector.route(
            bundle, context_id=self.context_id, count_tokens=self.count_tokens, names=self.engines
        )
        _dispatcher.event(FrontierDecisionEvent(decision=query.decision.summary()))
        return query, self._runs(chosen_name(query.decision, self.engines), query)

    def _runs(self, name: str, query: RoutedQuery) -> BaseQueryEngine:
        """What answers a query, whose tokens an engine may count by itself."""
        engine = self.engines[name]
        if isinstance(engine, RoutedEngine):
            query.count_tokens = self.count_tokens or engine.count_tokens
        return engine

    def _settle(self, query: RoutedQuery) -> dict[str, object]:
        report = query.settle()
        _dispatcher.event(FrontierSettlementEvent(report=report))
        selected = _selection(query.decision, list(self.engines))
        return {METADATA_KEY: report, "selector_result": selected}

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return cast("PromptMixinType", dict(self.engines))


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
        context, prompt = self._build(found, query_bundle.query_str)
        return self._response(context, self.llm.complete(prompt).text)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        source = self.source
        found = await source.aretrieve(query_bundle) if isinstance(source, BaseRetriever) else ()
        context, prompt = await run_sync(self._build, found, query_bundle.query_str)
        return self._response(context, (await self.llm.acomplete(prompt)).text)

    def _build(self, found: Sequence[NodeWithScore], question: str) -> tuple[str, str]:
        """The context of a question, and the prompt with both."""
        context = self.source
        if isinstance(context, BaseRetriever):
            context = as_context([node.node for node in found])
        paid = self.builder.build(self.point.strategy, self.point.config, context, question)
        if (query := current_query()) is not None:
            query.add_context(self.point.key, paid.ledger, paid.seconds)
        return paid.text, answer_prompt(paid.text, question, self.prompt)

    def _response(self, context: str, text: str) -> Response:
        # What was read is one text: its pieces may be parts of several nodes.
        node = TextNode(text=context, metadata={"strategy": self.point.label})
        return Response(text, source_nodes=[NodeWithScore(node=node)])

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return {}
