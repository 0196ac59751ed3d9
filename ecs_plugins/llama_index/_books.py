"""Collects the tokens of a routed query from LlamaIndex's events, whatever engine runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionStartEvent,
)
from typing_extensions import override

from ecs_plugins.integrations.running import Books

_books: ContextVar[Books | None] = ContextVar("ecs_plugins_books", default=None)
# Chat of many models calls complete of the same model: only the outermost call is booked.
_depth: ContextVar[int] = ContextVar("ecs_plugins_depth", default=0)
_lock = threading.Lock()
_installed = False


class BooksHandler(BaseEventHandler):
    """Books the calls of language models into the books that are open where they are made."""

    @classmethod
    @override
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return "EcsPluginsBooksHandler"

    @override
    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Book a call that ends."""
        books = _books.get()
        if books is None:
            return
        if isinstance(event, LLMChatStartEvent | LLMCompletionStartEvent):
            _depth.set(_depth.get() + 1)
        elif isinstance(event, LLMChatEndEvent | LLMCompletionEndEvent):
            _depth.set(max(0, _depth.get() - 1))
            if _depth.get() == 0:
                _book(books, event)


@contextmanager
def open_books(books: Books) -> Iterator[None]:
    """Book what happens within, in this thread and task and those that copy their context."""
    _install()
    outer, depth = _books.set(books), _depth.set(0)
    try:
        yield
    finally:
        _books.reset(outer)
        _depth.reset(depth)


@contextmanager
def closed_books() -> Iterator[None]:
    """Leave out what happens within, because it is booked elsewhere."""
    outer = _books.set(None)
    try:
        yield
    finally:
        _books.reset(outer)


def current_books() -> Books | None:
    """The books that are open here."""
    return _books.get()


def _install() -> None:
    global _installed
    with _lock:
        if not _installed:
            get_dispatcher().add_event_handler(BooksHandler())
            _installed = True


def _book(books: Books, event: LLMChatEndEvent | LLMCompletionEndEvent) -> None:
    response = event.response
    if isinstance(event, LLMCompletionEndEvent):
        prompt, text = event.prompt, event.response.text
    else:
        prompt = "\n".join(message.content or "" for message in event.messages)
        text = "" if event.response is None else event.response.message.content or ""
    message = getattr(response, "message", None)
    usages = [
        getattr(response, "additional_kwargs", None),
        getattr(message, "additional_kwargs", None),
        _raw_usage(response),
    ]
    read = written = None
    for usage in usages:
        read = _first(usage, "prompt_tokens", "input_tokens") if read is None else read
        written = (
            _first(usage, "completion_tokens", "output_tokens") if written is None else written
        )
    books.model_call(prompt, text, read, written)


def _raw_usage(response: object) -> object:
    raw = getattr(response, "raw", None)
    return raw.get("usage") if isinstance(raw, dict) else getattr(raw, "usage", None)


def _first(usage: object, *names: str) -> int | None:
    for name in names:
        value = usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None)
        if isinstance(value, int):
            return value
    return None
