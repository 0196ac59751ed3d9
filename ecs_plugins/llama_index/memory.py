"""Entropic Memory in LlamaIndex: a chat memory, and a block after `Memory`'s short term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    MessageRole,
)
from llama_index.core.memory import BaseMemory, BaseMemoryBlock
from llama_index.core.utils import get_tokenizer
from pydantic import AfterValidator, Field, PrivateAttr
from typing_extensions import override

from ecs_plugins.common.aio import run_memory, run_sync
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.integrations.namespace_templates import Labels, fill_namespace
from ecs_plugins.integrations.notes import TextLength
from ecs_plugins.integrations.plain import last_index, turns
from ecs_plugins.integrations.recall import (
    RecallFields,
    RecallOptions,
    recall,
)
from ecs_plugins.integrations.sessions import SESSION, Session, known_path, memory_of
from ecs_plugins.llama_index.messages import (
    all_text,
    is_user,
    log_entry,
    remembered,
    speaker_metadata,
    text_of,
    to_message,
    visible_texts,
    with_note,
    without_marks_in,
)
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.outdating import ChatModelJudge as ChatModelJudge
from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.types import Namespace

_INSTRUCTIONS = (MessageRole.SYSTEM, MessageRole.DEVELOPER)


class _Held:
    """Open memory of a chat memory, shared by its copies and left out of pickles."""

    def __init__(self, memory: EntropicMemory | None) -> None:
        self.memory = memory

    def __deepcopy__(self, _: object) -> _Held:
        return self

    def __reduce__(self) -> tuple[type[_Held], tuple[None]]:
        return _Held, (None,)


class EntropicChatMemory(RecallFields, BaseMemory):
    """Chat memory with all messages of a session and the memories of its user.

    ```python
    chat_memory = EntropicChatMemory.from_defaults(memory, namespace=("u1",), session_id="s1")
    await agent.run("Where did we leave off?", memory=chat_memory)
    ```

    `get` returns the system messages and the latest turns of the session that fit ``token_limit``,
    and puts what is recalled for the latest question before it, between marks and as data.
    `get_all` returns the full log. Turns are kept whole, so no tool call is parted from its result.

    It is written down as the path of its file. Read back, it uses the memory of that path which
    the process has open, else it opens the file with the default embedder and settings.

    The fields are those of `RecallFields`, and:

    Attributes:
        path: The memory file, or its ``postgresql://`` address.
        session_id: Id of the conversation; the memory is shared by the namespace.
        token_limit: Tokens of the turns that `get` returns; the latest turn always stays.
        max_recall_tokens: Tokens of the recalled block at most.
        count_tokens: Tokens of a text; None is LlamaIndex's own tokenizer.
    """

    path: str
    session_id: str = "default"
    token_limit: int = Field(default=3000, ge=1)
    max_recall_tokens: int = Field(default=RecallOptions().max_tokens, ge=1)
    count_tokens: TextLength | None = Field(default=None, exclude=True)

    _recorded: str | None = PrivateAttr(default=None)
    _held: _Held = PrivateAttr(default_factory=lambda: _Held(None))

    @classmethod
    @override
    def class_name(cls) -> str:
        return "EntropicChatMemory"

    @classmethod
    @override
    def from_defaults(
        cls,
        memory: EntropicMemory | None = None,
        *,
        chat_history: Sequence[ChatMessage] | None = None,
        **fields: Any,
    ) -> EntropicChatMemory:
        """Return a chat memory of an open memory, or of a ``path``.

        Args:
            memory: The open memory; stays the caller's to close. None: give ``path``.
            chat_history: Earlier messages.
            **fields: Those of the class; ``namespace`` is mandatory.

        Raises:
            ConfigurationError: The memory has no file, the namespace cannot be one, or a field is
                unknown.
        """
        if memory is not None:
            fields["path"] = known_path(memory)
        made = cls(**fields)
        made._held = _Held(memory)
        if chat_history:
            made.set(list(chat_history))
        return made

    @property
    def memory(self) -> EntropicMemory:
        """Open memory that it uses."""
        held = self._held.memory
        if held is not None and not held.closed:
            return held
        return memory_of(self.path)

    @property
    def _session(self) -> Session:
        return Session(self.memory, self.namespace, self.session_id, "llama_index")

    @override
    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """Return the latest turns, with notes for ``input`` or the latest question.

        Args:
            input: The question; None is the latest message of the user.
            initial_token_count: Tokens of the prompt that count against ``token_limit``.
            **kwargs: Ignored.

        Raises:
            InvalidInputError: The initial count is over the limit.
        """
        if initial_token_count > self.token_limit:
            raise InvalidInputError(
                f"initial_token_count is {initial_token_count}, over token_limit={self.token_limit}"
            )
        entries = self._session.entries()
        messages = [to_message(entry) for entry in entries]
        shown = self._window(messages, self.token_limit - initial_token_count)
        view = [messages[index] for index in shown]
        index = last_index(view, is_user)
        question_key = None if index is None else entries[shown[index]].key
        question = "" if index is None else text_of(view[index])
        block = recall(
            self.memory,
            input or question,
            self.namespace,
            self.options(self.max_recall_tokens),
            text_length(self.count_tokens),
            # An agent reads its memory several times for one question.
            record=question_key is None or question_key != self._recorded,
            visible=visible_texts(view),
        )
        self._recorded = question_key
        inert = [without_marks_in(message) for message in view]
        return with_note(inert, block.text, index)

    @override
    def get_all(self) -> list[ChatMessage]:
        """Return the log of the session, oldest message first."""
        entries = self._session.entries()
        return [to_message(entry) for entry in entries]

    @override
    def put(self, message: ChatMessage) -> None:
        """Log a message, and remember it if the user or the assistant said it."""
        self.put_messages([message])

    @override
    def put_messages(self, messages: Sequence[ChatMessage]) -> None:
        """Log messages in order."""
        if messages:
            self._session.append([log_entry(message) for message in messages])

    @override
    def set(self, messages: Sequence[ChatMessage]) -> None:
        """Replace the log by these messages.

        Messages that the log begins with already stay as they are. Messages that leave the log stay
        in the memory: agents set the history that they were given. To erase, use `reset`.
        """
        session = self._session
        entries = session.entries()
        same = 0
        for entry, message in zip(entries, messages, strict=False):
            if to_message(entry) != message:
                break
            same += 1
        session.drop(entries[same:])
        if messages[same:]:
            session.append([log_entry(message) for message in messages[same:]])

    @override
    def reset(self) -> None:
        """Erase the session: its log, its messages and everything that rests on them alone."""
        self.erase()

    def erase(self) -> ErasureReceipt:
        """Do as `reset`, and return a receipt."""
        return self._session.clear()

    def _window(self, messages: Sequence[ChatMessage], limit: int) -> list[int]:
        """Return the indices of the instructions and of the latest whole turns within a limit.

        Instructions and the latest turn stay in any case.
        """
        length = text_length(self.count_tokens)
        lengths = [length(all_text(message)) for message in messages]
        instructions = [
            index for index, message in enumerate(messages) if message.role in _INSTRUCTIONS
        ]
        space = limit - sum(lengths[index] for index in instructions)
        kept: list[int] = []
        for turn in reversed(turns(messages, is_user)):
            spoken = [index for index in turn if index not in instructions]
            space -= sum(lengths[index] for index in spoken)
            if space < 0 and kept:
                break
            kept += spoken
        return sorted([*instructions, *kept])


def _no_template(namespace: Namespace) -> Namespace:
    if "{session_id}" in namespace:
        raise ConfigurationError(
            "'{session_id}' is a label like any other would be, and no session's memory; leave it "
            "out and pass per_session=True"
        )
    return namespace


class EntropicMemoryBlock(RecallFields, BaseMemoryBlock[str]):
    """Memory block that stores messages as they leave the short term, and recalls them.

    ```python
    chat_memory = Memory.from_defaults(
        session_id="s1", token_limit=4000, insert_method="user",
        memory_blocks=[EntropicMemoryBlock(memory=memory, namespace=("memories", "u1"))],
    )
    ```

    ``insert_method="user"`` keeps recalled text out of the system message. Recalled text stands
    between tags and is data. The block may serve several sessions at once; ``per_session`` gives
    each session a memory of its own.

    The fields are those of `RecallFields`, and:

    Attributes:
        memory: The open memory; stays the caller's to close.
        namespace: Namespace of the memory; without ``{session_id}``, see ``per_session``.
        per_session: True to add the session's id to the namespace as its last label.
        max_tokens: Tokens of the recalled block at most.
        count_tokens: Tokens of a text; None is LlamaIndex's own tokenizer, as `Memory` uses.
        priority: Blocks of 0 always stay; others leave a prompt that has no space for them.
    """

    name: str = "long_term_memory"
    description: str | None = "What was said in earlier conversations and bears on the question."
    priority: int = 1
    memory: EntropicMemory = Field(exclude=True, repr=False)
    namespace: Annotated[Labels, AfterValidator(_no_template)]
    per_session: bool = False
    max_tokens: int = Field(default=RecallOptions().max_tokens, ge=1)
    count_tokens: TextLength | None = Field(default=None, exclude=True)

    @override
    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        messages = messages or []
        index = last_index(messages, is_user)
        if index is None:
            return ""
        run = run_memory if self.shaper is None else run_sync
        block = await run(
            recall,
            self.memory,
            text_of(messages[index]),
            self._namespace_of(block_kwargs.get("session_id")),
            self.options(self.max_tokens),
            text_length(self.count_tokens),
            visible=visible_texts(messages),
        )
        return block.text

    @override
    async def _aput(self, messages: list[ChatMessage]) -> None:
        drafts: dict[Namespace, list[NewMessage]] = {}
        for message in messages:
            role, text = remembered(message)
            if role is None or text is None:
                continue
            session = message.additional_kwargs.get("session_id")
            metadata = speaker_metadata(message, role)
            if session:
                metadata[SESSION] = session
            draft = NewMessage(text=text, role=role, metadata=metadata)
            namespace = self._namespace_of(session)
            drafts.setdefault(namespace, []).append(draft)
        for namespace, new in drafts.items():
            await run_memory(self.memory.add, new, namespace=namespace)

    def _namespace_of(self, session_id: str | None) -> Namespace:
        if not self.per_session:
            return self.namespace
        labels = fill_namespace(("{session_id}",), {"session_id": session_id})
        return (*self.namespace, *labels)


def text_length(count_tokens: TextLength | None) -> TextLength:
    """Return the user's counter of tokens, or that of LlamaIndex's own tokenizer."""
    if count_tokens is not None:
        return count_tokens
    tokenizer: Callable[[str], Sequence[object]] = get_tokenizer()
    return lambda text: len(tokenizer(text))
