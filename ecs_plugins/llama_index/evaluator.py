"""Evaluator of LlamaIndex for the support of an answer by its contexts.

A translation only: `ecs_plugins.shaping.attribution` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.evaluation import BaseEvaluator, EvaluationResult
from llama_index.core.prompts.mixin import PromptDictType
from typing_extensions import override

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.integrations.citing import AttributionFields
from ecs_plugins.shaping.attribution.cited import SUPPORTED_FROM

_ANYTHING = "What do the passages say?"
"""In place of a question, where there is none."""
_STATES_NOTHING = "the answer states nothing that contexts could support"


class ECSSupportEvaluator(BaseEvaluator):
    """Says how likely the contexts make an answer, beside LlamaIndex's `FaithfulnessEvaluator`.

    ```python
    result = ECSSupportEvaluator().evaluate(query, response, contexts)
    result.score, result.passing, result.feedback
    ```

    The score is that of the weakest statement (`Attribution.support`), the feedback names every
    statement with its citations and the words on which it turns. No language model writes
    anything. An answer that states nothing, or that cannot be read in time, is an invalid result
    with its reason.

    Args:
        passing_from: Score from which on an answer passes.
        fields: Those of `AttributionFields`.

    Raises:
        ConfigurationError: ``passing_from`` is not in [0, 1], or a field is unknown or cannot be
            used.
    """

    def __init__(self, *, passing_from: float = SUPPORTED_FROM, **fields: Any) -> None:
        if not 0.0 <= passing_from <= 1.0:
            raise ConfigurationError(f"passing_from lies in [0, 1], got {passing_from!r}")
        self._passing_from = passing_from
        self._citing = AttributionFields(**fields)

    @override
    async def aevaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        sleep_time_in_seconds: int = 0,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Hold an answer against its contexts.

        Raises:
            InvalidInputError: Response or contexts are missing.
        """
        del kwargs
        if response is None or contexts is None:
            raise InvalidInputError("response and contexts must be provided")
        await asyncio.sleep(sleep_time_in_seconds)
        question = (query or "").strip() or _ANYTHING
        attributed = await self._citing.aattribute(question, list(contexts), response)
        attribution = attributed.attribution
        score = None if attribution is None else attribution.support
        result = EvaluationResult(query=query, response=response, contexts=contexts, score=score)
        if attribution is None or score is None:
            result.invalid_result = True
            result.invalid_reason = attributed.reason or _STATES_NOTHING
        else:
            result.passing = score >= self._passing_from
            result.feedback = attribution.explain()
        return result

    @override
    def _get_prompts(self) -> PromptDictType:
        return {}

    @override
    def _update_prompts(self, prompts: PromptDictType) -> None:
        """There are none."""
