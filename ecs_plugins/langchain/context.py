"""Measured context strategy as a Runnable: from documents and a question to a prompt's context.

A translation only: `ecs_plugins.frontier.strategies` prepares and builds. What it cost is
reported as a custom event, which a `FrontierRouter` counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForChainRun, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import Field
from typing_extensions import TypedDict, override

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.building import ContextBuilder
from ecs_plugins.frontier.cost import config_json
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.data import Document as ContextDocument
from ecs_plugins.frontier.ledger import check_namespace
from ecs_plugins.langchain.compressor import WritableFields, checked_documents

CONTEXT_EVENT = "frontier_context"
"""Name of the custom event with the tokens of preparing and building a context."""


class ContextInput(TypedDict):
    """Input of a strategy."""

    question: str
    documents: Sequence[Document]


class FrontierContext(WritableFields, RunnableSerializable[ContextInput, dict[str, Any]]):
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
        builder: What builds, where several share it.
    """

    strategy: str
    config: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    llm: Any = None
    scorer: Any = None
    embedder: Any = None
    cache_dir: str | None = None
    custom: Any = None
    count_tokens: TokenCounter | None = None
    builder: ContextBuilder | None = Field(default=None, exclude=True, repr=False)

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Make the builder, unless it is shared."""
        if self.builder is None:
            self.builder = ContextBuilder(
                self.llm,
                () if self.custom is None else (self.custom,),
                scorer=self.scorer,
                embedder=self.embedder,
                cache_dir=self.cache_dir,
                count_tokens=self.count_tokens,
            )

    @override
    def invoke(
        self, input: ContextInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Build the context as a traced run.

        Raises:
            InvalidInputError: The input has no question or no documents.
        """
        return self._call_with_config(self._build, input, config, **kwargs)

    def _build(
        self,
        input: ContextInput,
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
    ) -> dict[str, Any]:
        if not isinstance(input, Mapping) or "question" not in input or "documents" not in input:
            raise InvalidInputError(
                'a context strategy takes {"question": str, "documents": [Document, ...]}; give '
                "the router documents=... or retriever=..., or put them into its input"
            )
        question = question_of(input)
        context = as_context(input["documents"])
        assert self.builder is not None
        tenant = namespace_of(config)
        built = self.builder.build(self.strategy, self.config, context, question, tenant)
        event = {
            "strategy": self.strategy,
            "config": dict(self.config),
            "characters": len(built.text),
            **built.cost.to_dict(),
        }
        child: RunnableConfig = {"callbacks": run_manager.get_child()}
        dispatch_custom_event(CONTEXT_EVENT, event, config=child)
        return {**input, "context": built.text}

    def holds(
        self, documents: Sequence[Document], context_id: str, namespace: tuple[str, ...]
    ) -> bool:
        """Return True if stage 1 of the strategy is there for some documents."""
        del context_id
        assert self.builder is not None
        key = (self.strategy, config_json(self.config))
        return self.builder.holds(key, as_context(documents), namespace)


def namespace_of(config: RunnableConfig) -> tuple[str, ...]:
    """Return the tenant of a run: ``config["configurable"]["namespace"]``, a name or several.

    Raises:
        ConfigurationError: It is something else.
    """
    given = config.get("configurable", {}).get("namespace") or ()
    return check_namespace((given,) if isinstance(given, str) else given)


def as_context(documents: Sequence[Document]) -> Context:
    """Return the engine's context of LangChain documents; their title is in ``metadata["title"]``.

    Raises:
        InvalidInputError: There is no document with text.
    """
    found = checked_documents(documents)
    titles = [str(document.metadata.get("title") or "") for document in found]
    texts = [document.page_content for document in found]
    return Context(tuple(map(ContextDocument, texts, titles)))


def question_of(input: Any) -> str:
    """Return the question in an input: a text, or a mapping with one."""
    question = input.get("question") if isinstance(input, Mapping) else input
    if not isinstance(question, str) or not question.strip():
        raise InvalidInputError(
            f'give a question as text or {{"question": str, ...}}, got {question!r:.60}'
        )
    return question
