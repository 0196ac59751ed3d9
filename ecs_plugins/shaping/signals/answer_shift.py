"""Definition 3.1 of Entropic Context Shaping: how far a passage shifts the known answer."""

from __future__ import annotations

from dataclasses import dataclass

from ecs_plugins.lm.base import ChatLayout, ScoreRequest
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.shaping.signals.base import (
    PAPER_THRESHOLD,
    LayoutChoice,
    PromptSignal,
    Rows,
    ScoringTask,
    UnitUtility,
    marginal_logprob,
    pragmatic_utility,
)

ANSWER_TEMPLATE = PromptTemplate(
    before="{context}",
    passage="{passage}\n",
    after="Question: {question}",
    cue="Answer:",
    response=" {answer}",
)
"""Passage, question, answer: the layout of Definition 3.1."""


@dataclass(frozen=True)
class AnswerShift(PromptSignal):
    """Definition 3.1: how much a passage raises the log-probability of the known answer.

    Several answers are alternatives, marginalised by logsumexp.

    Attributes:
        template: The prompt; the passage comes before the question.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.
        threshold: Nats from which on a passage helps; the paper's delta.
    """

    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "plain"
    threshold: float | None = PAPER_THRESHOLD

    name = "answer_shift"
    unit = "nats"
    needs_answer = True
    cost = "passage + question + answers, one pass per passage"

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request; every answer is a continuation."""
        answers = [{"answer": answer.strip()} for answer in task.answers]
        return [self.request(task, layout, answers, ("answer",))]

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """The shift of the answers' marginal log-probability."""
        known, unknown = (
            marginal_logprob([row[0].sum for row in side], task.answer_log_weights or None)
            for side in (rows, base)
        )
        return UnitUtility(
            pragmatic_utility(known, unknown),
            {"answer_logprob": known, "base_answer_logprob": unknown},
        )
