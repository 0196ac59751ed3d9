"""The Efficiency Frontier as a LlamaIndex selector, for `RouterQueryEngine` and `RouterRetriever`.

A translation only: `ecs_plugins.frontier` decides. No language model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import ToolMetadata
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.common.config import strict_keywords
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import OnlinePolicy
from ecs_plugins.integrations.routing import (
    RoutedQuery,
    RouteRequest,
    check_frontier,
    chosen_name,
    reason,
    route,
)


@dataclass
class FrontierQuery(QueryBundle):
    """A query that says how often its context is asked and what is wanted of the answer.

    It goes wherever a `QueryBundle` goes, so it reaches the selector through LlamaIndex's own
    routers.

    Attributes:
        reuse: N.
        context_id: What it is asked about.
        target_f1: At most one of this and the next two.
        budget: The best F1 within this cost per query.
        weight: The best efficiency score at this w.
    """

    reuse: float | None = None
    context_id: str | None = None
    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None


class FrontierSelector(BaseSelector):
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

    Args:
        frontier: An `EfficiencyFrontier`, or the path of an artefact, read when first needed.
        target_f1: Choose the cheapest that reaches it.
        budget: Choose the best F1 within this cost per query.
        weight: Choose the best efficiency score.
        reuse: N, where the query does not say.
        context_id: What queries are about, where they do not say.
        ledger: A `ReuseLedger` or the path of one; gives N where nobody says.
        policy: How to decide when N is unknown; None trusts the forecast of the ledger.

    Raises:
        StorageError: There is no such artefact.
        ConfigurationError: The frontier or the policy is none, or a keyword is unknown.
        InvalidInputError: A number is none, or two objectives are given.
    """

    @strict_keywords
    def __init__(
        self,
        frontier: EfficiencyFrontier | str,
        *,
        target_f1: float | None = None,
        budget: float | None = None,
        weight: float | None = None,
        reuse: float | None = None,
        context_id: str | None = None,
        ledger: ReuseLedger | str | None = None,
        policy: OnlinePolicy | None = None,
    ) -> None:
        self.frontier = check_frontier(frontier)
        self.request = RouteRequest(reuse, context_id, target_f1, budget, weight)
        self.ledger = ledger
        self.policy = policy
        if policy not in (None, *get_args(OnlinePolicy)):
            raise ConfigurationError(
                f"policy must be one of {', '.join(get_args(OnlinePolicy))}, got {policy!r}"
            )

    def route(
        self,
        query: QueryBundle | str,
        *,
        context_id: str | None = None,
        count_tokens: TokenCounter | None = None,
        count: bool = True,
    ) -> RoutedQuery:
        """Decide for a query.

        Args:
            query: Perhaps a `FrontierQuery`.
            context_id: What it is about, where neither query nor selector says.
            count_tokens: For models that do not report what they used.
            count: Whether to count it in the ledger; False for a dry run.

        Raises:
            InvalidInputError: A setting is out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
            ConfigurationError: No objective is given.
            StorageError: The artefact or the ledger cannot be read.
        """
        said = isinstance(query, FrontierQuery)
        request = RouteRequest.read(query) if said else RouteRequest()
        return route(
            self.frontier,
            request.over(self.request).over(RouteRequest(context_id=context_id)),
            ledger=self.ledger,
            policy=self.policy,
            count_tokens=count_tokens,
            count=count,
        )

    def decide(self, query: QueryBundle | str) -> RoutingDecision:
        """What would be chosen, without counting the query.

        Raises:
            EcsPluginsError: As `route`.
        """
        return self.route(query, count=False).decision

    @override
    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return selection(self.route(query).decision, [choice.get_name() for choice in choices])

    @override
    async def _aselect(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return await run_sync(self._select, choices, query)

    @override
    def _get_prompts(self) -> PromptDictType:
        return {}

    @override
    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """There are none."""


def selection(decision: RoutingDecision, names: Sequence[str]) -> SelectorResult:
    """A decision as the selection of one of ``names``, with its numbers as reason.

    Raises:
        ConfigurationError: None of them runs it.
    """
    index = list(names).index(chosen_name(decision, names))
    return SelectorResult(selections=[SingleSelection(index=index, reason=reason(decision))])
