"""The model that answers and compresses.

A local `LanguageModel`, a LangChain chat model and a LlamaIndex LLM are recognised by their
methods, so no framework is imported here.
"""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ecs_plugins.errors import ConfigurationError, EcsPluginsError, ModelError
from ecs_plugins.frontier.usage import reported_usage
from ecs_plugins.lm.base import LanguageModel, Segment
from ecs_plugins.lm.prompts import split_cue

_Reply = tuple[str, int | None, int | None]  # text, prompt tokens, written tokens
TokenCounter = Callable[[Sequence[str]], Sequence[int]]

_WORKERS = 4  # requests to a model of a framework that run at a time
ANSWER_PROMPT = (
    "Answer the question from the context, with as few words as possible: a name, a number, a "
    "date, yes or no. Give the answer only.\n\n"
    "Context:\n{context}\n\nQuestion: {question}\nAnswer:"
)
"""The context stands first, so that a prompt cache can serve it to the next question."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply and the tokens it took."""

    text: str
    input_tokens: int
    output_tokens: int


@runtime_checkable
class AnswerModel(Protocol):
    """Answering model of a calibration, greedy and deterministic if possible."""

    @property
    def name(self) -> str:
        """Return a stable identifier, recorded in the artefact."""

    def complete(self, prompts: Sequence[str], *, max_new_tokens: int) -> list[Completion]:
        """Reply to each prompt, in order."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return tokens of each text."""


def answer_prompt(context: str, question: str, template: str = ANSWER_PROMPT) -> str:
    """Fill the template; braces in context or question are plain text."""
    values = {"{context}": context, "{question}": question}
    return re.sub(r"\{context\}|\{question\}", lambda found: values[found[0]], template)


def check_template(template: str) -> str:
    """Return the template; raise unless it has {context} once and then {question} once."""
    if re.findall(r"\{context\}|\{question\}", template) != ["{context}", "{question}"]:
        raise ConfigurationError(
            "an answer prompt needs {context} and after it {question}, once each"
        )
    return template


class LocalAnswerModel:
    """A `LanguageModel` that answers, greedily.

    A last line that ends with a colon ("Answer:") opens the model's reply instead of closing
    the user's turn: small models then answer at once and do not introduce their answer.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.name = model.name

    def complete(self, prompts: Sequence[str], *, max_new_tokens: int) -> list[Completion]:
        """Reply to each prompt within the model's chat layout.

        Raises:
            InvalidInputError: A prompt and its reply do not fit the model's window.
        """
        layout = self._model.layout
        head, tail = Segment(layout.head, trusted=True), Segment(layout.tail, trusted=True)
        laid_out = [
            (head, Segment(said), tail, *([Segment(cue)] if cue else ()))
            for said, cue in map(split_cue, prompts)
        ]
        generations = self._model.generate(
            laid_out, max_new_tokens=max_new_tokens, temperature=0.0, seed=42
        )
        return [Completion(g.text, g.prompt_tokens, g.completion_tokens) for g in generations]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return tokens of each text by the model's own tokenizer."""
        return self._model.count_tokens(texts)


class CallableAnswerModel:
    """Any function from prompt to text, with a token counter.

    Args:
        reply: ``prompt -> text`` or ``prompt -> (text, input tokens, output tokens)``; where it
            gives no tokens, they are counted.
        name: The recorded name.
        count_tokens: Tokens of each text.
        workers: How many prompts are answered at a time; for remote models.
    """

    def __init__(
        self,
        reply: Callable[[str], str | _Reply],
        *,
        name: str,
        count_tokens: TokenCounter | None = None,
        workers: int = 1,
    ) -> None:
        self._reply = reply
        self.name = name
        self._count = count_tokens
        self._workers = max(1, workers)

    def complete(self, prompts: Sequence[str], *, max_new_tokens: int) -> list[Completion]:
        """Reply to each prompt; the function decides the length of a reply.

        Raises:
            ModelError: The function failed.
        """
        replies = dict(self.complete_each(prompts, max_new_tokens=max_new_tokens))
        return [replies[place] for place in range(len(prompts))]

    def complete_each(
        self, prompts: Sequence[str], *, max_new_tokens: int
    ) -> Iterator[tuple[int, Completion]]:
        """Yield the place of each prompt with its reply, as soon as the reply is there.

        After an error no further prompt is sent. Replies under way come before it is raised.
        """
        del max_new_tokens
        pool = ThreadPoolExecutor(self._workers)
        # A context of its own for each, so that traces of the calls keep their parent.
        asked = {
            pool.submit(contextvars.copy_context().run, self._reply, prompt): place
            for place, prompt in enumerate(prompts)
        }
        failed: BaseException | None = None
        try:
            for done in as_completed(asked):
                if done.cancelled():
                    continue
                if done.exception() is None:
                    place = asked[done]
                    yield place, self._counted(prompts[place], done.result())
                elif failed is None:
                    failed = done.exception()
                    for other in asked:
                        other.cancel()
        finally:
            pool.shutdown(cancel_futures=True)
        if failed is None:
            return
        if isinstance(failed, EcsPluginsError) or not isinstance(failed, Exception):
            raise failed
        # A provider's client raises whatever its authors chose.
        raise ModelError(f"{self.name} could not answer: {failed}") from failed

    def _counted(self, prompt: str, reply: str | _Reply) -> Completion:
        text, read, written = (reply, None, None) if isinstance(reply, str) else reply
        read = self.count_tokens([prompt])[0] if read is None else read
        return Completion(text, read, self.count_tokens([text])[0] if written is None else written)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return tokens of each text.

        Raises:
            ConfigurationError: No counter was given.
        """
        if self._count is None:
            raise ConfigurationError(
                f"{self.name} does not say how many tokens a text has; give "
                "count_tokens=..., for example that of its tokenizer or of a LocalLM"
            )
        return [int(count) for count in self._count(texts)]


def as_answer_model(
    model: object,
    *,
    count_tokens: TokenCounter | None = None,
) -> AnswerModel:
    """Make an `AnswerModel` of a local model, a LangChain chat model or a LlamaIndex LLM.

    Args:
        model: An `AnswerModel` or `LanguageModel`; anything with ``invoke`` (LangChain) or
            with ``complete`` and ``metadata`` (LlamaIndex).
        count_tokens: For models that do not report the tokens they used.

    Raises:
        ConfigurationError: It is none of these.
    """
    if isinstance(model, LanguageModel):
        return LocalAnswerModel(model)
    if isinstance(model, AnswerModel):
        return model
    ask = getattr(model, "invoke", None)
    if not callable(ask) and hasattr(model, "metadata"):
        ask = getattr(model, "complete", None)
    if not callable(ask):
        raise ConfigurationError(
            f"{type(model).__name__} cannot answer: pass a LanguageModel, a LangChain chat model, "
            "a LlamaIndex LLM, or CallableAnswerModel(function, name=..., count_tokens=...)"
        )
    return CallableAnswerModel(
        lambda prompt: _reply(ask(prompt)),
        name=_name_of(model),
        count_tokens=count_tokens,
        workers=_WORKERS,
    )


def _name_of(model: Any) -> str:
    metadata = getattr(model, "metadata", None)
    for owner, field in ((model, "model_name"), (model, "model"), (metadata, "model_name")):
        value = getattr(owner, field, None)
        if isinstance(value, str) and value and value != "unknown":
            return value
    return type(model).__name__


def _reply(said: Any) -> _Reply:
    """Return the text of a string, a LangChain message or a LlamaIndex completion."""
    if isinstance(said, str):
        return said, None, None
    usage = reported_usage(said)
    return str(said.text), usage.prompt, usage.written
