"""A deterministic language model for tests, with no weights: driven by a function or a table.

It is public so that code built on this package can be tested without a model.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import rel_entr, softmax

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import (
    ChatLayout,
    Generation,
    GenerationOptions,
    ScoreRequest,
    ScoreResult,
    Segments,
    SegmentScore,
)

LogProb = Callable[[str, str], float]
"""``(everything before the scored segment, scored text) -> log-probability in nats``."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def overlap_logprob(context: str, text: str) -> float:
    """The default: each token costs 1 nat if its context holds it, and 3 nats if not."""
    seen = {token.lower() for token in _tokens(context)}
    words = [token.lower() for token in _tokens(text)]
    costs = [1.0 if word in seen else 3.0 for word in words]
    return -sum(costs)


class FakeLanguageModel:
    """A `LanguageModel` without weights.

    Its next-token distribution, for requests that want a divergence, is over the words of both
    contexts that are compared and of the scored segment, in proportion to what the function gives
    each of them.

    Args:
        logprob: ``(context, scored text) -> nats``. The default rewards words that the context
            holds, which makes passages that contain the answer useful. The context is all text
            before the scored segment: prefix, candidate and the continuation's head.
        replies: What `generate` answers: a function of the prompt's text, or a table of
            ``substring of the prompt -> reply`` in which the first hit wins.
        layout: The chat layout; plain by default.
        max_tokens: The window, in words and punctuation marks.
        name: The recorded name.
    """

    def __init__(
        self,
        logprob: LogProb = overlap_logprob,
        *,
        replies: Callable[[str], str] | Mapping[str, str] | None = None,
        layout: ChatLayout | None = None,
        max_tokens: int = 8192,
        name: str = "fake",
    ) -> None:
        self._logprob = logprob
        self._replies = replies or {}
        self.layout = layout or ChatLayout(head="", tail="\n", chat=False)
        self.max_tokens = max_tokens
        self.name = name
        self.requests: list[ScoreRequest] = []
        """Every request scored so far, for assertions."""
        self.prompts: list[str] = []
        """The text of every prompt generated from so far, for assertions."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Score by the function given at construction, spread evenly over a segment's tokens."""
        self.requests.extend(requests)
        return [self._score(request) for request in requests]

    def _score(self, request: ScoreRequest) -> ScoreResult:
        prefix = _text(request.prefix)
        prefix_tokens = len(_tokens(prefix))
        base = prefix if request.divergence else None
        scores: list[tuple[tuple[SegmentScore, ...], ...]] = []
        unscored: dict[int, str] = {}
        computed = prefix_tokens
        candidates = [_text(candidate) for candidate in request.candidates]
        for index, candidate in enumerate(candidates):
            head = prefix + candidate
            lengths = [len(_tokens(head + _text(each))) for each in request.continuations]
            longest = max(lengths)
            row = [self._continue(head, each, base) for each in request.continuations]
            if longest > self.max_tokens:
                unscored[index] = f"{longest} tokens exceed the window of {self.max_tokens}"
                row = [tuple(map(_not_a_number, segments)) for segments in row]
            computed += max(0, longest - prefix_tokens)
            scores.append(tuple(row))
        candidate_tokens = tuple(self.count_tokens(candidates))
        return ScoreResult(tuple(scores), candidate_tokens, computed, unscored)

    def _continue(
        self, head: str, continuation: Segments, base: str | None
    ) -> tuple[SegmentScore, ...]:
        """Scores behind ``head``, with divergences from what is said behind a ``base``."""
        out: list[SegmentScore] = []
        behind = ""
        for segment in continuation:
            if segment.scored:
                context = head + behind
                tokens = _tokens(segment.text)
                if not tokens:
                    raise InvalidInputError(f"nothing to score in {segment.text!r}")
                each = self._logprob(context, segment.text) / len(tokens)
                logprobs = np.full(len(tokens), each, dtype=np.float32)
                divergence = None
                if base is not None:
                    divergence = self._divergence(context, base + behind, tokens)
                out.append(SegmentScore(logprobs, divergence))
            behind += segment.text
        return tuple(out)

    def _divergence(
        self, context: str, base: str, tokens: Sequence[str]
    ) -> npt.NDArray[np.float32]:
        """How far the next word behind a context is distributed from that behind the base."""
        everything = " ".join([context, base, *tokens])
        words = list(dict.fromkeys(_tokens(everything)))
        divergences = []
        written = ""
        for token in tokens:
            ours = self._distribution(context + written, words)
            theirs = self._distribution(base + written, words)
            terms = rel_entr(ours, np.maximum(theirs, 1e-300))
            divergences.append(terms.sum())
            written += f" {token}"
        return np.array(divergences, dtype=np.float32)

    def _distribution(self, context: str, words: Sequence[str]) -> npt.NDArray[np.float64]:
        """Probabilities of the next word."""
        logprobs = [self._logprob(context, word) for word in words]
        probabilities: npt.NDArray[np.float64] = softmax(logprobs)
        return probabilities

    def generate(self, prompts: Sequence[Segments], **options: Any) -> list[Generation]:
        """Answer from the replies given at construction, else with a word of the prompt.

        Raises:
            ConfigurationError: An option is unknown or out of range.
            InvalidInputError: A prompt with its new tokens is longer than the window.
        """
        given = GenerationOptions(**options)
        return [self._generate(_text(prompt), given) for prompt in prompts]

    def _generate(self, prompt: str, options: GenerationOptions) -> Generation:
        prompt_tokens = len(_tokens(prompt))
        length = prompt_tokens + options.max_new_tokens
        if length > self.max_tokens:
            raise InvalidInputError(f"{length} tokens exceed the window of {self.max_tokens}")
        self.prompts.append(prompt)
        reply = self._reply(prompt, options.seed)
        for mark in options.stop:
            reply, _, _ = reply.partition(mark)
        words = reply.split(" ")
        reason = "stop" if len(words) <= options.max_new_tokens else "length"
        text = " ".join(words[: options.max_new_tokens])
        return Generation(text, prompt_tokens, len(_tokens(text)), reason)

    def _reply(self, text: str, seed: int) -> str:
        if callable(self._replies):
            return self._replies(text)
        for key, reply in self._replies.items():
            if key in text:
                return reply
        words = _tokens(text) or ["nothing"]
        drawn = zlib.crc32(f"{seed}:{text}".encode(errors="replace"))
        return words[drawn % len(words)]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words and punctuation marks."""
        return [len(_tokens(text)) for text in texts]


def _not_a_number(score: SegmentScore) -> SegmentScore:
    unknown = np.full_like(score.logprobs, np.nan)
    divergence = None if score.divergence is None else unknown
    return SegmentScore(unknown, divergence)


def _text(segments: Segments) -> str:
    return "".join(segment.text for segment in segments)
