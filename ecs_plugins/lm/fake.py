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
    return -sum(1.0 if token.lower() in seen else 3.0 for token in _tokens(text))


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
        scores: list[tuple[tuple[SegmentScore, ...], ...]] = []
        unscored: dict[int, str] = {}
        texts = [_text(candidate) for candidate in request.candidates]
        computed = len(_tokens(prefix))
        for index, head in enumerate(prefix + text for text in texts):
            longest = max(len(_tokens(head + _text(each))) for each in request.continuations)
            if longest > self.max_tokens:
                unscored[index] = f"{longest} tokens exceed the window of {self.max_tokens}"
            base = prefix if request.divergence else None
            row = [self._continue(head, each, base) for each in request.continuations]
            if index in unscored:
                row = [tuple(map(_not_a_number, segments)) for segments in row]
            computed += max(0, longest - len(_tokens(prefix)))
            scores.append(tuple(row))
        return ScoreResult(tuple(scores), tuple(self.count_tokens(texts)), computed, unscored)

    def _continue(
        self, head: str, continuation: Segments, base: str | None
    ) -> tuple[SegmentScore, ...]:
        """Scores behind ``head``, with divergences from what is said behind a ``base``."""
        out: list[SegmentScore] = []
        behind = ""
        for segment in continuation:
            if segment.scored:
                tokens, context = _tokens(segment.text), head + behind
                if not tokens:
                    raise InvalidInputError(f"nothing to score in {segment.text!r}")
                each = self._logprob(context, segment.text) / len(tokens)
                logprobs = np.full(len(tokens), each, dtype=np.float32)
                contexts = None if base is None else (context, base + behind)
                found = None if contexts is None else self._divergence(contexts, tokens)
                out.append(SegmentScore(logprobs, found))
            behind += segment.text
        return tuple(out)

    def _divergence(
        self, contexts: tuple[str, str], tokens: Sequence[str]
    ) -> npt.NDArray[np.float32]:
        """How far the next word behind one context is distributed from that behind another."""
        words = dict.fromkeys(_tokens(" ".join((*contexts, *tokens))))
        found = []
        for count in range(len(tokens)):
            written = "".join(f" {token}" for token in tokens[:count])
            ours, theirs = (
                softmax([self._logprob(text + written, word) for word in words])
                for text in contexts
            )
            found.append(rel_entr(ours, np.maximum(theirs, 1e-300)).sum())
        return np.array(found, dtype=np.float32)

    def generate(self, prompts: Sequence[Segments], **options: Any) -> list[Generation]:
        """Answer from the replies given at construction, else with a word of the prompt.

        Raises:
            ConfigurationError: An option is unknown or out of range.
            InvalidInputError: A prompt with its new tokens is longer than the window.
        """
        given, out = GenerationOptions(**options), list[Generation]()
        for prompt in prompts:
            text = _text(prompt)
            if (length := len(_tokens(text)) + given.max_new_tokens) > self.max_tokens:
                raise InvalidInputError(f"{length} tokens exceed the window of {self.max_tokens}")
            self.prompts.append(text)
            reply = self._reply(text, given.seed)
            for mark in given.stop:
                reply = reply.partition(mark)[0]
            words = reply.split(" ")
            reason = "stop" if len(words) <= given.max_new_tokens else "length"
            reply = " ".join(words[: given.max_new_tokens])
            out.append(Generation(reply, len(_tokens(text)), len(_tokens(reply)), reason))
        return out

    def _reply(self, text: str, seed: int) -> str:
        if callable(self._replies):
            return self._replies(text)
        for key, reply in self._replies.items():
            if key in text:
                return reply
        words = _tokens(text) or ["nothing"]
        return words[zlib.crc32(f"{seed}:{text}".encode(errors="replace")) % len(words)]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words and punctuation marks."""
        return [len(_tokens(text)) for text in texts]


def _not_a_number(score: SegmentScore) -> SegmentScore:
    nothing = np.full_like(score.logprobs, np.nan)
    return SegmentScore(nothing, None if score.divergence is None else nothing)


def _text(segments: Segments) -> str:
    return "".join(segment.text for segment in segments)
