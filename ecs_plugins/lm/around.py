"""A language model around another one: what it does not change, it hands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

    def generate(self, prompts: Sequence[Segments], **options: Any) -> list[Generation]:
        """The model's."""
        return self._model.generate(prompts, **options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The model's."""
        return self._model.count_tokens(texts)
