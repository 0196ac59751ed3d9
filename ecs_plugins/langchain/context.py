"""A measured context strategy as a Runnable: from documents and a question to what is sent.

A translation only: `ecs_plugins.frontier.strategies` prepares and builds. What it cost is
reported as a custom event, from which a `FrontierRouter` books it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict, override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.answering import as_answer_model
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.data import Document as ContextDocument
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.integrations.fields import as_model
from ecs_plugins.integrations.running import (
    PaidContext,
    PreparedContexts,
    TokenCounter,
    strategy_of,
)
from ecs_plugins.ranking.embedder import as_embedder

CONTEXT_EVENT = "frontier_context"
"""Name of the custom event with the tokens of preparing and building a context."""

PREPARE_TAG = "frontier:prepare"
"""Tag of model calls that prepare a context; the context event books them."""


class ContextInput(TypedDict):
    """What a strategy is given."""

    question: str
    documents: Sequence[Document]


class FrontierContext(RunnableSerializable[ContextInput, dict[str, Any]]):
    """Builds the context of one strategy: ``{question, documents} -> {question, context}``.

    Other keys of the input are passed on, so a prompt behind it may use them.

    Attributes:
        strategy: Name of the strategy.
        config: Its configuration.
        llm: Writes compressions.
        scorer: The local model of ECS: a `LanguageModel`, a name, or None for the bundled one.
        embedder: An `Embedder` or LangChain ``Embeddings``, for dense retrieval and ECS.
        cache_dir: Where compressions are kept; None keeps them for the life of the process.
        custom: A `Strategy` to use in place of the package's own.
        count_tokens: Tokens of each text, for an ``llm`` that does not report them.
        prepared: What stage 1 has made so far.
    """

    strategy: str
    config: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    llm: Any = None
    scorer: Any = None
    embedder: Any = None
    cache_dir: str | None = None
    custom: Any = None
    count_tokens: TokenCounter | None = None
    prepared: PreparedContexts = Field(default_factory=PreparedContexts, exclude=True, repr=False)

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @classmethod
    @override
    def is_lc_serializable(cls) -> bool:
        """Whether `langchain_core.load.dumps` writes it: yes, as its configuration."""
        return True

    @override
    def invoke(
        self, input: ContextInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Build the context as a traced run.

        Raises:
            InvalidInputError: The input has no question or no documents.
        """
        return self._call_with_config(self._build, input, config, **kwargs)

    @override
    async def ainvoke(
        self, input: ContextInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """`invoke` off the event loop."""
        return await self._acall_with_config(self._abuild, input, config, **kwargs)

    def _build(
        self, input: ContextInput, run_manager: CallbackManagerForChainRun
    ) -> dict[str, Any]:
        paid = self._paid(input, run_manager)
        dispatch_custom_event(
            CONTEXT_EVENT, self._event(paid), config={"callbacks": run_manager.get_child()}
        )
        return {**input, "context": paid.text}

    async def _abuild(
        self, input: ContextInput, run_manager: AsyncCallbackManagerForChainRun
    ) -> dict[str, Any]:
        paid = await run_sync(self._paid, input, run_manager.get_sync())
        await adispatch_custom_event(
            CONTEXT_EVENT, self._event(paid), config={"callbacks": run_manager.get_child()}
        )
        return {**input, "context": paid.text}

    def _paid(self, input: ContextInput, run_manager: CallbackManagerForChainRun) -> PaidContext:
        question, context = _unpack(input)
        return self.prepared.build(self._strategy(run_manager), context, question)

    def _strategy(self, run_manager: CallbackManagerForChainRun) -> Strategy:
        """Made for each run, so that a model that compresses is called within its trace."""
        if self.custom is not None:
            chosen: Strategy = self.custom
            return chosen
        llm: Runnable[Any, Any] = self.llm
        traced = llm.with_config(callbacks=run_manager.get_child(), tags=[PREPARE_TAG])
        model = as_answer_model(
            traced,
            name=as_answer_model(llm).name,
            count_tokens=token_counter(llm, self.count_tokens),
        )
        shaped = "ecs" in self.strategy.split("+")
        return strategy_of(
            self.strategy,
            self.config,
            model=model,
            embedder=None if self.embedder is None else as_embedder(self.embedder),
            scorer=as_model(self.scorer) if shaped else None,
            cache_dir=self.cache_dir,
        )

    def _event(self, paid: PaidContext) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "config": dict(self.config),
            "tokens": paid.ledger.to_dict(),
            "prepare_seconds": paid.prepare_seconds,
            "characters": len(paid.text),
        }


def token_counter(llm: object, given: TokenCounter | None = None) -> TokenCounter | None:
    """What counts tokens for a model: what is given, or the model itself where it can."""
    own: TokenCounter | None = getattr(llm, "count_tokens", None)
    return given or own


def as_context(documents: Sequence[Document]) -> Context:
    """The engine's context of LangChain documents; their title is in ``metadata["title"]``.

    Raises:
        InvalidInputError: There is no document with text.
    """
    for document in documents:
        if not isinstance(document, Document):
            raise InvalidInputError(
                f"documents must be langchain_core Documents, got {type(document).__name__}"
            )
    return Context(
        tuple(
            ContextDocument(document.page_content, str(document.metadata.get("title") or ""))
            for document in documents
        )
    )


def _unpack(input: ContextInput) -> tuple[str, Context]:
    if not isinstance(input, Mapping) or "question" not in input or "documents" not in input:
        raise InvalidInputError(
            'a context strategy takes {"question": str, "documents": [Document, ...]}; give the '
            "router documents=... or retriever=..., or put them into its input"
        )
    question = input["question"]
    if not isinstance(question, str) or not question.strip():
        raise InvalidInputError(f"the question must be text, got {question!r:.60}")
    return question, as_context(input["documents"])
