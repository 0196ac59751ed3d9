"""An evaluator of LlamaIndex that compares an answer with its contexts.

A translation only: `ecs_plugins.shaping.attribution` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llama_index.core.evaluation import BaseEvaluator, EvaluationResult
from llama_index.core.prompts.mixin import PromptDictType
from typing_extensions import override

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.citing import AttributionFields
from ecs_plugins.shaping.attribution.checking import Check

_ANYTHING = "What do the passages say?"
"""Question for answers without one."""
_STATES_NOTHING = "the answer states nothing"
_PASSING: Final[Mapping[Check, bool | None]] = {
    Check.CONSISTENT: True,
    Check.CONFLICT: False,
    Check.UNVERIFIED: None,
}


class ECSCheckEvaluator(BaseEvaluator):
    """Compares the numbers, names and negations of an answer with its contexts.

    ```python
    result = ECSCheckEvaluator().evaluate(query, response, contexts)
    result.passing, result.feedback
    ```

    ``passing`` is True if all statements are consistent, False if one is in conflict with its
    context, and None if one is unverified. There is no score. ``feedback`` names every statement
    with its citations and the words that decided. An answer that states nothing, or that cannot be
    read in time, is an invalid result with its reason.

    Args:
        fields: The fields of `AttributionFields`; ``judge`` takes a LlamaIndex LLM.

    Raises:
        ConfigurationError: A field is unknown or cannot be used.
    """

    def __init__(self, **fields: Any) -> None:
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
        """Compare an answer with its contexts.

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
        check = None if attribution is None else attribution.check
        result = EvaluationResult(query=query, response=response, contexts=contexts)
        if attribution is None or check is None:
            result.invalid_result = True
            result.invalid_reason = attributed.reason or _STATES_NOTHING
        else:
            result.passing = _PASSING[check]
            result.feedback = attribution.explain()
        return result

    @override
    def _get_prompts(self) -> PromptDictType:
        return {}

    @override
    def _update_prompts(self, prompts: PromptDictType) -> None:
        """Ignore prompts: there are none."""
