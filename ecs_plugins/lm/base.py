"""Protocol of language models: requests, results and options.

The protocol speaks text; token ids, caches and batches belong to its implementations. A request is
a small tree: one prefix, K candidates, and the continuations that follow every candidate:

    prefix -> candidate_k -> continuation_m

so that shared parts are computed once. Text is cut into segments, each tokenised by
itself and joined as ids: a continuation has the same ids after every candidate, without
which a difference of log-probabilities would compare different things.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text that is tokenised by itself.

    Attributes:
        text: The text; may be empty.
        scored: True if its token log-probabilities are wanted. Only segments of continuations
            may be scored.
        trusted: Template text, in which special tokens such as ``<|im_end|>`` are parsed. In
            untrusted text (query, passage, answer) they are plain characters.
    """

    text: str
    scored: bool = False
    trusted: bool = False


Segments = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """K candidates after one prefix, each followed by every continuation.

    Attributes:
        prefix: Shared by all candidates and computed once.
        candidates: K of them; the empty candidate ``()`` is the base.
        continuations: Segments after each candidate, with marks on scored ones. Equal
            leading segments of several continuations are computed once.
        name: A label for error messages and traces.
        divergence: True if divergences are wanted besides log-probabilities: at every scored token,
            the distance of the distribution that predicts it from that after the base, the first
            candidate, which is then empty: ``D_KL(P(. | C, u, q) || P(. | C, q))`` over the whole
            vocabulary, in nats (Eq. 3 and Definition 3.3 of Entropic Context Shaping). It has no
            sign: a passage that helps and one that misleads both move the distribution.

    Raises:
        InvalidInputError: No candidate, no continuation, a scored segment outside the
            continuations, a continuation in which nothing is scored, or a divergence from a
            first candidate that is not empty.
    """

    prefix: Segments
    candidates: tuple[Segments, ...]
    continuations: tuple[Segments, ...]
    name: str = ""
    divergence: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", tuple(self.prefix))
        object.__setattr__(self, "candidates", tuple(map(tuple, self.candidates)))
        object.__setattr__(self, "continuations", tuple(map(tuple, self.continuations)))
        if not self.candidates:
            raise InvalidInputError("a ScoreRequest needs at least one candidate")
        if not self.continuations:
            raise InvalidInputError("a ScoreRequest needs at least one continuation")
        if _is_scored(self.prefix) or any(map(_is_scored, self.candidates)):
            raise InvalidInputError("only segments of a continuation can be scored")
        if not all(map(_is_scored, self.continuations)):
            raise InvalidInputError("every continuation needs a scored segment")
        if self.divergence and any(segment.text for segment in self.candidates[0]):
            raise InvalidInputError(
                "a divergence is measured from the base: make the empty candidate () the first"
            )


def _is_scored(segments: Segments) -> bool:
    """Return True if a segment is scored."""
    return any(segment.scored for segment in segments)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentScore:
    """Log-probabilities of one scored segment.

    Attributes:
        logprobs: float32, shape ``[tokens]``, natural logarithm (nats).
        divergence: float32, shape ``[tokens]``, nats, from the base's distribution at the same
            token, 0 for the base itself; None unless the request asked for it.
    """

    logprobs: npt.NDArray[np.float32]
    divergence: npt.NDArray[np.float32] | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens of the segment."""
        return int(self.logprobs.shape[0])

    @property
    def sum(self) -> float:
        """Log-probability of the whole segment in nats."""
        return float(self.logprobs.sum(dtype=np.float64))

    @property
    def mean(self) -> float:
        """Log-probability per token in nats; 0.0 for an empty segment."""
        return self.sum / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ScoreResult:
    """Scores of one request.

    Attributes:
        scores: ``scores[k][m][s]`` is the score of the s-th *scored* segment of continuation m
            after candidate k.
        candidate_tokens: Tokens of every candidate, in the order of the request.
        computed_tokens: Tokens that passed through the model for this request; less than the
            sum of all lengths where something was shared or cached.
        unscored: Candidate index -> reason, for candidates that could not be scored (longer
            than the model's window); their log-probabilities are NaN.
    """

    scores: tuple[tuple[tuple[SegmentScore, ...], ...], ...]
    candidate_tokens: tuple[int, ...]
    computed_tokens: int
    unscored: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatLayout:
    """The text around one user turn and the assistant's reply to it.

    A model with a chat template gets it from there; a base model gets an empty ``head`` and a
    line break as ``tail``.

    Attributes:
        head: Trusted text before what the user says.
        tail: Trusted text between what the user says and what the assistant says.
        chat: Whether it comes from a chat template.
    """

    head: str
    tail: str
    chat: bool


class GenerationOptions(Config):
    """Options for the continuation of a prompt."""

    max_new_tokens: int = Field(64, ge=1, description="At most this many tokens are written.")
    temperature: float = Field(0.0, ge=0, description="0 is greedy, above it sampling.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus of the sampling.")
    seed: int = Field(
        42,
        description="Seeds the sampling of one call; the process's own generators are left as they "
        "were.",
    )
    stop: Sequence[Annotated[str, Field(min_length=1)]] = Field(
        (), description="Texts that end the reply and are cut off it."
    )


@dataclass(frozen=True, slots=True)
class Generation:
    """One generated text.

    Attributes:
        text: Without the prompt and without special tokens, cut before a stop string.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written.
        finish_reason: ``"stop"`` (end of turn or stop string) or ``"length"``.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str


@runtime_checkable
class LanguageModel(Protocol):
    """Interface of language models. Implementations are thread-safe."""

    @property
    def name(self) -> str:
        """Return a stable identifier, recorded in results (hub name, path or label)."""

    @property
    def layout(self) -> ChatLayout:
        """Layout of one user turn and its reply for this model."""

    @property
    def max_tokens(self) -> int:
        """Return the model's window: the longest prefix + candidate + continuation, in tokens."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return the token log-probabilities of every scored segment, in nats.

        Raises:
            InvalidInputError: A scored segment has no tokens, or a prefix fills the window.
            ConfigurationError: A divergence is asked of a model that does not see whole
                distributions.
            ScoringError: The model's numbers cannot be trusted (NaN, failed self-check).
        """

    def generate(
        self,
        prompts: Sequence[Segments],
        *,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 42,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Continue each prompt; greedy at temperature 0, else seeded sampling."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, without special tokens."""


def prepare(model: LanguageModel, requests: Sequence[ScoreRequest]) -> int:
    """Let a model with a cache read the passages of requests before they are asked.

    Returns:
        Tokens that passed through the model; 0 for one without a method ``prepare``.
    """
    read = getattr(model, "prepare", None)
    return int(read(requests)) if read is not None else 0


class ModelAround:
    """A model around another one; subclasses change how some calls are answered."""

    name: str
    layout: ChatLayout
    max_tokens: int
    generate: Callable[..., list[Generation]]
    count_tokens: Callable[[Sequence[str]], list[int]]

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the inner model."""
        return getattr(self.__dict__["_model"], name)

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Score with the inner model."""
        return self._model.score(requests)
