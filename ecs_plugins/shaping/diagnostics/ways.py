"""Other ways to compute the same scores, which should make no difference.

Each is a `LanguageModel` around another one, so that everything above the seam stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from ecs_plugins.lm.base import (
    ChatLayout,
    Generation,
    LanguageModel,
    ScoreRequest,
    ScoreResult,
    Segments,
)


@runtime_checkable
class HasReference(Protocol):
    """A model that can also compute slowly and plainly."""

    def score_by_reference(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Like `LanguageModel.score`."""
        ...


class OneByOne:
    """The same model with every candidate in a request of its own, beside the base if any."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's."""
        return self._model.name

    @property
    def layout(self) -> ChatLayout:
        """The model's."""
        return self._model.layout

    @property
    def max_tokens(self) -> int:
        """The model's."""
        return self._model.max_tokens

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
        """The model's."""
        return self._model.generate(
            prompts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            stop=stop,
        )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The model's."""
        return self._model.count_tokens(texts)


class ByReference(OneByOne):
    """The same model by its reference path."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """As the model's reference path."""
        assert isinstance(self._model, HasReference)
        return self._model.score_by_reference(requests)
