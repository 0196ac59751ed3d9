"""One routed query on its way through LangChain: what runs, how it is traced, what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.callbacks.manager import BaseRunManager
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import patch_config

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.routing import Router
from ecs_plugins.integrations.routing import METADATA_KEY
from ecs_plugins.integrations.running import Books, settle
from ecs_plugins.langchain._books import BooksHandler

DECISION_EVENT = "frontier_decision"
"""Name of the custom event with the decision, before its chain runs."""

FALLBACK_EVENT = "frontier_fallback"
"""Name of the custom event with the error after which the fallback ran."""

SETTLEMENT_EVENT = "frontier_settlement"
"""Name of the custom event with expected against actual cost, behind the run."""

T = TypeVar("T")


@dataclass
class RoutedRun:
    """One query on its way."""

    router: Router
    decision: RoutingDecision
    context_id: str | None
    chain: Runnable[Any, Any]
    tag: str
    input: Any
    books: Books
    error: Exception | None = None

    def report(self) -> dict[str, object]:
        """The decision and what it cost, for metadata; books the run."""
        cost = settle(
            self.router, self.decision, self.books, context_id=self.context_id, error=self.error
        )
        return {**self.decision.summary(), "settlement": cost}

    def child(self, run_manager: BaseRunManager, config: RunnableConfig) -> RunnableConfig:
        """The config of what is run: tagged, with the decision in its metadata, and booked."""
        manager = cast("CallbackManagerForChainRun", run_manager)
        tag = self.tag if self.error is None else "fallback"
        callbacks = manager.get_child(tag=tag)
        callbacks.add_metadata({METADATA_KEY: self.decision.summary()})
        callbacks.add_handler(BooksHandler(self.books))
        return patch_config(config, callbacks=callbacks)

    def finish(self, run_manager: CallbackManagerForChainRun) -> dict[str, object]:
        """Settle and say so."""
        report = self.report()
        dispatch_custom_event(SETTLEMENT_EVENT, report, config=within(run_manager))
        return report

    async def afinish(self, run_manager: AsyncCallbackManagerForChainRun) -> dict[str, object]:
        """`finish` off the event loop."""
        report = await run_sync(self.report)
        await adispatch_custom_event(SETTLEMENT_EVENT, report, config=within(run_manager))
        return report

    def fail(
        self, error: Exception, run_manager: CallbackManagerForChainRun, *, final: bool
    ) -> None:
        """Note an error; where no fallback follows, book what was spent and raise it."""
        self.error = error
        if final:
            self.finish(run_manager)
            raise error
        dispatch_custom_event(FALLBACK_EVENT, self._failure(), config=within(run_manager))

    async def afail(
        self, error: Exception, run_manager: AsyncCallbackManagerForChainRun, *, final: bool
    ) -> None:
        """`fail` off the event loop."""
        self.error = error
        if final:
            await self.afinish(run_manager)
            raise error
        await adispatch_custom_event(FALLBACK_EVENT, self._failure(), config=within(run_manager))

    def _failure(self) -> dict[str, object]:
        error = f"{type(self.error).__name__}: {self.error}"
        return {"label": self.decision.label, "error": error}


def within(run_manager: BaseRunManager) -> RunnableConfig:
    return {"callbacks": cast("CallbackManagerForChainRun", run_manager).get_child()}


def question_of(input: Any) -> str:
    question = input.get("question") if isinstance(input, Mapping) else input
    if not isinstance(question, str) or not question.strip():
        raise InvalidInputError(
            f'the router takes a question as text or {{"question": str, ...}}, got {question!r:.60}'
        )
    return question


def with_report(output: T, report: Mapping[str, object]) -> T:
    if not isinstance(output, BaseMessage):
        return output
    metadata = {**output.response_metadata, METADATA_KEY: dict(report)}
    return cast("T", output.model_copy(update={"response_metadata": metadata}))


def last_chunk(last: AIMessageChunk, report: Mapping[str, object]) -> AIMessageChunk:
    return AIMessageChunk(content="", id=last.id, response_metadata={METADATA_KEY: dict(report)})
