"""Fields of the integrations that cite answers.

An attribution that fails or takes too long is a warning in the log and a note in the metadata; the
answer is passed on as it came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field

from ecs_plugins.common.aio import run_sync, run_within
from ecs_plugins.common.config import StrictFields
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.fields import (
    ModelField,
)
from ecs_plugins.integrations.plain import as_json
from ecs_plugins.integrations.tracing import TracedDocument, span
from ecs_plugins.lm.local import as_model
from ecs_plugins.shaping.attribution.attributed import Attribution
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.shaper import ContextShaper

_log = logging.getLogger(__name__)

BUDGET_S = 30.0
"""Seconds that an attribution may take unless another limit is given."""


@dataclass(frozen=True, slots=True)
class Attributed:
    """An attribution, or the reason why there is none.

    Attributes:
        attribution: None if it failed.
        reason: Why it failed; else empty.
    """

    attribution: Attribution | None
    reason: str = ""

    def details(self) -> dict[str, Any]:
        """Return the metadata in JSON types: the statements, or the reason under ``error``."""
        if self.attribution is None:
            return {"error": self.reason}
        told = self.attribution.to_dict()
        del told["query"], told["answer"]
        told["cited"] = self.attribution.cited
        details: dict[str, Any] = as_json(told)
        return details


class AttributionFields(StrictFields):
    """The fields of every integration that cites answers.

    No model is loaded before the first answer is attributed.
    """

    model: ModelField = Field(
        default=None,
        description="A LanguageModel, a model name or directory, or None: the bundled model.",
    )
    config: ShapingConfig = Field(
        default_factory=ShapingConfig,
        description="With signal=None no model is asked.",
    )
    judge: Any = Field(
        default=None,
        description="A chat model or LLM of the framework that judges unverified statements.",
    )
    budget_s: float | None = Field(
        default=BUDGET_S,
        gt=0,
        allow_inf_nan=False,
        description="Most seconds for an attribution; then the answer is passed on as it came.",
    )

    def attribute(self, question: str, passages: Sequence[str], answer: str) -> Attributed:
        """Return the citations of an answer, or the reason why there are none; raise nothing."""
        try:
            if self.budget_s is None:
                attribution = self._attribution(question, passages, answer)
            else:
                attribution = run_within(
                    self.budget_s, lambda: self._attribution(question, passages, answer)
                )
        except TimeoutError:
            return self._too_late()
        except Exception as error:
            return _failed(error)
        return Attributed(attribution)

    async def aattribute(self, question: str, passages: Sequence[str], answer: str) -> Attributed:
        """Do as `attribute`, off the event loop."""
        try:
            async with asyncio.timeout(self.budget_s):
                attribution = await run_sync(self._attribution, question, passages, answer)
        except TimeoutError:
            return self._too_late()
        except Exception as error:
            return _failed(error)
        return Attributed(attribution)

    def _attribution(self, question: str, passages: Sequence[str], answer: str) -> Attribution:
        with span("EVALUATOR", {"input.value": question, "output.value": answer}) as set_documents:
            shaper = ContextShaper(as_model(self.model), self.config)
            attribution = shaper.attribute(question, passages, answer, judge=self.judge)
            cited = [TracedDocument(passages[index], None) for index in attribution.cited]
            set_documents("retrieval.documents", cited)
        return attribution

    def _too_late(self) -> Attributed:
        reason = f"it took more than {self.budget_s:g} seconds"
        _log.warning("an answer is passed on without citations: %s", reason)
        return Attributed(None, reason)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a shallow copy: the fields are shared services and frozen values."""
        return self.model_copy()


def _failed(error: Exception) -> Attributed:
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, InvalidInputError):  # an empty answer is nobody's fault
        _log.warning("an answer is passed on without citations: %s", reason)
    else:
        _log.warning("an answer is passed on without citations", exc_info=error)
    return Attributed(None, reason)
