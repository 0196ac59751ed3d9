"""Entropic Memory as a LlamaIndex memory block: the long term behind `Memory`'s short term."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.utils import get_tokenizer
from pydantic import ConfigDict, Field, field_validator
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.integrations.recall import (
    RecallOptions,
    check_template,
    fill_namespace,
    recall,
    said,
    shortened,
)
from ecs_plugins.llama_index._memory_messages import last_question, role_of, text_of
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.store.messages import NewMessage

_DEFAULTS = RecallOptions()


class EntropicMemoryBlock(BaseMemoryBlock[str]):
    """Remembers what leaves the short term, and recalls what matters for the present question.

    ```python
    chat_memory = Memory.from_defaults(
        session_id="s1", token_limit=4000, insert_method="user",
        memory_blocks=[EntropicMemoryBlock(memory=memory, namespace=("memories", "u1"))],
    )
    ```

    ``insert_method="user"`` keeps recalled text out of the system message. What is recalled stands
    between marks and is data. Nothing of a call is kept in the block, so it may serve several
    sessions at once; ``"{session_id}"`` in the namespace gives each session a memory of its own.

    Attributes:
        memory: The open memory; stays the caller's to close.
        namespace: Whose memory.
        k: How many recollections at most.
        threshold: Least cosine to the question.
        max_tokens: Tokens of the recalled block at most.
        count_tokens: Tokens of a text; None is LlamaIndex's own tokenizer, as `Memory` uses.
        priority: 0 would never be truncated; 1 is truncated last.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = "long_term_memory"
    description: str | None = "What was said in earlier conversations and bears on the question."
    priority: int = 1
    memory: EntropicMemory = Field(exclude=True, repr=False)
    namespace: tuple[str, ...]
    k: int = Field(default=_DEFAULTS.k, ge=1)
    threshold: float = Field(default=_DEFAULTS.threshold, ge=-1, le=1)
    max_tokens: int = Field(default=_DEFAULTS.max_tokens, ge=1)
    count_tokens: Callable[[str], int] | None = Field(default=None, exclude=True)

    @field_validator("namespace")
    @classmethod
    def _check_namespace(cls, namespace: tuple[str, ...]) -> tuple[str, ...]:
        return check_template(namespace)

    @override
    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        messages = messages or []
        index = last_question(messages)
        if index is None:
            return ""
        namespace = self._namespace_of(block_kwargs.get("session_id"))
        options = RecallOptions(k=self.k, threshold=self.threshold, max_tokens=self.max_tokens)
        question = text_of(messages[index])
        visible = {text_of(message) for message in messages}
        recalled = await run_sync(
            recall,
            self.memory,
            question,
            namespace,
            options,
            self._counter(),
            visible=visible,
        )
        return recalled.text

    @override
    async def _aput(self, messages: list[ChatMessage]) -> None:
        turns: dict[Namespace, list[NewMessage]] = {}
        for message in messages:
            role = role_of(message)
            text = said(text_of(message)) if role else None
            if role is None or text is None:
                continue
            session = message.additional_kwargs.get("session_id")
            metadata = {"role": role, **({"session": session} if session else {})}
            turns.setdefault(self._namespace_of(session), []).append(
                NewMessage(text=text, role=role, metadata=metadata)
            )
        for namespace, drafts in turns.items():
            await run_sync(self.memory.add, drafts, namespace=namespace)

    @override
    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Leave out the recollections that fit the question least.

        Returns:
            The shortened block; None if not even the best recollection fits.
        """
        count = self._counter()
        room = await run_sync(count, content) - tokens_to_truncate
        return await run_sync(shortened, content, room, count)

    def _counter(self) -> Callable[[str], int]:
        if self.count_tokens is not None:
            return self.count_tokens
        tokenizer = get_tokenizer()
        return lambda text: len(tokenizer(text))

    def _namespace_of(self, session_id: str | None) -> Namespace:
        return fill_namespace(self.namespace, {"session_id": session_id})
