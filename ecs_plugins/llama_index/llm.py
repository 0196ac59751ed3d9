"""A local language model as a LlamaIndex LLM: one model for scoring and for answering.

A translation only: messages become turns, `ecs_plugins.lm` writes the reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
    TextBlock,
)
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from pydantic import ConfigDict, Field
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.chat import (
    DEFAULT_MAX_TOKENS,
    ModelField,
    ReplyOptions,
    ReplyStream,
    Turn,
    chat_prompt,
    model_name,
    reply,
)
from ecs_plugins.integrations.fields import as_model
from ecs_plugins.llama_index._pickling import PickledWhole
from ecs_plugins.lm.base import Generation, LanguageModel, Segments

_IGNORED = frozenset({"image", "audio", "video", "document"})


class LocalLLM(PickledWhole, CustomLLM):
    """A `LanguageModel` as a LlamaIndex LLM.

    ```python
    Settings.llm = LocalLLM()  # the bundled model; or model="path/to/model", or a LocalLM
    ```

    The model is loaded on first use and shared with everything else that names it. It reads text
    only and calls no tools. Streaming is by token where the model has a ``stream`` method
    (`ecs_plugins.integrations.chat.StreamingLanguageModel`), else in words of the finished reply.

    Attributes:
        model: A `LanguageModel`, a model name or directory, or None for the bundled model.
        max_tokens: Tokens that a reply may have.
        temperature: 0 is greedy.
        top_p: Nucleus of the sampling.
        seed: Seeds the sampling: one prompt, one seed, one reply.
        stop: Texts that end a reply and are cut off it.
        context_window: Tokens of prompt and reply; None asks the model, which loads it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: ModelField = None
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = 42
    stop: list[str] = Field(default_factory=list)
    context_window: int | None = Field(default=None, ge=1)

    @classmethod
    @override
    def class_name(cls) -> str:
        """The name under which LlamaIndex serialises it."""
        return "ecs_plugins_local_llm"

    @property
    @override
    def metadata(self) -> LLMMetadata:
        """Window, length of a reply and name."""
        return LLMMetadata(
            context_window=self.context_window or as_model(self.model).max_tokens,
            num_output=self.max_tokens,
            is_chat_model=True,
            model_name=model_name(self.model),
        )

    @override
    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The reply to a conversation."""
        generation = reply(*self._request(turns(messages), kwargs))
        return _chat_response(generation.text, None, generation)

    @override
    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """`chat` with the model off the event loop."""
        generation = await run_sync(self._reply, turns(messages), kwargs)
        return _chat_response(generation.text, None, generation)

    @override
    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The reply to a conversation in pieces."""
        stream = ReplyStream(*self._request(turns(messages), kwargs))

        def pieces() -> ChatResponseGen:
            text = ""
            for piece in stream:
                text += piece
                yield _chat_response(text, piece, None)
            yield _chat_response(text, "", stream.generation)

        return pieces()

    @override
    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """`stream_chat` with the model off the event loop."""
        stream = ReplyStream(*await run_sync(self._request, turns(messages), kwargs))

        async def pieces() -> ChatResponseAsyncGen:
            text = ""
            async for piece in stream:
                text += piece
                yield _chat_response(text, piece, None)
            yield _chat_response(text, "", stream.generation)

        return pieces()

    @override
    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The reply to one user turn; with ``formatted``, the continuation of the text itself."""
        generation = reply(*self._completion(prompt, formatted, kwargs))
        return _completion_response(generation.text, None, generation)

    @override
    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """`complete` with the model off the event loop."""
        request = await run_sync(self._completion, prompt, formatted, kwargs)
        generation = await run_sync(reply, *request)
        return _completion_response(generation.text, None, generation)

    @override
    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """`complete` in pieces."""
        stream = ReplyStream(*self._completion(prompt, formatted, kwargs))

        def pieces() -> CompletionResponseGen:
            text = ""
            for piece in stream:
                text += piece
                yield _completion_response(text, piece, None)
            yield _completion_response(text, "", stream.generation)

        return pieces()

    @override
    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """`stream_complete` with the model off the event loop."""
        stream = ReplyStream(*await run_sync(self._completion, prompt, formatted, kwargs))

        async def pieces() -> CompletionResponseAsyncGen:
            text = ""
            async for piece in stream:
                text += piece
                yield _completion_response(text, piece, None)
            yield _completion_response(text, "", stream.generation)

        return pieces()

    def _reply(self, conversation: Sequence[Turn], kwargs: dict[str, Any]) -> Generation:
        return reply(*self._request(conversation, kwargs))

    def _request(
        self, conversation: Sequence[Turn], kwargs: dict[str, Any]
    ) -> tuple[LanguageModel, Segments, ReplyOptions]:
        model = as_model(self.model)
        if self.system_prompt and not any(turn["role"] == "system" for turn in conversation):
            conversation = [Turn(role="system", content=self.system_prompt), *conversation]
        return model, chat_prompt(model, conversation), self._options(kwargs)

    def _completion(
        self, prompt: str, formatted: bool, kwargs: dict[str, Any]
    ) -> tuple[LanguageModel, Segments, ReplyOptions]:
        if not formatted:
            return self._request([Turn(role="user", content=prompt)], kwargs)
        from ecs_plugins.lm.base import Segment

        # Who formats a prompt has laid it out for the model, special tokens included.
        return as_model(self.model), (Segment(prompt, trusted=True),), self._options(kwargs)

    def _options(self, kwargs: dict[str, Any]) -> ReplyOptions:
        if kwargs.get("tools"):
            raise InvalidInputError(
                "LocalLLM does not call tools; give the agent a model that does, or no tools"
            )
        names = ("max_tokens", "temperature", "top_p", "seed", "stop")
        values = {name: kwargs.get(name, getattr(self, name)) for name in names}
        values["stop"] = tuple(values["stop"] or ())
        return ReplyOptions(**values)


def turns(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Messages as turns of plain text.

    Raises:
        InvalidInputError: A message holds something else than text.
    """
    return [_turn(message) for message in messages]


def _turn(message: ChatMessage) -> Turn:
    for block in message.blocks:
        if block.block_type in _IGNORED:
            raise InvalidInputError(
                f"LocalLLM reads text only, and a message holds a block of type "
                f"{block.block_type!r}; leave it out or describe it in words"
            )
    text = "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))
    if message.role in (MessageRole.SYSTEM, MessageRole.DEVELOPER):
        return Turn(role="system", content=text)
    if message.role in (MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL):
        return Turn(role="assistant", content=text)
    if message.role in (MessageRole.TOOL, MessageRole.FUNCTION):
        name = message.additional_kwargs.get("name") or "a tool"
        return Turn(role="user", content=f"[result of {name}]\n{text}")
    return Turn(role="user", content=text)


def _usage(generation: Generation | None) -> dict[str, Any]:
    """LlamaIndex's token counters look for these names."""
    if generation is None:
        return {}
    return {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.completion_tokens,
        "total_tokens": generation.prompt_tokens + generation.completion_tokens,
        "finish_reason": generation.finish_reason,
    }


def _chat_response(text: str, delta: str | None, generation: Generation | None) -> ChatResponse:
    return ChatResponse(
        message=ChatMessage(role=MessageRole.ASSISTANT, content=text),
        delta=delta,
        additional_kwargs=_usage(generation),
    )


def _completion_response(
    text: str, delta: str | None, generation: Generation | None
) -> CompletionResponse:
    return CompletionResponse(text=text, delta=delta, additional_kwargs=_usage(generation))
