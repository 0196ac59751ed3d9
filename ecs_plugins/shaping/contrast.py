"""Contrast: a passage that is fluent for any question is not useful for this one.

    utility(u) = shift of ln P(q | u) - weight * mean over generic g of the shift of ln P(g | u)

per token, each shift against no passage. The generic questions follow the same passage, so they
share its pass and cost only their own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import ChatLayout, ScoreRequest, ScoreResult
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate
from ecs_plugins.shaping.protocol import ScoringTask, UnitUtility
from ecs_plugins.shaping.signals import (
    QUERY_TEMPLATE,
    BaseAgainstPassages,
    LayoutChoice,
    Rows,
    measured,
)
from ecs_plugins.shaping.utility import pragmatic_utility

GENERIC_QUESTIONS = (
    "What is this about?",
    "What happened, and when?",
    "Who is mentioned, and what did they do?",
)
"""Questions that any passage answers as well as another."""


@dataclass(frozen=True)
class ContrastiveLikelihood(BaseAgainstPassages):
    """`QueryLikelihood` less what the passage does to questions that could be asked of any.

    Attributes:
        questions: The generic questions, at least one.
        weight: How much of their mean shift is subtracted; 0 is `QueryLikelihood`.
        template: The prompt, which asks for a question.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.
        threshold: Nats per token, from a calibration of your own.

    Raises:
        ConfigurationError: There is no generic question, or one is blank.
    """

    questions: tuple[str, ...] = GENERIC_QUESTIONS
    weight: float = 0.5
    template: PromptTemplate = QUERY_TEMPLATE
    layout: LayoutChoice = "plain"
    threshold: float | None = None

    name = "contrastive_likelihood"
    unit = "nats per token"
    needs_answer = False
    cost = "passage + question + generic questions, one pass per passage"

    def __post_init__(self) -> None:
        if not self.questions or not all(question.strip() for question in self.questions):
            raise ConfigurationError("contrast needs at least one generic question, none blank")

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request: the question first, the generic ones behind the same passage."""
        request = self._request(task, layout, ("question",))
        chosen = layout if self.layout == "chat" else PLAIN
        generic = tuple(
            self.template.continuation(
                chosen, {"context": "", "question": question.strip(), "answer": ""}, ("question",)
            )
            for question in self.questions
        )
        return [
            ScoreRequest(
                request.prefix, request.candidates, request.continuations + generic, request.name
            )
        ]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The question's shift less the weighted mean shift of the generic ones."""
        del task

        def shift(rows: Rows, base: Rows) -> UnitUtility:
            own, *others = (
                pragmatic_utility(known[0].mean, unknown[0].mean)
                for known, unknown in zip(rows, base, strict=True)
            )
            generic = fmean(others)
            return UnitUtility(
                own - self.weight * generic, {"query_shift": own, "generic_shift": generic}
            )

        return measured(results, shift)
