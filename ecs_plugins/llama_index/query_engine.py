"""The Efficiency Frontier as a LlamaIndex query engine: route, run, settle; N travels per query.

A translation only: `ecs_plugins.frontier` decides, prepares, builds and settles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import BaseNode, QueryBundle
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import (
    ANSWER_PROMPT,
    as_answer_model,
    check_template,
)
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.points import config_json
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.routing import (
    METADATA_KEY,
    check_frontier,
    check_names,
    chosen_name,
    open_frontier,
)
from ecs_plugins.integrations.running import (
    Books,
    PreparedContexts,
    TokenCounter,
    check_strategy,
    refuse_forgetting,
    settle,
)
from ecs_plugins.llama_index._books import open_books
from ecs_plugins.llama_index.selector import FrontierSelector, selection
from ecs_plugins.llama_index.strategy_engine import StrategyQueryEngine, as_context
from ecs_plugins.ranking.embedder import as_embedder

_dispatcher = get_dispatcher(__name__)


class FrontierDecisionEvent(BaseEvent):
    """What was chosen for a query, before its engine runs.

    Attributes:
        decision: The numbers behind it.
    """

    decision: dict[str, Any]

    @classmethod
    @override
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return "FrontierDecisionEvent"


class FrontierSettlementEvent(BaseEvent):
    """What a query cost beside what was expected.

    Attributes:
        report: The decision, and under ``settlement`` the cost.
    """

    report: dict[str, Any]

    @classmethod
    @override
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return "FrontierSettlementEvent"


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
        engines: Label (``"bm25(depth=4)"``) or strategy (``"bm25"``) -> engine.
        context_id: What queries are about, where neither query nor selector says.
        fallback: Answers when an engine fails.
        count_tokens: Tokens of each text, for models that do not report what they used.
        callback_manager: Of LlamaIndex.

    Raises:
        ConfigurationError: No engine, or one for a strategy that was not measured.
    """

    def __init__(
        self,
        selector: FrontierSelector,
        engines: Mapping[str, BaseQueryEngine],
        *,
        context_id: str | None = None,
        fallback: BaseQueryEngine | None = None,
        count_tokens: TokenCounter | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if not engines:
            raise ConfigurationError("engines is empty; give at least one strategy's engine")
        check_names(engines, open_frontier(selector.frontier))
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
        compressor: LLM | None = None,
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
            llm: Answers.
            nodes: What every query is asked about; LlamaIndex Documents are nodes.
            retriever: Finds what a query is asked about, in place of ``nodes``.
            strategies: Own strategies that were measured.
            compressor: Writes compressions; ``llm`` by default.
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
        measured = open_frontier(source)
        if (nodes is None) == (retriever is None):
            raise ConfigurationError("give either nodes or a retriever")
        if same_model and measured.provenance.models.get("answer"):
            measured.provenance.require(answer_model=as_answer_model(llm).name)
        refuse_forgetting(measured, settings.get("ledger"), cache_dir)
        check_template(prompt)
        own = {(s.name, config_json(s.config)): s for s in strategies}
        if embedder is None and any(p.strategy == "dense" for p in measured.routable):
            from ecs_plugins.ranking.embedder import default_embedder

            embedder = default_embedder()
        context = None if nodes is None else as_context(nodes)
        prepared = PreparedContexts()
        engines: dict[str, BaseQueryEngine] = {}
        for point in measured.routable:
            if point.key not in own:
                check_strategy(point)
            engines[point.label] = StrategyQueryEngine(
                point,
                llm=llm,
                context=context,
                retriever=retriever,
                custom=own.get(point.key),
                compressor=compressor or llm,
                scorer=scorer,
                embedder=None if embedder is None else as_embedder(embedder),
                cache_dir=cache_dir,
                prompt=prompt,
                count_tokens=count_tokens,
                prepared=prepared,
            )
        if isinstance(fallback, str):
            if fallback not in engines:
                raise ConfigurationError(
                    f"the fallback {fallback!r} is none of {', '.join(engines)}"
                )
            fallback = engines[fallback]
        return cls(
            FrontierSelector(source, **settings),
            engines,
            context_id=None if context is None else context.id,
            fallback=fallback,
            count_tokens=count_tokens,
        )

    @override
    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        router, decision, context_id = self._plan(query_bundle)
        engine = self.engines[chosen_name(decision, self.engines)]
        books, failed = Books(self.count_tokens), None
        try:
            with open_books(books):
                response = engine.query(query_bundle)
        except Exception as error:
            failed = error
            if self.fallback is None:
                self._settle(router, decision, books, context_id, failed)
                raise
            with open_books(books):
                response = self.fallback.query(query_bundle)
        report = self._settle(router, decision, books, context_id, failed)
        return self._with_report(response, decision, report)

    @override
    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        router, decision, context_id = await run_sync(self._plan, query_bundle)
        engine = self.engines[chosen_name(decision, self.engines)]
        books, failed = Books(self.count_tokens), None
        try:
            with open_books(books):
                response = await engine.aquery(query_bundle)
        except Exception as error:
            failed = error
            if self.fallback is None:
                await run_sync(self._settle, router, decision, books, context_id, failed)
                raise
            with open_books(books):
                response = await self.fallback.aquery(query_bundle)
        report = await run_sync(self._settle, router, decision, books, context_id, failed)
        return self._with_report(response, decision, report)

    def _plan(self, query: QueryBundle) -> tuple[Router, RoutingDecision, str | None]:
        router, decision, asked = self.selector.plan(query, context_id=self.context_id)
        _dispatcher.event(FrontierDecisionEvent(decision=decision.summary()))
        return router, decision, asked.context_id

    def _settle(
        self,
        router: Router,
        decision: RoutingDecision,
        books: Books,
        context_id: str | None,
        error: Exception | None,
    ) -> dict[str, object]:
        cost = settle(router, decision, books, context_id=context_id, error=error)
        report = {**decision.summary(), "settlement": cost}
        _dispatcher.event(FrontierSettlementEvent(report=report))
        return report

    def _with_report(
        self, response: RESPONSE_TYPE, decision: RoutingDecision, report: dict[str, object]
    ) -> RESPONSE_TYPE:
        result = selection(decision, list(self.engines))
        response.metadata = {
            **(response.metadata or {}),
            METADATA_KEY: report,
            "selector_result": result,
        }
        return response

    @override
    def _get_prompt_modules(self) -> PromptMixinType:
        return cast("PromptMixinType", dict(self.engines))
