"""Counting the model calls of LlamaIndex for the query in whose context they are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events import llm as llm_events
from llama_index.core.schema import BaseNode, MetadataMode
from typing_extensions import override

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.chains import CountsCalls
from ecs_plugins.frontier.data import Context, Document

_query: ContextVar[CountsCalls | None] = ContextVar("ecs_plugins_query", default=None)
# Chat of many models calls complete of the same model: only the outermost call is counted.
_open: ContextVar[tuple[str, ...]] = ContextVar("ecs_plugins_open", default=())


def current_query() -> CountsCalls | None:
    """What is told of the calls that are made now."""
    return _query.get()


def as_context(nodes: Sequence[BaseNode]) -> Context:
    """The engine's context of LlamaIndex nodes; their title is in ``metadata["title"]``.

    Raises:
        InvalidInputError: Something is no node, or there is no text.
    """
    for node in nodes:
        if not isinstance(node, BaseNode):
            raise InvalidInputError(f"nodes must be LlamaIndex nodes, got {type(node).__name__}")
    texts = [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
    titles = [str(node.metadata.get("title") or "") for node in nodes]
    return Context(tuple(map(Document, texts, titles)))


class _EventCounter(BaseEventHandler):
    """Counts the calls of language models for the query in whose context they are made."""

    @classmethod
    @override
    def class_name(cls) -> str:
        return "EcsPluginsUsageHandler"

    @override
    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        query = _query.get()
        if query is None:
            return
        # "Class.method-" and a unique end. A call that fails has no event at its end: where the
        # same method starts again, the one before it has failed.
        method, calls = str(event.span_id).partition("-")[0], _open.get()
        outer = calls[: calls.index(method)] if method in calls else calls
        if isinstance(event, llm_events.LLMChatStartEvent | llm_events.LLMCompletionStartEvent):
            _open.set((*outer, method))
        elif isinstance(event, llm_events.LLMChatEndEvent | llm_events.LLMCompletionEndEvent):
            _open.set(outer)
            if outer:
                return
            if isinstance(event, llm_events.LLMCompletionEndEvent):
                prompt, text = event.prompt, event.response.text
            else:
                prompt = "\n".join(message.content or "" for message in event.messages)
                text = "" if event.response is None else event.response.message.content or ""
            query.add_call(prompt, text, event.response)


get_dispatcher().add_event_handler(_EventCounter())


@contextmanager
def counted(query: CountsCalls) -> Iterator[None]:
    """Count what happens within, here and in threads and tasks that copy the context."""
    outer, calls = _query.set(query), _open.set(())
    try:
        yield
    finally:
        _query.reset(outer)
        _open.reset(calls)
