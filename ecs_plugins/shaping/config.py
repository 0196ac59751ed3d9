"""Settings of context shaping: one frozen object, which the integrations accept as it is."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from ecs_plugins.common.config import Config
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.fused import FusedRanker
from ecs_plugins.ranking.registry import RANKERS, make_ranker
from ecs_plugins.shaping.signals import SIGNALS, RankFused
from ecs_plugins.shaping.signals.base import PAPER_THRESHOLD, Signal
from ecs_plugins.shaping.signals.combined import RankOnly
from ecs_plugins.shaping.signals.likelihood import QueryLikelihood

DEFAULT_TOP_K = 5
"""Passages kept at most when neither threshold, ``top_k`` nor ``max_tokens`` is set."""
PRUNED_TOP_K = 2 * DEFAULT_TOP_K
"""The same where only a budget is set for what is left of passages by sentences."""
SEED = 42
"""Seed of signals that sample."""
PAPER_LENGTH_PENALTY = 0.002
"""beta of Table 2, in nats per token."""
PAPER_REDUNDANCY_SIMILARITY = 0.85
"""Similarity of Table 2 above which a passage repeats another one."""
AUTO_WITH_ANSWER = "joint_shift+bm25"
AUTO_WITHOUT_ANSWER = "query_likelihood+bm25+dense"


def is_signal(name: str) -> bool:
    """Return True if `make_signal` knows a name."""
    signal, *rankers = name.split("+")
    return signal in SIGNALS and all(ranker in RANKERS for ranker in rankers)


def make_signal(name: str, embedder: Embedder | str | None = None) -> Signal:
    """Build a signal from its name.

    Args:
        name: A key of `SIGNALS`, or one of them and keys of `RANKERS` with ``+`` between:
            `RankFused`.
        embedder: For a dense ranker; by default the one that is installed.

    Raises:
        ConfigurationError: The name is unknown.
        ModelNotFoundError: The ranker needs an embedder and none is installed.
    """
    if not is_signal(name):
        raise ConfigurationError(
            f"unknown signal {name!r}: use auto, {', '.join(SIGNALS)}, one of them with + and a "
            "ranker, or pass an own Signal"
        )
    signal, *rankers = name.split("+")
    if not rankers:
        return SIGNALS[signal]()
    return RankFused(SIGNALS[signal](), tuple(make_ranker(each, embedder) for each in rankers))


def _known_signal(signal: object) -> object:
    if signal is None:
        return None
    if isinstance(signal, str) and (signal == "auto" or is_signal(signal)):
        return signal
    if isinstance(signal, Signal) and not isinstance(signal, type):
        return signal
    raise ValueError(
        f"must be one of auto, {', '.join(SIGNALS)}, one of them with + and a ranker, an own "
        "Signal, or None to go by the ranker alone"
    )


def _known_ranker(ranker: object) -> object:
    if ranker is None or (isinstance(ranker, str) and ranker in RANKERS):
        return ranker
    if isinstance(ranker, Ranker) and not isinstance(ranker, type):
        return ranker
    raise ValueError(
        f"must be one of {', '.join(RANKERS)}, an own Ranker, or None to score everything"
    )


def by_name(part: object) -> str | None:
    """Return the name of a part, for JSON; refuse an object."""
    if part is None or isinstance(part, str):
        return part
    raise ValueError(
        f"{part!r:.80} is an object and cannot be written as JSON: give it by name, or leave it "
        "out and pass it again when loading"
    )


class ShapingConfig(Config):
    """Settings of `ContextShaper`.

    Attributes:
        signal: The measure of a passage: ``"auto"`` (joint shift when an answer is given, else
            query likelihood, fused with BM25 and embeddings), another name of
            `ecs_plugins.shaping.signals.SIGNALS`, one of them with rankers after ``+``
            (``"query_likelihood+bm25"``), or an own `Signal`. None asks no model: passages and
            sentences are ordered by ``ranker``, or by BM25 without one.
        ranker: Stage 1, which finds the passages worth scoring: ``"tfidf"``,
            ``"tfidf_query"``, ``"bm25"``, ``"coverage"``, ``"dense"``, ``"fused"``, another name
            of `ecs_plugins.ranking.registry.RANKERS`, an own `Ranker`, or None to score everything.
        pool_size: Number of passages that the ranker hands to the model.
        threshold: Nats that a passage must add (delta of Algorithm 1). None takes the signal's own,
            and a signal without one only ranks: kept passages are then `selected`, and none
            `helps` or `hurts`. It belongs to a model: see `docs/guides/calibrate.md`. With
            ``signal="auto"`` it is in nats of a known answer, and refused without one: use
            ``min_probability`` there.
        min_probability: Least probability that a passage helps, in [0, 1], for signals that need
            no answer. It needs a fit for model and signal, and passages that are scored alone
            (``acceptance="independent"``).
        length_penalty: Nats per passage token (beta of Definition 3.1).
        top_k: Largest number of kept passages. None means `DEFAULT_TOP_K` if no threshold and no
            budget is set, and no limit otherwise; with ``unit="sentence"`` and a budget of tokens
            or characters, `PRUNED_TOP_K`.
        max_tokens: Token budget of the kept text. The best passage or sentence stays even if it
            alone is longer than a budget, and ``ShapedContext.over_budget`` is then true.
        max_characters: The same in characters.
        keep_share: Share of the characters of all given passages that may stay. With
            ``unit="sentence"`` and no budget, sentences may take `KEPT_SHARE` of the kept
            passages.
        acceptance: ``"independent"`` scores every passage against the given context alone.
            ``"stream"`` is Algorithm 1: passages in the given order, read as they are, and an
            accepted one joins the context.
        redundancy_similarity: TF-IDF cosine to a kept passage from which on another one is
            `redundant`; None turns it off. Exact repetitions are always redundant.
        unit: ``"sentence"`` leaves out of kept passages the sentences that do not help
            (`ecs_plugins.shaping.sentences`), with one more request to the model. First
            ``top_k``, ``threshold`` and ``min_probability`` choose passages, then
            ``keep_share``, ``max_tokens`` and ``max_characters`` bound the text that stays of all
            of them together. ``"passage"`` keeps them whole.
        on_error: ``"return_input"`` keeps every passage when the model cannot score, reports it in
            ``ShapedContext.error`` and logs a warning; ``"raise"`` raises. Invalid input and a
            missing model or extra raise either way.

    Raises:
        ConfigurationError: A value is out of range, or a name is unknown.
    """

    signal: Annotated[
        str | Signal | None,
        PlainValidator(_known_signal),
        PlainSerializer(by_name, when_used="json"),
    ] = "auto"
    ranker: Annotated[
        str | Ranker | None,
        PlainValidator(_known_ranker),
        PlainSerializer(by_name, when_used="json"),
    ] = "fused"
    pool_size: int = Field(default=20, ge=1)
    threshold: float | None = Field(default=None, ge=0.0)
    min_probability: float | None = Field(default=None, ge=0.0, le=1.0)
    length_penalty: float = Field(default=0.0, ge=0.0)
    top_k: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_characters: int | None = Field(default=None, ge=1)
    keep_share: float | None = Field(default=None, gt=0.0, le=1.0)
    acceptance: Literal["independent", "stream"] = "independent"
    redundancy_similarity: float | None = Field(default=PAPER_REDUNDANCY_SIMILARITY, gt=0.0, le=1.0)
    unit: Literal["passage", "sentence"] = "passage"
    on_error: Literal["return_input", "raise"] = "return_input"

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.min_probability is not None and self.acceptance != "independent":
            raise ValueError(
                "min_probability needs passages that are scored alone: "
                f'acceptance="independent", not {self.acceptance!r}'
            )
        return self

    @property
    def effective_top_k(self) -> int | None:
        """``top_k``, or `DEFAULT_TOP_K` if the user set no limit.

        A signal's own threshold is no such limit: it was not calibrated for the model at hand.
        """
        chosen = (self.top_k, self.threshold, self.min_probability, self.keep_share)
        if any(limit is not None for limit in chosen):
            return self.top_k
        if self.max_tokens is None and self.max_characters is None:
            return DEFAULT_TOP_K
        return PRUNED_TOP_K if self.unit == "sentence" else None

    @classmethod
    def paper(cls) -> Self:
        """Return Algorithm 1 with the constants of Table 2; it needs an answer."""
        return cls(
            signal="answer_shift",
            threshold=PAPER_THRESHOLD,
            length_penalty=PAPER_LENGTH_PENALTY,
            acceptance="stream",
            redundancy_similarity=PAPER_REDUNDANCY_SIMILARITY,
        )


def make_parts(
    config: ShapingConfig,
    embedder: Embedder | str | None,
) -> tuple[str | Signal, Ranker | None]:
    """Return signal and ranker of a configuration, which share vectors.

    ``"auto"`` stays a name: whether there is an answer is known per call.
    """
    signal = config.signal
    ranker = config.ranker
    if isinstance(ranker, str):
        ranker = make_ranker(ranker, embedder)
    if signal is None:
        signal = RankOnly(ranker or make_ranker("bm25"), complements=ranker_is_fused(ranker))
    elif isinstance(signal, str) and signal != "auto":
        signal = make_signal(signal, embedder)
    return signal, ranker


def ranker_is_fused(ranker: Ranker | None) -> bool:
    """Return True for the default ranker, whose passages complement each other."""
    return isinstance(ranker, FusedRanker)


def resolve_signal(
    signal: str | Signal,
    *,
    has_answer: bool,
    ranker: Ranker | None = None,
) -> Signal:
    """Return the signal of a configuration; refuse one that lacks an answer.

    Args:
        signal: The signal or its name.
        has_answer: True if an answer is known.
        ranker: Stage 1; ``"auto"`` uses its rankers, so that passages are embedded once.
    """
    if isinstance(signal, str):
        fused = ranker if isinstance(ranker, FusedRanker) else None
        if signal != "auto":
            signal = make_signal(signal)
        elif has_answer:
            signal = make_signal(AUTO_WITH_ANSWER)
        elif fused is not None:
            signal = RankFused(QueryLikelihood(), (fused.lexical, fused.dense))
        else:
            signal = make_signal(AUTO_WITHOUT_ANSWER)
    if signal.needs_answer and not has_answer:
        raise InvalidInputError(
            f"the signal {signal.name!r} needs an answer: pass answer=..., or use the signal "
            "'query_likelihood', which needs none"
        )
    return signal
