"""What the chat-model integrations share: turns to a prompt, options to a reply, text to a stream.

`ecs_plugins.langchain.LocalChatModel` and `ecs_plugins.llama_index.LocalLLM` translate the
messages of their framework into turns; the rest is decided here, once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

from pydantic import PlainSerializer, PlainValidator

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.integrations.fields import _check_model
from ecs_plugins.lm.base import Generation, LanguageModel, Segment, Segments

ModelField = Annotated[
    str | LanguageModel | None,
    PlainValidator(_check_model, json_schema_input_type=str | None),
    PlainSerializer(lambda value: value if value is None else model_name(value)),
]
"""The field that names a language model: one, its name or directory, or None (the bundled one).

Written down as its name: frameworks write a model down for every call that they trace.
"""

BUNDLED = "bundled"
"""What a model is called in traces that was not named."""

DEFAULT_MAX_TOKENS = 256
"""Tokens of a reply, where nobody says."""


Turn = dict[str, str]
"""One turn of a chat: ``role`` (``system``, ``user`` or ``assistant``) and ``content``."""


@runtime_checkable
class StreamingLanguageModel(Protocol):
    """A `LanguageModel` that can hand out its reply while it writes it.

    A model without this method is streamed in words once its reply is whole.
    """

    def stream(
        self,
        prompt: Segments,
        *,
        max_new_tokens: int,
        temperature: float,
        top_p: float,
        seed: int,
        stop: Sequence[str],
    ) -> Generator[str, None, Generation]:
        """Yield pieces of the reply that join to its text; return what `generate` would have."""
        ...


@runtime_checkable
class _RendersChat(Protocol):
    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> Segments: ...


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How a reply is written."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 42
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise InvalidInputError(f"stop is a list of texts; write [{self.stop!r}]")


def model_name(model: str | LanguageModel | None) -> str:
    """What a ``model`` field is called in traces; loads nothing."""
    if model is None:
        return BUNDLED
    return model if isinstance(model, str) else model.name


def reply(model: LanguageModel, prompt: Segments, options: ReplyOptions) -> Generation:
    """The whole reply to one prompt."""
    (generation,) = model.generate(
        [prompt],
        max_new_tokens=options.max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        seed=options.seed,
        stop=options.stop,
    )
    return generation


def stream_reply(
    model: LanguageModel, prompt: Segments, options: ReplyOptions
) -> Generator[str, None, Generation]:
    """Yield pieces that join to the reply, and return it; token by token if the model can."""
    if isinstance(model, StreamingLanguageModel):
        return (
            yield from model.stream(
                prompt,
                max_new_tokens=options.max_tokens,
                temperature=options.temperature,
                top_p=options.top_p,
                seed=options.seed,
                stop=options.stop,
            )
        )
    generation = reply(model, prompt, options)
    yield from re.findall(r"\s*\S+|\s+$", generation.text)
    return generation


class ReplyStream:
    """The pieces of a reply, and the whole of it once they have been read.

    Args:
        model: Writes it.
        prompt: What it replies to.
        options: How.
    """

    def __init__(self, model: LanguageModel, prompt: Segments, options: ReplyOptions) -> None:
        self._pieces = stream_reply(model, prompt, options)
        self.generation: Generation | None = None
        """The whole reply; None until the last piece was read."""

    def __iter__(self) -> Iterator[str]:
        self.generation = yield from self._pieces

    async def __aiter__(self) -> AsyncIterator[str]:
        pieces = iter(self)
        while (piece := await run_sync(next, pieces, None)) is not None:
            yield piece


def chat_prompt(model: LanguageModel, turns: Sequence[Turn]) -> Segments:
    """The prompt for the assistant's next turn; contents stay untrusted.

    Neighbouring turns of one role are joined, because many chat templates want roles to
    alternate. A template that knows no system role gets the instruction in the first user turn.

    Raises:
        InvalidInputError: There is no turn.
        ConfigurationError: The model's chat template refuses these roles.
    """
    if not turns:
        raise InvalidInputError("a chat needs at least one message")
    joined = _joined(turns)
    if not isinstance(model, _RendersChat):
        return _transcript(model, joined)
    try:
        return model.render_chat(joined)
    except ConfigurationError:
        if joined[0]["role"] != "system" or len(joined) == 1:
            raise
        without = _joined([{**joined[0], "role": "user"}, *joined[1:]])
        return model.render_chat(without)


def _joined(turns: Sequence[Turn]) -> list[Turn]:
    out: list[Turn] = []
    for turn in turns:
        if out and out[-1]["role"] == turn["role"]:
            parts = (out[-1]["content"], turn["content"])
            out[-1]["content"] = "\n\n".join(part for part in parts if part)
        else:
            out.append(dict(turn))
    return out


def _transcript(model: LanguageModel, turns: Sequence[Turn]) -> Segments:
    """For a model that lays out one user turn only: the conversation inside it."""
    layout = model.layout
    if len(turns) == 1:
        body = [Segment(turns[0]["content"])]
    else:
        body = []
        for turn in turns:
            body += [
                Segment(f"{turn['role'].capitalize()}: ", trusted=True),
                Segment(turn["content"]),
                Segment("\n", trusted=True),
            ]
        body[-1:] = []
    return (
        Segment(layout.head, trusted=True),
        *body,
        Segment(layout.tail, trusted=True),
    )
