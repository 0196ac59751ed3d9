"""Scoring that ends in time: the best candidates first, in portions that fit what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from ecs_plugins.lm.base import (
    LanguageModel,
    ModelAround,
    ScoreRequest,
    ScoreResult,
    Segments,
    SegmentScore,
)

Rows = tuple[tuple[SegmentScore, ...], ...]

FIRST = 2
"""Texts that are scored in any case: their time tells how many more there is time for."""
CAUTION = 0.8
"""Share of the time left that the next portion is expected to take at most."""


class ScoredOnce(ModelAround):
    """A model that scores each candidate once, whatever stands beside it in a request."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__(model)
        self._known: dict[tuple[object, Segments], tuple[Rows, int, str | None]] = {}

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """As the model; what has been scored costs nothing."""
        return [self._scored(request) for request in requests]

    def _scored(self, request: ScoreRequest) -> ScoreResult:
        rest = (request.prefix, request.continuations, request.divergence)
        new = [each for each in request.candidates if (rest, each) not in self._known]
        computed = 0
        if new:
            # A divergence is from the first candidate.
            first = request.candidates[:1] if request.divergence else ()
            new = list(dict.fromkeys((*first, *new)))
            (found,) = self._model.score([replace(request, candidates=tuple(new))])
            computed = found.computed_tokens
            for place, each in enumerate(new):
                row = found.scores[place], found.candidate_tokens[place], found.unscored.get(place)
                self._known[rest, each] = row
        rows = [self._known[rest, each] for each in request.candidates]
        return ScoreResult(
            scores=tuple(scores for scores, _, _ in rows),
            candidate_tokens=tuple(tokens for _, tokens, _ in rows),
            computed_tokens=computed,
            unscored={n: why for n, (_, _, why) in enumerate(rows) if why is not None},
        )


def in_portions(
    texts: Sequence[str], score: Callable[[Sequence[str]], object], until: float
) -> int:
    """Score texts, the best first, until ``until`` on ``time.perf_counter``; how many were."""
    done, size, spent, began = 0, FIRST, 0, time.perf_counter()
    while done < len(texts) and size:
        portion = texts[done : done + size]
        score(portion)
        done += len(portion)
        spent += sum(map(len, portion))
        now = time.perf_counter()
        room = CAUTION * (until - now) * spent / (now - began)
        # Portions at most double what is known to take its time.
        lengths = accumulate(map(len, texts[done : 2 * done]))
        size = sum(length <= room for length in lengths)
    return done
