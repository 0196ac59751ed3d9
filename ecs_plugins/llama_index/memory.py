"""Entropic Memory as a LlamaIndex chat memory: the log of a session and a memory behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemory
from llama_index.core.utils import get_tokenizer
from pydantic import ConfigDict, Field, PrivateAttr, field_validator
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.integrations.conversation import Session
from ecs_plugins.integrations.open_memories import known, shared
from ecs_plugins.integrations.recall import RecallOptions, recall
from ecs_plugins.llama_index._memory_messages import (
    last_question,
    size_text,
    text_of,
    to_entry,
    to_message,
    turns_of,
    with_note,
)
from ecs_plugins.llama_index._pickling import PickledWhole
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.namespaces import checked
from ecs_plugins.memory.records import ErasureReceipt, Recollection

_DEFAULTS = RecallOptions()


class EntropicChatMemory(PickledWhole, BaseMemory):
    """All messages of a session, and what matters now of everything that a user ever said.

    ```python
    chat_memory = EntropicChatMemory.from_defaults(memory, namespace=("u1",), session_id="s1")
    await agent.run("Where did we leave off?", memory=chat_memory)
    ```

    `get` returns the latest turns of the session that fit ``token_limit``, and puts what is
    recalled for the latest question before it, between marks and as data. `get_all` returns the
    full log. Turns are kept whole, so no tool call is parted from its result.

    It is written down as the path of its file (``Context.to_dict``, ``to_dict``, pickle). Read
    back, it uses the memory of that path which the process has open, else it opens the file with
    the default embedder and settings.

    Attributes:
        path: The memory file.
        namespace: Whose memory.
        session_id: Which conversation; its log is its own, the memory is shared by the namespace.
        token_limit: Tokens of the turns that `get` returns; the latest turn always stays.
        k: How many recollections at most.
        threshold: Least cosine to the question.
        max_recall_tokens: Tokens of the recalled block at most.
        count_tokens: Tokens of a text; None is LlamaIndex's own tokenizer.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    path: str
    namespace: tuple[str, ...]
    session_id: str = "default"
    token_limit: int = Field(default=3000, ge=1)
    k: int = Field(default=_DEFAULTS.k, ge=1)
    threshold: float = Field(default=_DEFAULTS.threshold, ge=-1, le=1)
    max_recall_tokens: int = Field(default=_DEFAULTS.max_tokens, ge=1)
    count_tokens: Callable[[str], int] | None = Field(default=None, exclude=True)

    _recorded: str | None = PrivateAttr(default=None)

    @field_validator("namespace")
    @classmethod
    def _check_namespace(cls, namespace: tuple[str, ...]) -> tuple[str, ...]:
        return checked(namespace)

    @classmethod
    @override
    def class_name(cls) -> str:
        """The name under which LlamaIndex serialises it."""
        return "EntropicChatMemory"

    @classmethod
    @override
    def from_defaults(
        cls,
        memory: EntropicMemory | None = None,
        *,
        namespace: Sequence[str] = (),
        session_id: str = "default",
        chat_history: Sequence[ChatMessage] | None = None,
        **kwargs: Any,
    ) -> EntropicChatMemory:
        """A chat memory of an open memory, or of a ``path``.

        Args:
            memory: The open memory; stays the caller's to close. None: give ``path``.
            namespace: Whose memory.
            session_id: Which conversation.
            chat_history: What was said already.
            **kwargs: Further fields.

        Raises:
            ConfigurationError: The memory has no file.
            InvalidInputError: The namespace cannot be one.
        """
        if memory is not None:
            kwargs["path"] = known(memory)
        made = cls(namespace=tuple(namespace), session_id=session_id, **kwargs)
        if chat_history:
            made.set(list(chat_history))
        return made

    @property
    def memory(self) -> EntropicMemory:
        """The open memory behind it."""
        return shared(self.path)

    @property
    def _session(self) -> Session:
        return Session(self.memory, self.namespace, self.session_id)

    @override
    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        """The latest turns, with what is recalled for ``input`` or the latest question."""
        entries = self._session.entries()
        messages = [to_message(entry) for entry in entries]
        shown = self._window(messages)
        view = [messages[index] for index in shown]
        question = last_question(view)
        query = input or ("" if question is None else text_of(view[question]))
        latest = None if question is None else entries[shown[question]].key
        count = self._counter()
        options = RecallOptions(
            k=self.k, threshold=self.threshold, max_tokens=self.max_recall_tokens
        )
        recalled = recall(
            self.memory,
            query,
            self.namespace,
            options,
            count,
            # An agent reads its memory several times for one question.
            record=latest is None or latest != self._recorded,
            visible=[text_of(message) for message in view],
        )
        self._recorded = latest
        if not recalled.text:
            return view
        if question is None:
            return [*view, ChatMessage(role="user", content=recalled.text)]
        view[question] = with_note(view[question], recalled.text)
        return view

    @override
    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        """`get` with the embedder and the database off the event loop."""
        return await run_sync(self.get, input, **kwargs)

    @override
    def get_all(self) -> list[ChatMessage]:
        """The log of the session, oldest message first."""
        return [to_message(entry) for entry in self._session.entries()]

    @override
    async def aget_all(self) -> list[ChatMessage]:
        """`get_all` off the event loop."""
        return await run_sync(self.get_all)

    @override
    def put(self, message: ChatMessage) -> None:
        """Log a message, and remember it if the user or the assistant said it."""
        self.put_messages([message])

    @override
    async def aput(self, message: ChatMessage) -> None:
        """`put` off the event loop."""
        await run_sync(self.put_messages, [message])

    @override
    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Log messages in order."""
        self._session.append([to_entry(message) for message in messages])

    @override
    async def aput_messages(self, messages: Sequence[ChatMessage]) -> None:
        """`put_messages` off the event loop."""
        await run_sync(self.put_messages, messages)

    @override
    def set(self, messages: Sequence[ChatMessage]) -> None:
        """Make the log consist of these messages.

        What the log begins with already stays as it is. What leaves the log stays remembered:
        agents set what they were given as history. To erase, use `reset`.
        """
        session = self._session
        entries = session.entries()
        same = 0
        while (
            same < min(len(entries), len(messages)) and to_message(entries[same]) == messages[same]
        ):
            same += 1
        session.drop(entries[same:])
        session.append([to_entry(message) for message in messages[same:]])

    @override
    async def aset(self, messages: Sequence[ChatMessage]) -> None:
        """`set` off the event loop."""
        await run_sync(self.set, messages)

    @override
    def reset(self) -> None:
        """Erase the session: its log, its messages, and what is remembered of them alone."""
        self.erase()

    @override
    async def areset(self) -> None:
        """`reset` off the event loop."""
        await run_sync(self.erase)

    def erase(self) -> ErasureReceipt:
        """`reset`, with a receipt."""
        return self._session.clear()

    def recall(self, query: str, *, k: int | None = None) -> list[Recollection]:
        """What is remembered about a question in all sessions of the namespace, best first."""
        return self.memory.recall(
            query,
            namespace=self.namespace,
            k=self.k if k is None else k,
            threshold=self.threshold,
        )

    def _window(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Indices of the latest whole turns within the limit; the latest turn in any case."""
        count = self._counter()
        room = self.token_limit
        kept: list[int] = []
        for turn in reversed(turns_of(messages)):
            room -= sum(count(size_text(messages[index])) for index in turn)
            if room < 0 and kept:
                break
            kept = [*turn, *kept]
        return kept

    def _counter(self) -> Callable[[str], int]:
        if self.count_tokens is not None:
            return self.count_tokens
        tokenizer = get_tokenizer()
        return lambda text: len(tokenizer(text))
