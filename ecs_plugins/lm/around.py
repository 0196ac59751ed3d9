"""A language model around another one: what it does not change, it hands on."""

from __future__ import annotations

from collections.abc import Sequence

from ecs_plugins.lm.base import (
    ChatLayout,
    Generation,
    LanguageModel,
    ScoreRequest,
    ScoreResult,
    Segments,
)


class ModelAround:
    """The same model; subclasses change how some calls are answered.

    Args:
        model: The one that answers.
    """

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
        """The model's."""
        return self._model.score(requests)

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
