"""A local language model as a LangChain chat model: one model for scoring and for answering.

A translation only: messages become turns, `ecs_plugins.lm` writes the reply.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LangSmithParams
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
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
from ecs_plugins.lm.base import Generation, LanguageModel, Segment, Segments
from ecs_plugins.lm.prompts import split_cue


class LocalChatModel(BaseChatModel):
    """A `LanguageModel` as a chat model.

    ```python
    model = LocalChatModel()  # the bundled model; or model="path/to/model", or a LocalLM
    model.invoke("Name a colour.")
    ```

    The model is loaded on first use and shared with everything else that names it. It reads text
    only and calls no tools. Results of tools, from a history that another model wrote, are shown
    to it as the user's. Streaming is by token where the model has a ``stream`` method
    (`ecs_plugins.integrations.chat.StreamingLanguageModel`), else in words of the finished reply.

    Attributes:
        model: A `LanguageModel`, a model name or directory, or None for the bundled model.
        max_tokens: Tokens that a reply may have.
        temperature: 0 is greedy.
        top_p: Nucleus of the sampling.
        seed: Seeds the sampling: one prompt, one seed, one reply.
        stop: Texts that end a reply and are cut off it.
        open_reply: Let a last line that ends with a colon ("Answer:") open the reply, as
            calibration of the Efficiency Frontier does: what was measured then holds here.
    """

    model: ModelField = None
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = 42
    stop: list[str] = Field(default_factory=list)
    open_reply: bool = False

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    @property
    @override
    def _llm_type(self) -> str:
        return "ecs-plugins-local"

    @property
    @override
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "model": model_name(self.model),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "stop": self.stop,
        }

    @override
    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or self.stop or None, **kwargs)
        params["ls_provider"] = "ecs_plugins"
        params.setdefault("ls_model_name", model_name(self.model))
        return params

    @property
    def model_name(self) -> str:
        """Name of the model behind; loads it."""
        return as_model(self.model).name

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text by the model's own tokenizer, special tokens off."""
        return as_model(self.model).count_tokens(texts)

    @override
    def get_num_tokens(self, text: str) -> int:
        """Tokens of a text by the model's own tokenizer, special tokens off."""
        return self.count_tokens([text])[0]

    @override
    def get_num_tokens_from_messages(
        self, messages: Sequence[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Tokens of the contents of messages, by the model's own tokenizer."""
        del tools
        return sum(self.count_tokens([turn["content"] for turn in turns(messages)]))

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        generation = reply(*self._request(messages, stop, kwargs))
        message = AIMessage(
            content=generation.text,
            usage_metadata=_usage(generation),
            response_metadata=self._response_metadata(generation, kwargs),
        )
        info = {"finish_reason": generation.finish_reason}
        return ChatResult(generations=[ChatGeneration(message=message, generation_info=info)])

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await run_sync(self._generate, messages, stop, **kwargs)

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        stream = ReplyStream(*self._request(messages, stop, kwargs))
        for piece in stream:
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager is not None:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        yield self._last_chunk(stream, kwargs)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        stream = ReplyStream(*await run_sync(self._request, messages, stop, kwargs))
        async for piece in stream:
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager is not None:
                await run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        yield self._last_chunk(stream, kwargs)

    def _last_chunk(self, stream: ReplyStream, kwargs: dict[str, Any]) -> ChatGenerationChunk:
        assert stream.generation is not None
        message = AIMessageChunk(
            content="",
            usage_metadata=_usage(stream.generation),
            response_metadata=self._response_metadata(stream.generation, kwargs),
            chunk_position="last",
        )
        return ChatGenerationChunk(
            message=message, generation_info={"finish_reason": stream.generation.finish_reason}
        )

    def _response_metadata(self, generation: Generation, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {
            "model_name": model_name(kwargs.get("model", self.model)),
            "model_provider": "ecs_plugins",
            "finish_reason": generation.finish_reason,
        }

    def _request(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> tuple[LanguageModel, Segments, ReplyOptions]:
        if kwargs.get("tools") or kwargs.get("functions"):
            raise InvalidInputError(
                "LocalChatModel does not call tools; give the agent a model that does, or no tools"
            )
        options = ReplyOptions(
            max_tokens=kwargs.get("max_tokens", self.max_tokens),
            temperature=kwargs.get("temperature", self.temperature),
            top_p=kwargs.get("top_p", self.top_p),
            seed=kwargs.get("seed", self.seed),
            stop=tuple(self.stop if stop is None else stop),
        )
        model = as_model(kwargs.get("model", self.model))
        said, cue = turns(messages), ""
        if self.open_reply and said:
            content, cue = split_cue(said[-1]["content"])
            said[-1] = {**said[-1], "content": content}
        prompt = chat_prompt(model, said)
        return model, (*prompt, Segment(cue)) if cue else prompt, options


def turns(messages: Sequence[BaseMessage]) -> list[Turn]:
    """Messages as turns of plain text.

    Raises:
        InvalidInputError: A message holds something else than text.
    """
    return [_turn(message) for message in messages]


def _turn(message: BaseMessage) -> Turn:
    text = _text(message)
    if isinstance(message, SystemMessage):
        return Turn(role="system", content=text)
    if isinstance(message, AIMessage):
        calls = [f"[calls {call['name']}({call['args']})]" for call in message.tool_calls]
        return Turn(role="assistant", content="\n".join([*([text] if text else []), *calls]))
    if isinstance(message, ToolMessage):
        return Turn(role="user", content=f"[result of {message.name or 'a tool'}]\n{text}")
    if isinstance(message, ChatMessage) and message.role in ("system", "user", "assistant"):
        return Turn(role=message.role, content=text)
    return Turn(role="user", content=text)


def _text(message: BaseMessage) -> str:
    if isinstance(message.content, list):
        for block in message.content:
            kind = "text" if isinstance(block, str) else block.get("type")
            # What providers add to their own replies is no input; an image or a file is.
            if not isinstance(message, AIMessage) and kind != "text":
                raise InvalidInputError(
                    f"LocalChatModel reads text only, and a message holds a block of type "
                    f"{kind!r}; leave it out or describe it in words"
                )
    return str(message.text)


def _usage(generation: Generation) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=generation.prompt_tokens,
        output_tokens=generation.completion_tokens,
        total_tokens=generation.prompt_tokens + generation.completion_tokens,
    )
