"""A count of LlamaIndex's model calls, for the query in whose context they are made."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events import llm as llm_events
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.frontier.chains import CountsCalls

_START = (llm_events.LLMChatStartEvent, llm_events.LLMCompletionStartEvent)
_PROGRESS = (llm_events.LLMChatInProgressEvent, llm_events.LLMCompletionInProgressEvent)
_END = (llm_events.LLMChatEndEvent, llm_events.LLMCompletionEndEvent)


class _OpenCall(NamedTuple):
    """A call that has begun: its method, its prompt, and the text that came so far."""

    method: str
    prompt: str
    text: str = ""


_query: ContextVar[CountsCalls | None] = ContextVar("ecs_plugins_query", default=None)
# Chat of many models calls complete of the same model: only the outermost call is counted.
_open: ContextVar[tuple[_OpenCall, ...]] = ContextVar("ecs_plugins_open", default=())


def current_query() -> CountsCalls | None:
    """Return the counter of the calls that are made now."""
    return _query.get()


class _EventCounter(BaseEventHandler):
    """Counts the calls of language models for the query in whose context they are made."""

    @classmethod
    @override
    def class_name(cls) -> str:
        return "EcsPluginsUsageHandler"

    @override
    def handle(
        self,
        event: BaseEvent,
        **kwargs: Any,
    ) -> None:
        query = _query.get()
        if query is None:
            return
        # "Class.method-" and a unique end. A call that fails has no event at its end: where the
        # same method starts again, the one before it has failed.
        method = str(event.span_id).partition("-")[0]
        calls = _open.get()
        methods = [call.method for call in calls]
        outer = calls[: methods.index(method)] if method in methods else calls
        if isinstance(event, _START):
            _open.set((*outer, _OpenCall(method, _prompt_of(event))))
        elif isinstance(event, _PROGRESS) and method in methods:
            text = _text_of(event)
            own = calls[len(outer)]
            _open.set((*outer, own._replace(text=text), *calls[len(outer) + 1 :]))
        elif isinstance(event, _END):
            _open.set(outer)
            if not outer:
                query.add_call(_prompt_of(event), _text_of(event), getattr(event, "response", None))


def _prompt_of(event: Any) -> str:
    prompt = getattr(event, "prompt", None)
    if prompt is not None:
        return str(prompt)
    return "\n".join(message.content or "" for message in event.messages)


def _text_of(event: Any) -> str:
    response = event.response
    if response is None:
        return ""
    message = getattr(response, "message", response)
    return str(getattr(message, "content", None) or getattr(message, "text", None) or "")


get_dispatcher().add_event_handler(_EventCounter())


@contextmanager
def counted(query: CountsCalls) -> Iterator[None]:
    """Count the calls within the block, here and in threads and tasks that copy the context."""
    outer, calls = _query.set(query), _open.set(())
    try:
        yield
    finally:
        _query.reset(outer)
        _open.reset(calls)


class CountedStream:
    """A stream of an answer that is counted while it is read, and settled at its end.

    A stream that the caller leaves early is settled when it is closed or forgotten, with the text
    that came until then.

    Args:
        stream: The chunks.
        query: Counts the calls.
        settle: Called once, at the end.
    """

    def __init__(
        self,
        stream: Any,
        query: CountsCalls,
        settle: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._query = query
        self._settle: Callable[[], None] | None = settle
        self._context = contextvars.copy_context()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            return str(self._context.run(next, self._stream))
        except BaseException as error:
            self._end(error)
            raise

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        async def step() -> str:
            return str(await anext(self._stream))

        try:
            # A task, as a coroutine would run in the context of its caller.
            return await asyncio.get_running_loop().create_task(step(), context=self._context)
        except BaseException as error:
            await run_sync(self._end, error)
            raise

    def close(self) -> None:
        """Book the cost of a stream that is not read to its end."""
        self._end()

    def __del__(self) -> None:
        self._end()

    def _end(self, error: BaseException | None = None) -> None:
        settle, self._settle = self._settle, None
        if settle is None:
            return
        if not isinstance(error, Exception) or isinstance(
            error, StopIteration | StopAsyncIteration
        ):
            for call in self._context.run(_open.get)[:1]:
                # It has not ended: the caller left.
                self._query.add_call(call.prompt, call.text)
        settle()
