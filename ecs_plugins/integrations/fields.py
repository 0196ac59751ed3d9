"""What the integrations share: fields that become a `ContextShaper`, verdicts that become metadata.

Each integration translates the types and events of its framework and nothing else. The fields
every one of them offers, how they override a `ShapingConfig`, how they are validated, copied
and written as JSON, and what a kept passage carries, are decided here, once.

Only the adapter modules import this module: pydantic comes with their frameworks.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    model_validator,
)

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.ranking.embedder import (
    Embedder,
    LangChainEmbeddings,
    LlamaIndexEmbedding,
    as_embedder,
)
from ecs_plugins.ranking.registry import LazyRanker
from ecs_plugins.shaping.config import ShapingConfig, resolve_signal
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.shaping.signals import SIGNALS
from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.signals.fused import RankFused

METADATA_KEY = "ecs"
"""The metadata key under which a kept passage carries its verdict."""

AnswerSource = Callable[[str], str | Sequence[str] | None]
"""From a query to its known answer or answers; None where none is known."""


def as_model(model: str | LanguageModel | None) -> LanguageModel:
    """The language model behind a ``model`` field.

    Args:
        model: A model, the name or directory of one, or None for the bundled model.

    Raises:
        ModelNotFoundError: The model is not on this machine.
    """
    return _named_model(model) if model is None or isinstance(model, str) else model


@cache
def _named_model(name: str | None) -> LanguageModel:
    # Weights live as long as a handle on them. Frameworks rebuild their objects, even for each
    # call, so the handle is kept here and not by the object.
    from ecs_plugins.lm.local import LocalLM  # torch is loaded when a model is needed

    return LocalLM.bundled() if name is None else LocalLM.from_pretrained(name)


def _check_model(value: object) -> object:
    """Accept a name, None or anything that looks like a `LanguageModel`.

    Looked up statically: ``isinstance`` against the protocol would read its properties, and
    ``layout`` or ``max_tokens`` of a lazy model would load the weights in a constructor.
    """
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    missing = [
        name
        for name in ("score", "generate", "count_tokens")
        if inspect.getattr_static(value, name, None) is None
    ]
    if missing or isinstance(value, type):
        raise ConfigurationError(
            f"model must be a model name, a directory, a LanguageModel or None (the bundled "
            f"model), got {type(value).__name__} {value!r:.80}"
        )
    return value


def _check_config(value: object) -> ShapingConfig:
    if isinstance(value, ShapingConfig):
        return value
    if isinstance(value, Mapping):
        return ShapingConfig.from_json(value)
    raise ConfigurationError(
        f"config must be a ShapingConfig or a dict of its fields, got {type(value).__name__}"
    )


def _check_answer(value: object) -> object:
    if value is None or callable(value):
        return value
    raise ConfigurationError(
        "answer must be a function from a query to its known answer or answers, "
        f"got {type(value).__name__}; for one fixed answer use: lambda query: answer"
    )


def _check_embedder(
    value: Embedder | LangChainEmbeddings | LlamaIndexEmbedding | None,
) -> Embedder | None:
    return None if value is None else as_embedder(value)


def config_fields(config: ShapingConfig) -> dict[str, object]:
    """The fields of ``config``; plain values unless it holds an own signal or ranker."""
    return dict(config)


def _plain_config(config: ShapingConfig) -> dict[str, object]:
    values = config_fields(config)
    for name, value in values.items():
        _plain(f"config.{name}", value)
    return values


def _plain(name: str, value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    raise ConfigurationError(
        f"{name} is an object ({type(value).__name__}) and cannot be written as JSON; "
        "give it by name, or leave it out and pass it again when loading"
    )


def _serialise(name: str) -> PlainSerializer:
    return PlainSerializer(lambda value: _plain(name, value))


class _RankerInUse:
    """The ranker of a component between its calls, because it remembers what it has embedded.

    Only one: another name or embedder replaces it. Copies of the component share it, a pickle
    begins without one, and components are equal whatever theirs remember.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._embedder: object = None
        self._ranker: LazyRanker | None = None

    def get(
        self, name: str, embedder: Embedder | LangChainEmbeddings | LlamaIndexEmbedding | None
    ) -> LazyRanker:
        with self._lock:
            ranker = self._ranker
            if ranker is None or ranker.name != name or self._embedder is not embedder:
                ranker = LazyRanker(name, None if embedder is None else as_embedder(embedder))
                self._ranker, self._embedder = ranker, embedder
            return ranker

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RankerInUse)

    def __hash__(self) -> int:
        return hash(_RankerInUse)

    def __deepcopy__(self, memo: dict[int, object]) -> _RankerInUse:
        return self

    def __reduce__(self) -> tuple[type[_RankerInUse], tuple[()]]:
        return (_RankerInUse, ())


class ShapingFields(BaseModel):
    """The fields of every integration that shapes retrieved passages.

    No model is loaded before the first passage is scored. A copy shares the model; a pickle
    holds what the model pickles as.
    """

    model: Annotated[
        str | LanguageModel | None,
        PlainValidator(_check_model, json_schema_input_type=str | None),
        _serialise("model"),
    ] = Field(
        default=None,
        description="A LanguageModel, a model name or directory, or None: the bundled model.",
    )
    config: Annotated[
        ShapingConfig,
        PlainValidator(_check_config, json_schema_input_type=dict[str, Any]),
        PlainSerializer(_plain_config),
    ] = Field(
        default_factory=ShapingConfig,
        description="How passages are ranked, scored and accepted.",
    )
    top_k: int | None = Field(
        default=None, description="Keep at most so many passages; overrides the config."
    )
    threshold: float | None = Field(
        default=None, description="Least utility in nats; overrides the config."
    )
    max_tokens: int | None = Field(
        default=None, description="Token budget of the kept passages; overrides the config."
    )
    answer: Annotated[
        AnswerSource | None,
        PlainValidator(_check_answer, json_schema_input_type=None),
        _serialise("answer"),
    ] = Field(default=None, description="A function from a query to its known answer or answers.")

    embedder: Annotated[
        Embedder | LangChainEmbeddings | LlamaIndexEmbedding | None,
        PlainValidator(_check_embedder, json_schema_input_type=None),
        _serialise("embedder"),
    ] = Field(
        default=None,
        description="An Embedder or the framework's own embeddings, for rankers that are dense; "
        "None: the offline one.",
    )

    templates: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Parts of a signal's prompt to replace: signal -> part -> text. The parts "
        "are those of PromptTemplate: before, passage, after, cue, response.",
    )

    _ranker_in_use: _RankerInUse = PrivateAttr(default_factory=_RankerInUse)

    # Services that are shared by all, and frozen values: a deep copy refers to the same ones.
    _shared: ClassVar[tuple[str, ...]] = ("model", "config", "answer", "embedder")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self.shaping_config()
        signals = {**{name: make() for name, make in SIGNALS.items()}, **self.signals()}
        for name, parts in self.templates.items():
            if name not in signals:
                raise ConfigurationError(
                    f"templates has a signal {name!r}; use one of {', '.join(sorted(signals))}"
                )
            with_template(signals[name], parts)
        return self

    def shaping_config(self) -> ShapingConfig:
        """The config in effect: ``config`` with the fields set here in its place.

        Raises:
            ConfigurationError: The two do not go together.
        """
        overrides: dict[str, Any] = {
            name: value
            for name in ("top_k", "threshold", "max_tokens")
            if (value := getattr(self, name)) is not None
        }
        return self.config.replace(**overrides)

    def signals(self) -> dict[str, Signal]:
        """The signals that may be measured, by name, with the templates set here.

        A signal that is ordered together with a ranker stands under its own name: the ranker has
        no prompt.
        """
        if self.config.signal != "auto":
            answered = [True]
        else:
            answered = [False] if self.answer is None else [False, True]
        found = [resolve_signal(self.config.signal, has_answer=known) for known in answered]
        asked = [signal.signal if isinstance(signal, RankFused) else signal for signal in found]
        return {s.name: with_template(s, self.templates.get(s.name, {})) for s in asked}

    def shape_passages(self, query: str, passages: Sequence[str]) -> ShapedContext:
        """Shape ``passages`` for ``query`` with the fields of this object.

        Raises:
            InvalidInputError: The query is empty or no string.
            ModelError: The model is missing, or cannot score and ``config.on_error`` is
                ``"raise"``.
        """
        if not isinstance(query, str) or not query.strip():
            raise InvalidInputError(f"the query must be a non-empty string, got {query!r:.80}")
        answer = None if self.answer is None else self.answer(query)
        config = self.shaping_config()
        if self.templates:
            signal = resolve_signal(config.signal, has_answer=bool(answer))
            if isinstance(signal, RankFused):
                asked = with_template(signal.signal, self.templates.get(signal.signal.name, {}))
                signal = replace(signal, signal=asked)
            else:
                signal = with_template(signal, self.templates.get(signal.name, {}))
            config = config.replace(signal=signal)
        if isinstance(config.ranker, str):
            ranker = self._ranker_in_use.get(config.ranker, self.embedder)
            config = config.replace(ranker=ranker)
        return ContextShaper(as_model(self.model), config).shape(query, passages, answer=answer)

    async def ashape_passages(self, query: str, passages: Sequence[str]) -> ShapedContext:
        """`shape_passages` off the event loop: loading, ``answer`` and scoring included."""
        return await run_sync(self.shape_passages, query, passages)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        for name in self._shared:
            part = getattr(self, name)
            memo[id(part)] = part
        return super().__deepcopy__(memo)


def signal_template(signal: Signal) -> PromptTemplate | None:
    """The prompt of a signal, if it has one that can be replaced."""
    template = getattr(signal, "template", None)
    return template if isinstance(template, PromptTemplate) and is_dataclass(signal) else None


def with_template(signal: Signal, parts: Mapping[str, str]) -> Signal:
    """``signal`` with some parts of its prompt replaced.

    Raises:
        ConfigurationError: It has no such part, or the new text is no valid template.
    """
    if not parts:
        return signal
    template = signal_template(signal)
    if template is None:
        raise ConfigurationError(f"the signal {signal.name!r} has no PromptTemplate to replace")
    known = [field.name for field in fields(template)]
    if unknown := sorted(set(parts) - set(known)):
        raise ConfigurationError(
            f"a prompt has no part {', '.join(unknown)}; its parts are {', '.join(known)}"
        )
    return replace(signal, template=replace(template, **parts))  # type: ignore[type-var]


def verdict_metadata(
    shaped: ShapedContext, verdict: PassageVerdict, retriever_score: float | None
) -> dict[str, object]:
    """What a kept passage carries under `METADATA_KEY`; JSON types only.

    The fields of the verdict, without what the document holds itself, and where the passage
    comes from: ``original_rank``, its place in what the retriever returned (1 is the first),
    and ``retriever_score``.
    """
    metadata = verdict.to_dict()
    for name in ("text", "index", "kept"):
        del metadata[name]
    metadata["original_rank"] = verdict.index + 1
    metadata["retriever_score"] = retriever_score
    metadata["signal"] = shaped.signal
    metadata["model"] = shaped.model
    if shaped.error is not None:
        metadata["error"] = shaped.error
    return metadata


def as_score(value: object) -> float | None:
    """A Python float, or None for what is no finite number (NumPy scalars are numbers)."""
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        score = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return score if math.isfinite(score) else None
