"""Collects the tokens of a routed run from LangChain's callbacks, whatever its chain is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from typing_extensions import override

from ecs_plugins.integrations.running import Books
from ecs_plugins.langchain.context import CONTEXT_EVENT, PREPARE_TAG
from ecs_plugins.tokens import TokenLedger


class BooksHandler(BaseCallbackHandler):
    """Books every model call below a run, and what building its context cost.

    Args:
        books: Filled while the run goes on.
    """

    # In order, and complete when the run is settled.
    run_inline = True

    def __init__(self, books: Books) -> None:
        self._books = books
        self._prompts: dict[UUID, list[str]] = {}

    @override
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        prompts = ["\n".join(str(message.text) for message in turn) for turn in messages]
        self._begin(run_id, prompts, tags)

    @override
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self._begin(run_id, prompts, tags)

    @override
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        prompts = self._prompts.pop(run_id, None)
        if prompts is None:
            return
        for prompt, generations in zip(prompts, response.generations, strict=False):
            if generations:
                self._books.model_call(prompt, generations[0].text, *_usage(generations))

    @override
    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if name == CONTEXT_EVENT:
            self._books.ledger.add(TokenLedger.from_dict(data["tokens"]))
            self._books.prepare_seconds += data["prepare_seconds"]

    def _begin(self, run_id: UUID, prompts: list[str], tags: list[str] | None) -> None:
        if PREPARE_TAG not in (tags or ()):
            self._prompts[run_id] = prompts


def _usage(generations: Sequence[Generation]) -> tuple[int | None, int | None]:
    first = generations[0]
    if isinstance(first, ChatGeneration) and isinstance(first.message, AIMessage):
        usage = first.message.usage_metadata
        if usage is not None:
            return usage["input_tokens"], usage["output_tokens"]
    return None, None
