"""A model that scores each candidate once, so that repeated benchmarks cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ecs_plugins.lm.base import (
    LanguageModel,
    ModelAround,
    ScoreRequest,
    ScoreResult,
    Segments,
    SegmentScore,
)

FIRST = 2
"""Texts that are always scored. Their time tells how many more fit into the budget."""


class ScoredOnce(ModelAround):
    """A model that scores each candidate once, whatever stands beside it in a request."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__(model)
        self._known: dict[object, dict[Segments, _Row]] = {}

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """As the model; what has been scored costs nothing."""
        return [self._scored(request) for request in requests]

    def _scored(self, request: ScoreRequest) -> ScoreResult:
        rest = (request.prefix, request.continuations, request.divergence)
        known = self._known.setdefault(rest, {})
        new = [candidate for candidate in request.candidates if candidate not in known]
        computed = self._compute(request, new, known) if new else 0
        rows = [known[candidate] for candidate in request.candidates]
        reasons = {place: row.unscored for place, row in enumerate(rows)}
        return ScoreResult(
            scores=tuple(row.scores for row in rows),
            candidate_tokens=tuple(row.tokens for row in rows),
            computed_tokens=computed,
            unscored={place: reason for place, reason in reasons.items() if reason is not None},
        )

    def _compute(
        self, request: ScoreRequest, new: Sequence[Segments], known: dict[Segments, _Row]
    ) -> int:
        """Score new candidates; the tokens that it took."""
        # A divergence is from the first candidate.
        first = request.candidates[:1] if request.divergence else ()
        candidates = tuple(dict.fromkeys((*first, *new)))
        (result,) = self._model.score([replace(request, candidates=candidates)])
        for place, candidate in enumerate(candidates):
            known[candidate] = _Row(
                result.scores[place],
                result.candidate_tokens[place],
                result.unscored.get(place),
            )
        return result.computed_tokens


class _Row(NamedTuple):
    """What is known of one candidate: scores of every continuation, or why there are none."""

    scores: tuple[tuple[SegmentScore, ...], ...]
    tokens: int
    unscored: str | None
