"""Other ways to compute the same scores, which should make no difference.

Each is a `LanguageModel` around another one, so that everything above the seam stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from ecs_plugins.lm.around import ModelAround
from ecs_plugins.lm.base import ScoreRequest, ScoreResult


@runtime_checkable
class HasReference(Protocol):
    """A model that can also compute slowly and plainly."""

    def score_by_reference(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Like `LanguageModel.score`."""
        ...


class OneByOne(ModelAround):
    """The same model with every candidate in a request of its own, beside the base if any."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """As the model, one candidate at a time."""
        return [self._one_by_one(request) for request in requests]

    def _one_by_one(self, request: ScoreRequest) -> ScoreResult:
        base = request.candidates[:1] if not request.candidates[0] else ()
        parts: list[ScoreResult] = []
        for candidate in request.candidates:
            pair = (*base, candidate) if candidate else (candidate,)
            parts += self._model.score([replace(request, candidates=pair)])
        unscored: dict[int, str] = {}
        for k, part in enumerate(parts):
            last = len(part.scores) - 1
            if last in part.unscored:
                unscored[k] = part.unscored[last]
        return ScoreResult(
            scores=tuple(part.scores[-1] for part in parts),
            candidate_tokens=tuple(part.candidate_tokens[-1] for part in parts),
            computed_tokens=sum(part.computed_tokens for part in parts),
            unscored=unscored,
        )


class ByReference(OneByOne):
    """The same model by its reference path."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """As the model's reference path."""
        assert isinstance(self._model, HasReference)
        return self._model.score_by_reference(requests)
