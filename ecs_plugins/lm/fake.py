"""A deterministic language model for tests, with no weights: driven by a function or a table.

It is public so that code built on this package can be tested without a model.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ecs_plugins.common.aio import check_awaited
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

Scores = tuple[SegmentScore, ...]
"""Scores of the scored segments of one continuation."""

LogProb = Callable[[str, str], float]
"""``(everything before the scored segment, scored text) -> log-probability in nats``."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def overlap_logprob(context: str, text: str) -> float:
    """Return -1 for a word that its context holds and -3 for any other, the default."""
    known = {token.lower() for token in _tokens(context)}
    words = [token.lower() for token in _tokens(text)]
    costs = [1.0 if word in known else 3.0 for word in words]
    return -sum(costs)


class FakeLanguageModel:
    """A `LanguageModel` without weights.

    Where a request wants a divergence, it is the share of words of the context that the base lacks.

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
        scores: list[tuple[Scores, ...]] = []
        unscored: dict[int, str] = {}
        computed = prefix_tokens
        candidates = [_text(candidate) for candidate in request.candidates]
        for index, candidate in enumerate(candidates):
            head = prefix + candidate
            row: list[Scores] = []
            longest = 0
            for continuation in request.continuations:
                check_awaited()
                whole = head + _text(continuation)
                longest = max(longest, len(_tokens(whole)))
                row.append(self._continue(head, continuation, base))
            if longest > self.max_tokens:
                unscored[index] = f"{longest} tokens exceed the window of {self.max_tokens}"
                row = [tuple(map(_not_a_number, segments)) for segments in row]
            computed += max(0, longest - prefix_tokens)
            scores.append(tuple(row))
        candidate_tokens = tuple(self.count_tokens(candidates))
        return ScoreResult(tuple(scores), candidate_tokens, computed, unscored)

    def _continue(
        self,
        head: str,
        continuation: Segments,
        base: str | None,
    ) -> Scores:
        """Return the scores of a continuation of ``head``, with divergences from ``base``."""
        scores: list[SegmentScore] = []
        after = ""
        for segment in continuation:
            if segment.scored:
                other = None if base is None else base + after
                score = self._segment(head + after, segment.text, other)
                scores.append(score)
            after += segment.text
        return tuple(scores)

    def _segment(self, context: str, text: str, base: str | None) -> SegmentScore:
        """Return the score of one segment."""
        tokens = _tokens(text)
        number = len(tokens)
        if number == 0:
            raise InvalidInputError(f"nothing to score in {text!r}")
        each = self._logprob(context, text) / number
        logprobs = np.full(number, each, dtype=np.float32)
        if base is None:
            return SegmentScore(logprobs)
        words = set(_tokens(context))
        news = len(words - set(_tokens(base))) / max(1, len(words))
        return SegmentScore(logprobs, np.full(number, news, dtype=np.float32))

    def generate(self, prompts: Sequence[Segments], **options: Any) -> list[Generation]:
        """Answer from the replies given at construction, else with a word of the prompt.

        Raises:
            ConfigurationError: An option is unknown or out of range.
            InvalidInputError: A prompt with its new tokens is longer than the window.
        """
        given = GenerationOptions(**options)
        texts = [_text(prompt) for prompt in prompts]
        return [self._generate(text, given) for text in texts]

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
        written = words[: options.max_new_tokens]
        text = " ".join(written)
        tokens = _tokens(text)
        reason = "stop" if written == words else "length"
        return Generation(text, prompt_tokens, len(tokens), reason)

    def _reply(self, text: str, seed: int) -> str:
        if callable(self._replies):
            return self._replies(text)
        for key, reply in self._replies.items():
            if key in text:
                return reply
        words = _tokens(text) or ["nothing"]
        source = f"{seed}:{text}"
        drawn = zlib.crc32(source.encode(errors="replace"))
        place = drawn % len(words)
        return words[place]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count words and punctuation marks."""
        tokens = map(_tokens, texts)
        return [len(each) for each in tokens]


def _not_a_number(score: SegmentScore) -> SegmentScore:
    unknown = np.full_like(score.logprobs, np.nan)
    divergence = None if score.divergence is None else unknown
    return SegmentScore(unknown, divergence)


def _text(segments: Segments) -> str:
    return "".join(segment.text for segment in segments)
