"""A chain of the user's own behind a router: what it prepares once per context, and its answer.

A translation only: `ecs_plugins.frontier.chains` keeps what was prepared.
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
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import patch_config, run_in_executor
from pydantic import Field, PrivateAttr
from typing_extensions import override

from ecs_plugins.common.checks import check_text
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.building import building
from ecs_plugins.frontier.chains import (
    CallCounter,
    ChainPreparation,
    CountsCalls,
    PreparationStore,
    check_lasting,
)
from ecs_plugins.frontier.cost import ConfigValue, PointKey, config_json, label_of
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.strategies.base import Answered, Prepared
from ecs_plugins.langchain.answering import AnsweringRunnable
from ecs_plugins.langchain.compressor import WritableFields
from ecs_plugins.langchain.context import CONTEXT_EVENT, as_context
from ecs_plugins.tokens import Stage, TokenLedger


class RoutedChain(WritableFields, AnsweringRunnable):
    """A chain with a stage 1 of its own, for a `FrontierRouter` and for `calibrate`.

    ```python
    RoutedChain("notes", prepare=summarise, answer=prompt | llm)
    ```

    ``prepare`` runs once per context, with the ``documents`` of the input, and what it gives is
    kept. ``answer`` is given the input and, as ``prepared``, what was kept; without ``prepare``
    it is given the input as it came. Tokens of both are counted by themselves.

    Attributes:
        name: The strategy; with ``settings`` what its point is called.
        answer: Stage 2: from ``{"question", "documents", "prepared"}`` to an answer.
        prepare: Stage 1: from ``{"documents"}`` to text or plain values; None for none.
        settings: The configuration, where a strategy has several.
        directory: Keeps what was prepared for other processes and the next start.
        count_tokens: Tokens of each text, for models that do not report what they used.
        routable: Whether a router may choose it.
    """

    name: str
    answer: Runnable[Any, Any]
    prepare: Runnable[Any, Any] | None = None
    settings: dict[str, ConfigValue] = Field(default_factory=dict)
    directory: str | None = None
    count_tokens: TokenCounter | None = None
    routable: bool = True
    _store: PreparationStore = PrivateAttr()

    def __init__(self, name: str, **fields: Any) -> None:
        named: dict[str, Any] = {"name": name, **fields}
        super().__init__(**named)

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Make what keeps preparations."""
        check_text("the name of a chain", self.name)
        self._store = PreparationStore(self.directory)

    @property
    def key(self) -> PointKey:
        """What its point is called."""
        return (self.name, config_json(self.settings))

    @property
    def label(self) -> str:
        """The label of its point."""
        return label_of(self.name, self.settings)

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Prepare what is not prepared, and answer, as a traced run.

        Raises:
            InvalidInputError: It prepares, and the input is no mapping with documents.
        """
        return self._call_with_config(self._invoke, input, config, **kwargs)

    def _invoke(
        self,
        input: Any,
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        child = patch_config(config, callbacks=run_manager.get_child())
        given = self._with_prepared(input, child, context_id)
        return self.answer.invoke(given, child, **kwargs)

    async def _ainvoke(
        self,
        input: Any,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        child = patch_config(config, callbacks=run_manager.get_child())
        given = await run_in_executor(child, self._with_prepared, input, child, context_id)
        return await self.answer.ainvoke(given, child, **kwargs)

    def _stream(
        self,
        inputs: Iterator[Any],
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        child = patch_config(config, callbacks=run_manager.get_child())
        given = self._with_prepared(next(inputs), child, context_id)
        yield from self.answer.stream(given, child, **kwargs)

    async def _astream(
        self,
        inputs: AsyncIterator[Any],
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        context_id: str | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        child = patch_config(config, callbacks=run_manager.get_child())
        input = await anext(inputs)
        given = await run_in_executor(child, self._with_prepared, input, child, context_id)
        async for chunk in self.answer.astream(given, child, **kwargs):
            yield chunk

    def _with_prepared(self, input: Any, config: RunnableConfig, context_id: str | None) -> Any:
        """The input, and what is prepared for its documents."""
        if self.prepare is None:
            return input
        if not isinstance(input, Mapping) or "documents" not in input:
            raise InvalidInputError(
                f"{self.label} prepares documents and got none; give the router documents=... "
                "or retriever=..., or put them into its input"
            )
        documents = list(input["documents"])
        context = context_id or input.get("context_id") or as_context(documents).id
        kept = self._store.prepared(self.key, context, lambda: self._prepare(documents, config))
        event = {
            "strategy": self.name,
            "config": dict(self.settings),
            "tokens": {} if kept.found else kept.ledger.to_dict(),
            "prepare_seconds": 0.0 if kept.found else kept.seconds,
        }
        dispatch_custom_event(CONTEXT_EVENT, event, config=config)
        return {**input, "prepared": kept.value}

    def _prepare(self, documents: list[Document], config: RunnableConfig) -> ChainPreparation:
        assert self.prepare is not None
        counter = CallCounter(Stage.PREPARE, self.count_tokens)
        began = time.perf_counter()
        with building():  # what it spends comes with the preparation
            value = self.prepare.with_config(callbacks=[CallbackCounter(counter)]).invoke(
                {"documents": documents}, config
            )
        return ChainPreparation(_plain(value), counter.ledger, time.perf_counter() - began)

    def check_lasting(self, *, lasting: bool) -> None:
        """Refuse what is forgotten with the process (`ecs_plugins.frontier.chains`)."""
        check_lasting(
            "RoutedChain",
            self.label,
            prepares=self.prepare is not None,
            directory=self.directory,
            lasting=lasting,
        )

    def as_strategy(self) -> MeasuredChain:
        """What `calibrate` measures."""
        return MeasuredChain(self)


class MeasuredChain:
    """A `RoutedChain` as a strategy that answers by itself."""

    def __init__(self, chain: RoutedChain) -> None:
        self.name = chain.name
        self.config: Mapping[str, ConfigValue] = dict(chain.settings)
        self.routable = chain.routable
        self._chain = chain

    def prepare(self, context: Context) -> Prepared:
        """Stage 1, always anew: its cost is measured."""
        if self._chain.prepare is None:
            return Prepared(context)
        made = self._chain._prepare(_documents(context), {})
        return Prepared(context, "", made.ledger, made.seconds, value=made.value)

    def answer(self, prepared: Prepared, question: str) -> Answered:
        """Stage 2."""
        counter = CallCounter(Stage.QUERY, self._chain.count_tokens)
        given: dict[str, Any] = {
            "question": question,
            "documents": _documents(prepared.context),
            "context_id": prepared.context.id,
        }
        if self._chain.prepare is not None:
            given["prepared"] = prepared.value
        began = time.perf_counter()
        output = self._chain.answer.invoke(given, {"callbacks": [CallbackCounter(counter)]})
        seconds = time.perf_counter() - began
        counter.check(self._chain.label)
        return Answered(str(_plain(output)), counter.ledger, seconds)


class CallbackCounter(BaseCallbackHandler):
    """Counts every model call below a run, and what building its context cost.

    Chat models come here too: LangChain gives their messages as text to who has only this hook.
    """

    # In order, and complete when the run is settled.
    run_inline = True

    def __init__(self, query: CountsCalls) -> None:
        self._query = query
        self._prompts: dict[UUID, list[str]] = {}

    @override
    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._prompts[run_id] = prompts

    @override
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        prompts = self._prompts.pop(run_id, ())
        for prompt, generations in zip(prompts, response.generations, strict=False):
            if generations:
                message = getattr(generations[0], "message", None)
                self._query.add_call(prompt, generations[0].text, message)

    @override
    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if name == CONTEXT_EVENT:
            key = (data["strategy"], config_json(data["config"]))
            tokens = TokenLedger.from_dict(data["tokens"])
            self._query.add_context(key, tokens, data["prepare_seconds"])


def _documents(context: Context) -> list[Document]:
    return [
        Document(document.text, metadata={"title": document.title})
        for document in context.documents
    ]


def _plain(output: Any) -> Any:
    """The text of a message, and anything else as it is."""
    return output.text if isinstance(output, BaseMessage) else output
