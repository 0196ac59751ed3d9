"""Shared fields of integrations for a `ContextShaper`, and verdicts as metadata.

Each integration translates the types and events of its framework and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Self

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from ecs_plugins.common.config import StrictFields, require_known
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.integrations.tracing import TracedDocument, span
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.lm.local import as_model
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.ranking.embedder import Embedder, as_embedder
from ecs_plugins.shaping.acceptance import check_threshold
from ecs_plugins.shaping.config import ShapingConfig, by_name, make_parts
from ecs_plugins.shaping.probability import ProbabilityFit
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.signals.combined import NoModel

METADATA_KEY = "ecs"
"""The metadata key under which a kept passage carries its verdict."""

SETTINGS = frozenset(ShapingConfig.model_fields)
"""Names of the settings that the constructor of an integration takes."""

AnswerSource = Callable[[str], str | Sequence[str] | None]
"""From a query to its known answer or answers; None where none is known."""


def _check_model(value: object) -> object:
    # ``isinstance`` against the protocol would read properties that load the weights.
    if value is None:
        return value
    if isinstance(value, str) and value.strip():
        return value
    if callable(getattr(value, "score", None)) and not isinstance(value, type):
        return value
    raise ConfigurationError(
        f"model must be a model name, a directory, a LanguageModel or None (the bundled "
        f"model), got {type(value).__name__} {value!r:.80}"
    )


ModelField = Annotated[
    str | LanguageModel | None,
    PlainValidator(_check_model, json_schema_input_type=str | None),
    PlainSerializer(by_name),
]
"""A model by its name, or a live one, which JSON cannot hold."""

EmbedderField = Annotated[
    Embedder | None,
    PlainValidator(
        lambda value: None if value is None else as_embedder(value), json_schema_input_type=None
    ),
    PlainSerializer(by_name),
]
"""An embedder of this package or of a framework."""


class ShapingFields(StrictFields):
    """Fields of every integration that shapes retrieved passages.

    Besides the fields, the constructor takes every setting of `ShapingConfig` by its name, which
    then replaces that of ``config``; ``top_n`` for ``top_k``, as other rerankers name it; and
    ``prune=True`` for ``unit="sentence"``.

    No model is loaded before the first passage is scored. A copy shares the model; a pickle
    holds the model's own pickle.
    """

    model: ModelField = Field(
        default=None,
        description="A LanguageModel, a model name or directory, or None: the bundled model.",
    )
    config: ShapingConfig = Field(
        default_factory=ShapingConfig, description="How passages are ranked, scored and accepted."
    )
    answer: Annotated[AnswerSource | None, WithJsonSchema({}), PlainSerializer(by_name)] = Field(
        default=None,
        description="A function from a query to its known answer or answers, such as "
        "lambda query: answer.",
    )
    embedder: EmbedderField = Field(
        default=None,
        description="An Embedder or the framework's own embeddings, best those of the vector "
        "store; None: the offline one.",
    )
    probability: ProbabilityFit | None = Field(
        default=None, description="A probability fitted to own examples; None: the shipped one."
    )

    def __init__(
        self,
        *args: Any,
        **fields: Any,
    ) -> None:
        if "top_n" in fields:
            if "top_k" in fields:
                raise ConfigurationError("top_n is top_k by another name; give one of them")
            fields["top_k"] = fields.pop("top_n")
        known = {*type(self).model_fields, *SETTINGS, "prune"}
        require_known(type(self).__name__, fields, known)
        settings = {name: fields.pop(name) for name in SETTINGS.intersection(fields)}
        if fields.pop("prune", False):
            settings["unit"] = "sentence"
        if settings:
            given = fields.get("config", ShapingConfig())
            if not isinstance(given, ShapingConfig | Mapping):
                raise ConfigurationError(f"config is a ShapingConfig, got {given!r:.60}")
            fields["config"] = ShapingConfig.from_any(given).replace(**settings)
        super().__init__(*args, **fields)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        signal, _ = self._parts_in_use()
        if self.answer is None:
            check_threshold(self.config)
            if not isinstance(signal, str) and signal.needs_answer:
                raise ConfigurationError(
                    f"the signal {signal.name!r} needs an answer: set answer=, or use 'auto'"
                )
        return self

    def scoring_model(self) -> LanguageModel:
        """Return the scoring model, loaded if necessary; a stand-in if no model is needed."""
        if self.model is None and self.config.signal is None:
            return NoModel()
        return as_model(self.model)

    def shape_passages(
        self,
        query: str,
        passages: Sequence[str],
        titles: Sequence[str | None] | None = None,
        scores: Sequence[float | None] = (),
        vectors: Sequence[Sequence[float] | None] = (),
    ) -> ShapedContext:
        """Shape ``passages`` for ``query`` with the fields of this object.

        Args:
            query: The question.
            passages: Their texts.
            titles: Titles of their documents.
            scores: The retriever's scores. They are used if every passage has one and no
                ``embedder`` is set, which would compute them again.
            vectors: Vectors of the passages, made by ``embedder``; used if that is set.
        """
        answer = None if self.answer is None else self.answer(query)
        signal, ranker = self._parts_in_use()
        config = self.config.replace(signal=signal, ranker=ranker)
        model = self.scoring_model()
        about = {
            "input.value": query,
            "reranker.query": query,
            "reranker.top_k": config.effective_top_k,
            "reranker.model_name": model.name,
        }
        if self.embedder is not None and vectors:
            dense = getattr(ranker, "dense", ranker)
            if isinstance(dense, DenseRanker):
                dense.remember(passages, vectors)
        with span("RERANKER", about) as set_documents:
            shaped = ContextShaper(model, config, probability=self.probability).shape(
                query,
                passages,
                answer=answer,
                titles=titles,
                scores=self._known_scores(scores),
            )
            given = [TracedDocument(text) for text in passages]
            set_documents("reranker.input_documents", given)
            kept = [TracedDocument(each.kept_text, as_score(each.score)) for each in shaped.kept]
            set_documents("reranker.output_documents", kept)
        return shaped

    def _known_scores(
        self,
        scores: Sequence[float | None],
    ) -> list[float] | None:
        known = [score for score in scores if score is not None]
        if self.embedder is not None or not known or len(known) < len(scores):
            return None
        return known

    def _parts_in_use(self) -> tuple[str | Signal, Ranker | None]:
        """Keep signal and ranker between calls, because they cache embeddings.

        They lie beside the fields: copies share them, and components are equal whatever theirs
        remember.
        """
        made_of = (self.config.signal, self.config.ranker, self.embedder)
        kept = self.__dict__.get("_parts")
        if kept is None or any(a is not b for a, b in zip(kept[0], made_of, strict=True)):
            kept = self.__dict__["_parts"] = (made_of, make_parts(self.config, self.embedder))
        return kept[1]

    def __deepcopy__(
        self,
        memo: dict[int, Any] | None = None,
    ) -> Self:
        """Shallow: the fields are services that are shared by all, and frozen values."""
        return self.model_copy()


def verdict_metadata(
    shaped: ShapedContext,
    verdict: PassageVerdict,
    given: Mapping[str, Any],
    retriever_score: float | None,
    dropped: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the metadata of a kept passage: a copy of its own, and its verdict.

    The verdict stands under `METADATA_KEY`, in JSON types only. In it, ``original_rank`` is the
    place in what the retriever returned; 1 is the first. ``dropped`` is what was left out of the
    text, by id.
    """
    metadata = {key: copied(value) for key, value in given.items()}
    info = {name: value for name, value in verdict.to_dict().items() if name not in _NOT_SHOWN}
    info |= {
        "original_rank": verdict.index + 1,
        "retriever_score": retriever_score,
        "signal": shaped.signal,
        "answerable": shaped.answerable,
        "model": shaped.model,
        "dropped": dict(verdict.dropped if dropped is None else dropped),
    }
    if shaped.error is not None:
        info["error"] = shaped.error
    return {**metadata, METADATA_KEY: info}


_NOT_SHOWN = ("text", "index", "kept", "spans")


def copied(value: Any) -> Any:
    """Return a deep copy of dicts and lists; other values are shared."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [copied(each) for each in value]
    return value


def titles_of(metadata: Sequence[Mapping[str, Any]]) -> list[str | None] | None:
    """Return the ``title`` of each passage's metadata; None if no passage has one."""
    found = [each.get("title") for each in metadata]
    titles = [each if isinstance(each, str) and each.strip() else None for each in found]
    return titles if any(titles) else None


def as_score(value: object) -> float | None:
    """Return a Python float, or None if the value is no finite number."""
    if isinstance(value, bool | str | bytes):
        return None
    with suppress(TypeError, ValueError):
        score = float(value)  # type: ignore[arg-type]
        return score if math.isfinite(score) else None
    return None
