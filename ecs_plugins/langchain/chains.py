"""Chains of your own as LangChain Runnables: a stage 1 once per context, and its answer.

A translation only: `ecs_plugins.frontier.chains` keeps the preparations.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from uuid import UUID

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    BaseCallbackHandler,
    CallbackManagerForChainRun,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableSequence
from langchain_core.runnables.base import coerce_to_runnable
from langchain_core.runnables.config import patch_config, run_in_executor
from typing_extensions import override

from ecs_plugins.frontier.building import building
from ecs_plugins.frontier.chains import (
    NOTHING_PAID,
    CallCounter,
    ChainPreparation,
    ContextCost,
    CountsCalls,
    PreparationKey,
    register_adapter,
    run_coroutine,
)
from ecs_plugins.frontier.chains import RoutedChain as RoutedChain
from ecs_plugins.frontier.cost import ConfigValue, config_json
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.strategies.base import Answered, Prepared
from ecs_plugins.langchain.answering import AnsweringRunnable
from ecs_plugins.langchain.compressor import WritableFields
from ecs_plugins.langchain.context import CONTEXT_EVENT, as_context, namespace_of, question_of
from ecs_plugins.tokens import Stage


class ChainRunnable(WritableFields, AnsweringRunnable):
    """A `RoutedChain` that prepares its context and answers, as a traced run.

    Attributes:
        chain: Its two stages.
    """

    chain: Any

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Prepare the context unless that is done, and answer.

        Raises:
            InvalidInputError: It prepares, and the input has no question.
        """
        return self._call_with_config(self._invoke, input, config, **kwargs)

    def _invoke(
        self,
        input: Any,
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str = "",
        **kwargs: Any,
    ) -> Any:
        child = patch_config(config, callbacks=run_manager.get_child())
        given = self._with_prepared(input, child, context_id)
        return self.chain.answer.invoke(given, child, **kwargs)

    async def _ainvoke(
        self,
        input: Any,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str = "",
        **kwargs: Any,
    ) -> Any:
        child = patch_config(config, callbacks=run_manager.get_child())
        given = await self._awith_prepared(input, child, context_id)
        return await self.chain.answer.ainvoke(given, child, **kwargs)

    def _stream(
        self,
        inputs: Iterator[Any],
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str = "",
        **kwargs: Any,
    ) -> Iterator[Any]:
        child = patch_config(config, callbacks=run_manager.get_child())
        given = self._with_prepared(next(inputs), child, context_id)
        yield from self.chain.answer.stream(given, child, **kwargs)

    async def _astream(
        self,
        inputs: AsyncIterator[Any],
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str = "",
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        child = patch_config(config, callbacks=run_manager.get_child())
        given = await self._awith_prepared(await anext(inputs), child, context_id)
        async for chunk in self.chain.answer.astream(given, child, **kwargs):
            yield chunk

    def holds(self, documents: list[Document], context_id: str, namespace: tuple[str, ...]) -> bool:
        """Return True if the preparation of a context is there."""
        key = _key_of(self.chain, documents, context_id, namespace)
        return bool(self.chain.store.holds(key))

    def _with_prepared(self, input: Any, config: RunnableConfig, context_id: str) -> Any:
        """Return the input with the preparation of its documents."""
        if self.chain.prepare is None:
            return input
        given = _as_mapping(input)
        documents = list(given.get("documents") or ())
        key = self._key(given, documents, config, context_id)
        kept = self.chain.store.prepared(key, lambda: _prepared(self.chain, documents, config))
        self._report(kept, config)
        return {**given, "prepared": kept.value}

    async def _awith_prepared(self, input: Any, config: RunnableConfig, context_id: str) -> Any:
        if self.chain.prepare is None:
            return input
        given = _as_mapping(input)
        documents = list(given.get("documents") or ())
        key = self._key(given, documents, config, context_id)

        async def make() -> ChainPreparation:
            return await _aprepared(self.chain, documents, config)

        kept = await self.chain.store.aprepared(key, make)
        await run_in_executor(config, self._report, kept, config)
        return {**given, "prepared": kept.value}

    def _key(
        self,
        input: Mapping[str, Any],
        documents: list[Document],
        config: RunnableConfig,
        context_id: str,
    ) -> PreparationKey:
        given = context_id or str(input.get("context_id") or "")
        return _key_of(self.chain, documents, given, namespace_of(config))

    def _report(self, kept: ChainPreparation, config: RunnableConfig) -> None:
        cost = NOTHING_PAID if kept.found else kept.cost
        event = {"strategy": self.chain.name, "config": dict(self.chain.settings), **cost.to_dict()}
        dispatch_custom_event(CONTEXT_EVENT, event, config=config)


def as_runnable(chain: object) -> object:
    """Return a `RoutedChain` as a Runnable, and anything else as it is."""
    return ChainRunnable(chain=chain) if isinstance(chain, RoutedChain) else chain


def _as_mapping(input: Any) -> Mapping[str, Any]:
    """Return an input with a question; a chain may find its documents by itself."""
    return input if isinstance(input, Mapping) else {"question": question_of(input)}


def _key_of(
    chain: RoutedChain, documents: list[Document], context_id: str, namespace: tuple[str, ...]
) -> PreparationKey:
    content = as_context(documents).id if documents else ""
    return chain.preparation_key(namespace, context_id, content)


def _prepared(
    chain: RoutedChain, documents: list[Document], config: RunnableConfig
) -> ChainPreparation:
    """Run stage 1, and count its calls."""
    prepare = coerce_to_runnable(chain.prepare)
    if _is_only_async(prepare):
        prepared: ChainPreparation = run_coroutine(_aprepared(chain, documents, config))
        return prepared
    counter = CallCounter(Stage.PREPARE, chain.count_tokens)
    began = time.perf_counter()
    with building():  # so that the router does not count these calls as well
        value = prepare.with_config(callbacks=[CallbackCounter(counter)]).invoke(
            {"documents": documents}, config
        )
    return ChainPreparation(_plain(value), counter.cost(time.perf_counter() - began))


async def _aprepared(
    chain: RoutedChain, documents: list[Document], config: RunnableConfig
) -> ChainPreparation:
    prepare = coerce_to_runnable(chain.prepare)
    counter = CallCounter(Stage.PREPARE, chain.count_tokens)
    began = time.perf_counter()
    with building():
        value = await prepare.with_config(callbacks=[CallbackCounter(counter)]).ainvoke(
            {"documents": documents}, config
        )
    return ChainPreparation(_plain(value), counter.cost(time.perf_counter() - began))


def _is_only_async(runnable: Runnable[Any, Any]) -> bool:
    if isinstance(runnable, RunnableSequence):
        return any(_is_only_async(step) for step in runnable.steps)
    return isinstance(runnable, RunnableLambda) and not hasattr(runnable, "func")


class MeasuredChain:
    """A `RoutedChain` of Runnables as a strategy that answers by itself."""

    def __init__(self, chain: RoutedChain) -> None:
        self.name = chain.name
        self.config: Mapping[str, ConfigValue] = dict(chain.settings or {})
        self.routable = chain.routable
        self._chain = chain

    def prepare(self, context: Context) -> Prepared:
        """Run stage 1, always anew: its cost is measured."""
        if self._chain.prepare is None:
            return Prepared(context)
        made = _prepared(self._chain, _documents(context), {})
        cost = made.cost
        return Prepared(context, "", cost.tokens, cost.seconds, value=made.value, calls=cost.calls)

    def answer(self, prepared: Prepared, question: str) -> Answered:
        """Run stage 2."""
        counter = CallCounter(Stage.QUERY, self._chain.count_tokens)
        given: dict[str, Any] = {
            "question": question,
            "documents": _documents(prepared.context),
            "context_id": prepared.context.id,
        }
        if self._chain.prepare is not None:
            given["prepared"] = prepared.value
        began = time.perf_counter()
        config: RunnableConfig = {"callbacks": [CallbackCounter(counter)]}
        if _is_only_async(self._chain.answer):
            output = run_coroutine(self._chain.answer.ainvoke(given, config))
        else:
            output = self._chain.answer.invoke(given, config)
        seconds = time.perf_counter() - began
        counter.check(self._chain.label)
        return Answered(
            _plain(output),
            counter.tokens,
            seconds,
            calls=max(1, len(counter.calls)),
            answer_field=self._chain.answer_field,
        )


register_adapter(lambda answer: isinstance(answer, Runnable), MeasuredChain)


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
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._prompts[run_id] = prompts

    @override
    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._texts[run_id] = self._texts.get(run_id, "") + str(token)

    @override
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
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
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
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
    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if name == CONTEXT_EVENT:
            key = (data["strategy"], config_json(data["config"]))
            self._query.add_context(key, ContextCost.from_dict(data))

    def _is_counted(self, response: LLMResult) -> bool:
        """Return True for a prompt of a batch whose tokens came with the first one."""
        usage = (response.llm_output or {}).get("token_usage")
        if usage:
            self._has_batch_report = True
            return False
        return self._has_batch_report and usage == {}


def _documents(context: Context) -> list[Document]:
    return [
        Document(document.text, metadata={"title": document.title})
        for document in context.documents
    ]


def _plain(output: Any) -> Any:
    """Return the text of a message, and anything else as it is."""
    return output.text if isinstance(output, BaseMessage) else output
