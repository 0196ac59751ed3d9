"""First steps of routed chains: a measured strategy's context, or a preparation of one's own.

A translation only: `ecs_plugins.frontier` prepares, builds and keeps. The cost of a step is a
custom event, which a `FrontierRouter` counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from langchain_core.callbacks import (
    BaseCallbackHandler,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableSequence,
)
from langchain_core.runnables.base import coerce_to_runnable
from langchain_core.runnables.config import run_in_executor
from typing_extensions import override

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.building import ContextBuilder, building
from ecs_plugins.frontier.chains import (
    CallCounter,
    ChainAdapter,
    CountsCalls,
    register_adapter,
    run_coroutine,
)
from ecs_plugins.frontier.chains import RoutedChain as RoutedChain
from ecs_plugins.frontier.cost import PointKey, StrategyPoint
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.data import Document as ContextDocument
from ecs_plugins.frontier.preparations import (
    NOTHING_PAID,
    ChainPreparation,
    ContextCost,
    PreparationKey,
)
from ecs_plugins.frontier.strategies.base import Prepared
from ecs_plugins.integrations.routers import tenant_of
from ecs_plugins.langchain.compressor import checked_documents
from ecs_plugins.tokens import Stage

CONTEXT_EVENT = "frontier_context"
"""Name of the custom event with the tokens of preparing and building a context."""


@dataclass(frozen=True)
class StrategyChain:
    """A chain that answers from the context of one measured strategy.

    Attributes:
        point: The strategy and its settings.
        builder: Builds contexts, and keeps their preparations.
        reply: Runnable of ``{"question", "context"}``.
    """

    point: StrategyPoint
    builder: ContextBuilder
    reply: Runnable[Any, Any]

    def build(self, input: Any, config: RunnableConfig) -> dict[str, Any]:
        """Return the input with the context of its question.

        Raises:
            InvalidInputError: The input has no question or no documents.
        """
        if not isinstance(input, Mapping) or "question" not in input or "documents" not in input:
            raise InvalidInputError(
                'a context strategy takes {"question": str, "documents": [Document, ...]}; give '
                "the router documents=... or retriever=..., or put them into its input"
            )
        context, question = as_context(input["documents"]), question_of(input)
        built = self.builder.build(self.point, context, question, namespace_of(config))
        _report(self.point.key, built.cost, config)
        return {**input, "context": built.text}


Chain = RoutedChain | StrategyChain | Runnable[Any, Any]


@dataclass(frozen=True)
class _Preparing:
    """First step of a `RoutedChain`: puts its preparation into the input."""

    chain: RoutedChain

    def prepare(self, input: Any, config: RunnableConfig) -> dict[str, Any]:
        """Prepare the documents of an input unless that is done."""
        given, documents, key = self._asked(input, config)
        make = partial(_prepared, self.chain, documents, config)
        return self._reported(given, self.chain.store.prepared(key, make), config)

    async def aprepare(self, input: Any, config: RunnableConfig) -> dict[str, Any]:
        """Do as `prepare`, off the event loop."""
        given, documents, key = self._asked(input, config)
        make = partial(_aprepared, self.chain, documents, config)
        kept = await self.chain.store.aprepared(key, make)
        return await run_in_executor(config, self._reported, given, kept, config)

    def _asked(
        self,
        input: Any,
        config: RunnableConfig,
    ) -> tuple[Mapping[str, Any], list[Document], PreparationKey]:
        # A chain may find its documents by itself.
        given = input if isinstance(input, Mapping) else {"question": question_of(input)}
        documents = list(given.get("documents") or ())
        context_id = config.get("configurable", {}).get("context_id") or given.get("context_id")
        key = _key_of(self.chain, documents, str(context_id or ""), namespace_of(config))
        return given, documents, key

    def _reported(
        self,
        given: Mapping[str, Any],
        kept: ChainPreparation,
        config: RunnableConfig,
    ) -> dict[str, Any]:
        _report(self.chain.key, NOTHING_PAID if kept.found else kept.cost, config)
        return {**given, "prepared": kept.value}


def as_runnable(chain: Chain, **keywords: Any) -> Runnable[Any, Any]:
    """Return a chain as a Runnable whose answer is called with some keywords."""
    if isinstance(chain, StrategyChain):
        return RunnableLambda(chain.build, name=CONTEXT_EVENT) | chain.reply.bind(**keywords)
    if not isinstance(chain, RoutedChain):
        return chain.bind(**keywords)
    answer: Runnable[Any, Any] = coerce_to_runnable(chain.answer).bind(**keywords)
    if chain.prepare is None:
        return answer
    step = _Preparing(chain)
    return RunnableLambda(step.prepare, step.aprepare, name="prepare") | answer


def is_prepared(
    chain: Chain,
    documents: list[Document],
    context_id: str,
    namespace: tuple[str, ...],
) -> bool | None:
    """Return True if stage 1 of a chain is there; None if it cannot be looked up."""
    if isinstance(chain, StrategyChain) and documents:
        return chain.builder.holds(chain.point, as_context(documents), namespace)
    if not isinstance(chain, RoutedChain) or chain.prepare is None:
        return None
    return chain.store.find(_key_of(chain, documents, context_id, namespace)) is not None


def _key_of(
    chain: RoutedChain,
    documents: list[Document],
    context_id: str,
    namespace: tuple[str, ...],
) -> PreparationKey:
    content = as_context(documents).id if documents else ""
    return chain.preparation_key(namespace, context_id, content)


def _report(
    key: PointKey,
    cost: ContextCost,
    config: RunnableConfig,
) -> None:
    dispatch_custom_event(CONTEXT_EVENT, {"point": key, **cost.to_dict()}, config=config)


def _prepared(
    chain: RoutedChain,
    documents: list[Document],
    config: RunnableConfig,
) -> ChainPreparation:
    """Run stage 1, and count its calls."""
    if _is_only_async(coerce_to_runnable(chain.prepare)):
        prepared: ChainPreparation = run_coroutine(_aprepared(chain, documents, config))
        return prepared
    counter, counted = _counted(chain)
    with building():  # so that the router does not count these calls as well
        value = counted.invoke({"documents": documents}, config)
    return ChainPreparation(_plain(value), counter.cost())


async def _aprepared(
    chain: RoutedChain,
    documents: list[Document],
    config: RunnableConfig,
) -> ChainPreparation:
    counter, counted = _counted(chain)
    with building():
        value = await counted.ainvoke({"documents": documents}, config)
    return ChainPreparation(_plain(value), counter.cost())


def _counted(chain: RoutedChain) -> tuple[CallCounter, Runnable[Any, Any]]:
    """Return a counter, and stage 1 of a chain that is counted by it."""
    counter = CallCounter(Stage.PREPARE, chain.count_tokens)
    prepare: Runnable[Any, Any] = coerce_to_runnable(chain.prepare)
    return counter, prepare.with_config(callbacks=[CallbackCounter(counter)])


def _is_only_async(runnable: Runnable[Any, Any]) -> bool:
    if isinstance(runnable, RunnableSequence):
        return any(_is_only_async(step) for step in runnable.steps)
    return isinstance(runnable, RunnableLambda) and not hasattr(runnable, "func")


# Calibration.


def _prepare_context(chain: RoutedChain, context: Context) -> ChainPreparation:
    return _prepared(chain, _documents(context), {})


def _answer(
    chain: RoutedChain,
    prepared: Prepared,
    question: str,
    counter: CallCounter,
) -> Any:
    context = prepared.context
    given: dict[str, Any] = {
        "question": question,
        "documents": _documents(context),
        "context_id": context.id,
    }
    if chain.prepare is not None:
        given["prepared"] = prepared.value
    config: RunnableConfig = {"callbacks": [CallbackCounter(counter)]}
    answer = coerce_to_runnable(chain.answer)
    if _is_only_async(answer):
        return _plain(run_coroutine(answer.ainvoke(given, config)))
    return _plain(answer.invoke(given, config))


def _documents(context: Context) -> list[Document]:
    return [
        Document(document.text, metadata={"title": document.title})
        for document in context.documents
    ]


def _plain(output: Any) -> Any:
    """Return the text of a message, and anything else as it is."""
    return output.text if isinstance(output, BaseMessage) else output


def _is_runnable(answer: object) -> bool:
    return isinstance(answer, Runnable)


register_adapter(ChainAdapter(_is_runnable, _prepare_context, _answer))


class CallbackCounter(BaseCallbackHandler):
    """Counts every model call of a run, and the cost of building its context.

    Chat models come here too: LangChain hands their messages as text to a handler that has only
    this hook. A stream that the caller leaves early is counted by the text that came until then.
    """

    # In order, and complete when the run is settled.
    run_inline = True

    def __init__(self, query: CountsCalls) -> None:
        self._query = query
        self._prompts: dict[UUID, list[str]] = {}
        self._texts: dict[UUID, str] = {}
        self._has_batch_report = False

    @override
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        self._prompts[run_id] = prompts

    @override
    def on_llm_new_token(
        self,
        token: Any,
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        self._texts[run_id] = self._texts.get(run_id, "") + str(token)

    @override
    def on_llm_end(
        self,
        response: LLMResult,
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        prompts = self._prompts.pop(run_id, ())
        for prompt, generations in zip(prompts, response.generations, strict=False):
            if not generations:
                continue
            message = getattr(generations[0], "message", None)
            if message is None:
                if self._is_counted(response):
                    continue
                message = response.llm_output
            self._query.add_call(prompt, generations[0].text, message)

    @override
    def on_llm_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        if isinstance(error, Exception):
            self._prompts.pop(run_id, None)  # the provider failed; nothing was answered
        else:
            self._leave(run_id)

    def close(self) -> None:
        """Count the calls that have not ended, as the caller left early."""
        for run_id in list(self._prompts):
            self._leave(run_id)

    def _leave(self, run_id: UUID) -> None:
        for prompt in self._prompts.pop(run_id, ()):
            self._query.add_call(prompt, self._texts.get(run_id, ""))

    @override
    def on_custom_event(
        self,
        name: str,
        data: Any,
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        if name == CONTEXT_EVENT:
            self._query.add_context(data["point"], ContextCost.from_dict(data))

    def _is_counted(self, response: LLMResult) -> bool:
        """Return True for a prompt of a batch whose tokens came with the first one."""
        usage = (response.llm_output or {}).get("token_usage")
        if usage:
            self._has_batch_report = True
            return False
        return self._has_batch_report and usage == {}


# Inputs.


def namespace_of(config: RunnableConfig) -> tuple[str, ...]:
    """Return the tenant of a run: ``config["configurable"]["namespace"]``, a name or several.

    Raises:
        ConfigurationError: It is something else.
    """
    return tenant_of(config.get("configurable", {}).get("namespace"))


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
