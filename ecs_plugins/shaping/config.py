"""How context is shaped: one frozen object, which the integrations accept as it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

from ecs_plugins.common.checks import check_numbers
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.build import RANKERS
from ecs_plugins.shaping.protocol import Signal
from ecs_plugins.shaping.signals import SIGNALS
from ecs_plugins.shaping.utility import (
    PAPER_LENGTH_PENALTY,
    PAPER_REDUNDANCY_SIMILARITY,
    PAPER_THRESHOLD,
)

DEFAULT_TOP_K = 5
"""Passages kept at most when neither threshold, ``top_k`` nor ``max_tokens`` is set."""

Acceptance = Literal["independent", "stream", "greedy"]
OnError = Literal["return_input", "raise"]


@dataclass(frozen=True, slots=True)
class ShapingConfig:
    """Settings of `ContextShaper`.

    Attributes:
        signal: What is measured: ``"auto"`` (joint shift when an answer is given, else query
            likelihood, ordered together with BM25), another name of
            ``ecs_plugins.shaping.SIGNALS``, or an own `Signal`.
        ranker: Stage 1, which finds the passages worth scoring: ``"tfidf"``,
            ``"tfidf_query"``, ``"bm25"``, ``"dense"``, ``"hybrid"``, an own `Ranker`, or None
            to score everything.
        pool_size: How many passages the ranker hands to the model.
        threshold: Nats that a passage must add; None takes the signal's own, and a signal
            without one only ranks: what is kept is then `selected`, and nothing `helps` or
            `hurts`. It belongs to a model: see `docs/ecs.md`.
        length_penalty: Nats per passage token (beta of Definition 3.1).
        top_k: At most so many passages are kept. None means `DEFAULT_TOP_K` when neither
            ``threshold`` nor ``max_tokens`` is set, and no limit otherwise.
        max_tokens: Token budget of the kept passages.
        acceptance: ``"independent"`` scores every passage against the given context alone.
            ``"stream"`` is Algorithm 1: passages in the given order, and an accepted one joins
            the context. ``"greedy"`` takes the best, lets it join the context and scores the
            others again.
        greedy_rounds: How many times ``"greedy"`` scores; afterwards the last scores stand.
        redundancy_similarity: TF-IDF cosine to a kept passage from which on another one is
            `redundant`; None turns it off. Exact repetitions are always redundant.
        on_error: What happens when the model cannot score: ``"return_input"`` keeps every
            passage, says so in ``ShapedContext.error`` and logs a warning; ``"raise"`` raises.
            Invalid input and a missing model or extra raise either way.
        seed: Seeds signals that sample; recorded.
        conversation: Whether the passages are turns of a conversation, in the order in which
            they were said: a question that a turn ends with is then read with the reply to it
            (`ecs_plugins.shaping.replies`). None decides by `is_conversation`, which asks for
            at least 12 turns that begin with the speaker's name.

    Raises:
        ConfigurationError: A value is out of range, or a name is unknown.
    """

    signal: str | Signal = "auto"
    ranker: str | Ranker | None = "hybrid"
    pool_size: int = 40
    threshold: float | None = None
    length_penalty: float = 0.0
    top_k: int | None = None
    max_tokens: int | None = None
    acceptance: Acceptance = "independent"
    greedy_rounds: int = 3
    redundancy_similarity: float | None = PAPER_REDUNDANCY_SIMILARITY
    on_error: OnError = "return_input"
    seed: int = 42
    conversation: bool | None = None

    def __post_init__(self) -> None:
        check_numbers(self)
        self._check_parts()
        for name in ("pool_size", "greedy_rounds", "top_k", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {value}")
        if self.threshold is not None and not 0.0 <= self.threshold < math.inf:
            raise ConfigurationError(
                f"threshold must be 0 or more nats, got {self.threshold}: below minus the "
                "threshold a passage hurts"
            )
        if not 0.0 <= self.length_penalty < math.inf:
            raise ConfigurationError(f"length_penalty must be 0 or more, got {self.length_penalty}")
        similarity = self.redundancy_similarity
        if similarity is not None and not 0.0 < similarity <= 1.0:
            raise ConfigurationError(
                f"redundancy_similarity must be in (0, 1] or None, got {similarity}"
            )
        if self.acceptance not in ("independent", "stream", "greedy"):
            raise ConfigurationError(
                f"unknown acceptance {self.acceptance!r}: use independent, stream or greedy"
            )
        if self.conversation not in (None, True, False):
            raise ConfigurationError(
                f"conversation must be True, False or None (look for yourself), got "
                f"{self.conversation!r}"
            )
        if self.on_error not in ("return_input", "raise"):
            raise ConfigurationError(
                f"unknown on_error {self.on_error!r}: use return_input or raise"
            )

    def _check_parts(self) -> None:
        signal, ranker = self.signal, self.ranker
        names = ("auto", *SIGNALS)
        known = signal in names if isinstance(signal, str) else isinstance(signal, Signal)
        if not known:
            raise ConfigurationError(
                f"unknown signal {signal!r}: use {', '.join(names)}, or pass an own Signal"
            )
        known = ranker in RANKERS if isinstance(ranker, str) else isinstance(ranker, Ranker)
        if ranker is not None and not known:
            raise ConfigurationError(
                f"unknown ranker {ranker!r}: use {', '.join(RANKERS)}, pass an own Ranker, or None "
                "to score everything"
            )

    @property
    def effective_top_k(self) -> int | None:
        """``top_k``, or `DEFAULT_TOP_K` where nothing that the user chose limits what is kept.

        A threshold that a signal brings along is no such limit: it was not calibrated for the
        model at hand.
        """
        chosen = (self.top_k, self.threshold, self.max_tokens)
        return DEFAULT_TOP_K if all(limit is None for limit in chosen) else self.top_k

    @classmethod
    def paper(cls) -> Self:
        """Algorithm 1 with the constants of Table 2; it needs an answer."""
        return cls(
            signal="answer_shift",
            threshold=PAPER_THRESHOLD,
            length_penalty=PAPER_LENGTH_PENALTY,
            acceptance="stream",
            redundancy_similarity=PAPER_REDUNDANCY_SIMILARITY,
            conversation=False,
        )
