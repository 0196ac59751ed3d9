"""Entropic Memory as a LlamaIndex memory block: the long term behind `Memory`'s short term."""

from __future__ import annotations

from typing import Annotated, Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemoryBlock
from pydantic import BeforeValidator, Field
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.integrations.conversation import SESSION, last_index
from ecs_plugins.integrations.recall import (
    RecallFields,
    RecallOptions,
    TextLength,
    check_template,
    fill_namespace,
    recall,
    said,
    shortened,
)
from ecs_plugins.llama_index.memory import is_user, role_of, text_length, text_of
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.namespaces import Namespace
from ecs_plugins.memory.store.messages import NewMessage


class EntropicMemoryBlock(RecallFields, BaseMemoryBlock[str]):
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
        threshold: Minimum cosine similarity to the question.
        max_tokens: Tokens of the recalled block at most.
        count_tokens: Tokens of a text; None is LlamaIndex's own tokenizer, as `Memory` uses.
        priority: 0 would never be truncated; 1 is truncated last.
    """

    name: str = "long_term_memory"
    description: str | None = "What was said in earlier conversations and bears on the question."
    priority: int = 1
    memory: EntropicMemory = Field(exclude=True, repr=False)
    namespace: Annotated[Namespace, BeforeValidator(check_template)]
    max_tokens: int = Field(default=RecallOptions().max_tokens, ge=1)
    count_tokens: TextLength | None = Field(default=None, exclude=True)

    @override
    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        messages = messages or []
        index = last_index(messages, is_user)
        if index is None:
            return ""
        recalled = await run_sync(
            recall,
            self.memory,
            text_of(messages[index]),
            self._namespace_of(block_kwargs.get("session_id")),
            RecallOptions(k=self.k, threshold=self.threshold, max_tokens=self.max_tokens),
            text_length(self.count_tokens),
            visible={text_of(message) for message in messages},
        )
        return recalled.text

    @override
    async def _aput(self, messages: list[ChatMessage]) -> None:
        drafts: dict[Namespace, list[NewMessage]] = {}
        for message in messages:
            role = role_of(message)
            text = said(text_of(message)) if role else None
            if role is None or text is None:
                continue
            session = message.additional_kwargs.get("session_id")
            metadata = {"role": role, **({SESSION: session} if session else {})}
            drafts.setdefault(self._namespace_of(session), []).append(
                NewMessage(text=text, role=role, metadata=metadata)
            )
        for namespace, new in drafts.items():
            await run_sync(self.memory.add, new, namespace=namespace)

    @override
    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Leave out the recollections that fit the question least.

        Returns:
            The shortened block; None if not even the best recollection fits.
        """
        length = text_length(self.count_tokens)
        room = await run_sync(length, content) - tokens_to_truncate
        return await run_sync(shortened, content, room, length)

    def _namespace_of(self, session_id: str | None) -> Namespace:
        return fill_namespace(self.namespace, {"session_id": session_id})
