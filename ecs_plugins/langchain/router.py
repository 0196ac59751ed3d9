"""The Efficiency Frontier as a LangChain router: a chain per strategy, chosen for every query.

A translation only: `ecs_plugins.frontier` decides and settles. The run follows
`RunnableBranch`: one traced run whose child carries the tag of what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.language_models import LanguageModelLike
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import patch_config
from langchain_core.runnables.utils import ConfigurableFieldSpec, get_unique_config_specs
from pydantic import ConfigDict, Field, PlainValidator
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import ANSWER_PROMPT, as_answer_model
from ecs_plugins.frontier.artefact import from_json, to_json
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.online import OnlinePolicy
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.routing import (
    Ask,
    check_frontier,
    check_names,
    chosen_name,
    open_frontier,
    plan,
)
from ecs_plugins.integrations.running import Books, TokenCounter, refuse_forgetting
from ecs_plugins.langchain._routed import RoutedRunnable
from ecs_plugins.langchain._run import (
    DECISION_EVENT,
    RoutedRun,
    question_of,
    within,
)
from ecs_plugins.langchain.chains import default_chains
from ecs_plugins.langchain.context import as_context


def _check_frontier(value: object) -> EfficiencyFrontier | str:
    # A dict is what `langchain_core.load.dumps` made of an object.
    if isinstance(value, Mapping) and isinstance(value.get("artefact"), str):
        return from_json(value["artefact"], source="the router's frontier")
    return check_frontier(value)


class FrontierRouter(RoutedRunnable):
    """Runs the chain of the strategy that is right for this query's reuse and target.

    ```python
    router = FrontierRouter.from_frontier(
        "frontier.json", llm=llm, documents=documents, target_f1=0.7, ledger="reuse.db",
        cache_dir="notes",
    )
    router.invoke("Who built the mill?")                                    # N from the ledger
    router.invoke("Who built the mill?", {"configurable": {"reuse": 40}})   # N from the caller
    ```

    A query's settings are ``reuse`` (N), ``context_id``, and one of ``target_f1``, ``budget``
    and ``weight``. They are taken from the input where that is a dict, else from
    ``config["configurable"]``, else from the fields here; N at last from the ledger, as this
    query and those expected to follow.

    A chain is given the input as it came; with ``documents`` or ``retriever``,
    ``{"question": ..., "documents": [...]}``. It runs under the tag ``strategy:<label>``, with
    the decision under ``frontier`` in its metadata. The custom events ``frontier_decision`` and
    ``frontier_settlement`` report the decision and what it cost beside what was expected, and a
    message that comes back carries both in ``response_metadata["frontier"]``; in a stream, its
    last chunk does.

    Attributes:
        frontier: An `EfficiencyFrontier`, or the path of an artefact, read when first needed.
        chains: Label (``"bm25(depth=4)"``) or strategy (``"bm25"``) -> chain.
        documents: What every query is asked about.
        retriever: Finds what a query is asked about, in place of ``documents``.
        reuse: N, where it is known and the same for all.
        target_f1: Choose the cheapest that reaches it.
        budget: Choose the best F1 within this cost per query.
        weight: Choose the best efficiency score.
        context_id: What queries are about; by default the hash of the documents.
        ledger: A `ReuseLedger` or the path of one.
        policy: How to decide when N is unknown; None trusts the forecast of the ledger.
        fallback: Runs when a chain fails, unless its stream has begun.
        count_tokens: Tokens of each text, for models that do not report what they used.
    """

    frontier: Annotated[
        Any, PlainValidator(_check_frontier, json_schema_input_type=str | dict[str, str])
    ]
    chains: dict[str, Any]
    documents: list[Document] | None = None
    retriever: Any = None
    reuse: float | None = Field(default=None, description="N: queries that share the context.")
    target_f1: float | None = Field(default=None, description="The cheapest that reaches it.")
    budget: float | None = Field(default=None, description="The best F1 within this cost.")
    weight: float | None = Field(default=None, description="The best efficiency score.")
    context_id: str | None = Field(default=None, description="What queries are about.")
    ledger: Any = None
    policy: OnlinePolicy | None = None
    count_tokens: TokenCounter | None = None

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Refuse what cannot work, as far as that takes no file."""
        if not self.chains:
            raise ConfigurationError("chains is empty; give at least one strategy's chain")
        runnables = {**self.chains, "fallback": self.fallback, "retriever": self.retriever}
        for name, runnable in runnables.items():
            if runnable is not None and not isinstance(runnable, Runnable):
                raise ConfigurationError(
                    f"{name} must be a Runnable, got {type(runnable).__name__}"
                )
        self._own()
        if self.documents is not None and self.retriever is not None:
            raise ConfigurationError("give documents or a retriever, not both")
        if not isinstance(self.ledger, str | ReuseLedger | None):
            raise ConfigurationError(
                f"ledger must be a ReuseLedger or a path as text, got {type(self.ledger).__name__}"
            )
        if isinstance(self.frontier, EfficiencyFrontier):
            check_names(self.chains, self.frontier)

    @classmethod
    def from_frontier(
        cls,
        frontier: EfficiencyFrontier | str,
        *,
        llm: LanguageModelLike,
        documents: Sequence[Document] | None = None,
        retriever: Runnable[str, list[Document]] | None = None,
        strategies: Iterable[Strategy] = (),
        compressor: LanguageModelLike | None = None,
        scorer: object = None,
        embedder: object = None,
        cache_dir: str | None = None,
        prompt: str = ANSWER_PROMPT,
        fallback: str | Runnable[Any, Any] | None = None,
        same_model: bool = True,
        **fields: Any,
    ) -> Self:
        """A router with a chain for every point that the frontier can choose.

        Each chain builds the strategy's context, fills the prompt of the calibration, and asks
        ``llm``. Without ``documents`` and ``retriever``, they come with each input.

        Args:
            frontier: What was measured, or its path.
            llm: Answers.
            documents: What every query is asked about.
            retriever: Finds what a query is asked about.
            strategies: Own strategies that were measured.
            compressor: Writes compressions; ``llm`` by default.
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
            ConfigurationError: A strategy is unknown, or something else does not go together.
        """
        source = check_frontier(frontier)
        measured = open_frontier(source)
        if same_model and measured.provenance.models.get("answer"):
            measured.provenance.require(answer_model=as_answer_model(llm).name)
        refuse_forgetting(measured, fields.get("ledger"), cache_dir)
        chains = default_chains(
            measured,
            llm=llm,
            compressor=compressor,
            strategies=strategies,
            scorer=scorer,
            embedder=embedder,
            cache_dir=cache_dir,
            prompt=prompt,
            count_tokens=fields.get("count_tokens"),
        )
        if isinstance(fallback, str):
            if fallback not in chains:
                raise ConfigurationError(
                    f"the fallback {fallback!r} is none of {', '.join(chains)}"
                )
            fallback = chains[fallback]
        return cls(
            frontier=source,
            chains=chains,
            documents=None if documents is None else list(documents),
            retriever=retriever,
            fallback=fallback,
            **fields,
        )

    def decide(self, input: Any, config: RunnableConfig | None = None) -> RoutingDecision:
        """What would be chosen for an input, without running or counting it.

        The decision explains itself: intervals, ties, and why not another one.

        Raises:
            EcsPluginsError: As `invoke`.
        """
        documents = self._fixed(input)
        if documents is None and self.retriever is not None:
            documents = self.retriever.invoke(question_of(input), config)
        ask = self._ask(input, config or {}, documents)
        return plan(self.frontier, ask, ledger=self.ledger, policy=self.policy, count=False)[1]

    # Before the chain.

    @override
    def _start(
        self, input: Any, run_manager: CallbackManagerForChainRun, config: RunnableConfig
    ) -> RoutedRun:
        documents = self._fixed(input)
        if documents is None and self.retriever is not None:
            child = patch_config(config, callbacks=run_manager.get_child(tag="retrieve"))
            documents = self.retriever.invoke(question_of(input), child)
        run = self._plan(input, config, documents)
        dispatch_custom_event(DECISION_EVENT, run.decision.summary(), config=within(run_manager))
        return run

    @override
    async def _astart(
        self, input: Any, run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig
    ) -> RoutedRun:
        documents = self._fixed(input)
        if documents is None and self.retriever is not None:
            child = patch_config(config, callbacks=run_manager.get_child(tag="retrieve"))
            documents = await self.retriever.ainvoke(question_of(input), child)
        run = await run_sync(self._plan, input, config, documents)
        await adispatch_custom_event(
            DECISION_EVENT, run.decision.summary(), config=within(run_manager)
        )
        return run

    def _fixed(self, input: Any) -> Sequence[Document] | None:
        given = input.get("documents") if isinstance(input, Mapping) else None
        return self.documents if given is None else cast("Sequence[Document]", given)

    def _own(self) -> Ask:
        return Ask.read({name: getattr(self, name) for name in Ask.__slots__})

    def _ask(self, input: Any, config: RunnableConfig, documents: Sequence[Document] | None) -> Ask:
        call = Ask.read(config.get("configurable", {})).over(self._own())
        ask = Ask.read(input).over(call) if isinstance(input, Mapping) else call
        if ask.context_id is None and self.ledger is not None and documents:
            ask = ask.over(Ask(context_id=as_context(documents).id))
        return ask

    def _plan(
        self, input: Any, config: RunnableConfig, documents: Sequence[Document] | None
    ) -> RoutedRun:
        check_names(self.chains, open_frontier(self.frontier))
        ask = self._ask(input, config, documents)
        router, decision = plan(self.frontier, ask, ledger=self.ledger, policy=self.policy)
        chain = self.chains[chosen_name(decision, self.chains)]
        if documents is not None:
            rest = input if isinstance(input, Mapping) else {}
            input = {**rest, "question": question_of(input), "documents": list(documents)}
        books = Books(self.count_tokens)
        tag = f"strategy:{decision.label}"
        return RoutedRun(router, decision, ask.context_id, chain, tag, input, books)

    # What LangChain asks of a Runnable.

    @property
    @override
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """What can be configured in the chains."""
        runnables = [*self.chains.values(), self.fallback, self.retriever]
        return get_unique_config_specs(
            spec for runnable in runnables if runnable is not None for spec in runnable.config_specs
        )

    @classmethod
    @override
    def is_lc_serializable(cls) -> bool:
        """Whether `langchain_core.load.dumps` writes it: yes, as its configuration."""
        return True

    @property
    @override
    def lc_attributes(self) -> dict[str, Any]:
        """A frontier as the text of its artefact, and the policy as its name."""
        out: dict[str, Any] = {}
        if isinstance(self.frontier, EfficiencyFrontier):
            out["frontier"] = {"artefact": to_json(self.frontier)}
        if self.policy is not None:
            out["policy"] = str(self.policy)
        return out
