"""The model as a judge: log-odds of Yes against No, in the paper's three wordings.

Section 3.5 of Entropic Context Shaping: "factuality" is its proxy where no answer is known
("Based on your knowledge, ..."), "helpfulness" the same without an appeal to knowledge, and
"correctness" the judgement where the answer is known. A pointwise judgement is what many
rerankers ask of a language model; small models mostly say the same of every passage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate
from ecs_plugins.shaping.protocol import ScoringTask, UnitUtility
from ecs_plugins.shaping.signals import LayoutChoice
from ecs_plugins.tokens import TokenLedger

Wording = Literal["factuality", "helpfulness", "correctness"]

WORDINGS: Mapping[Wording, str] = {
    "factuality": (
        "Question: {question}\nBased on your knowledge, does this passage contain accurate "
        "information for answering this question? Answer Yes or No."
    ),
    "helpfulness": (
        "Question: {question}\nDoes this passage help answer the question? Answer Yes or No."
    ),
    "correctness": (
        "Question: {question}\nCorrect answer: {answer}\nDoes this passage help answer the "
        "question correctly? Answer Yes or No."
    ),
}
"""What the model is asked behind the passage."""

YES, NO = "Yes", "No"


@dataclass(frozen=True)
class Judge:
    """``ln P(Yes) - ln P(No)`` behind a passage and a question about it.

    There is no base: the log-odds have their own zero, where Yes and No are equally likely. It
    is not a threshold, because models lean towards one of the words whatever is asked.

    Attributes:
        wording: Which of `WORDINGS` is asked.
        layout: ``"chat"``, since it is an instruction, or ``"plain"``.
        threshold: Nats of log-odds, from a calibration of your own.

    Raises:
        ConfigurationError: The wording is unknown.
    """

    wording: Wording = "helpfulness"
    layout: LayoutChoice = "chat"
    threshold: float | None = None

    unit = "nats"
    cost = "passage + question + Yes or No, one pass per passage"

    def __post_init__(self) -> None:
        if self.wording not in WORDINGS:
            raise ConfigurationError(
                f"unknown wording {self.wording!r}: use one of {', '.join(WORDINGS)}"
            )

    @property
    def name(self) -> str:
        """``judge_`` and the wording."""
        return f"judge_{self.wording}"

    @property
    def needs_answer(self) -> bool:
        """Only ``"correctness"`` does."""
        return self.wording == "correctness"

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Nothing to prepare."""
        del model, ledger
        return task

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request with the continuations Yes and No."""
        chosen = layout if self.layout == "chat" else PLAIN
        template = PromptTemplate(
            before="{context}",
            passage="Passage: {passage}\n",
            after=WORDINGS[self.wording],
            cue="Answer:",
            response=" {verdict}",
        )
        values = {
            "context": f"{task.context.strip()}\n" if task.context.strip() else "",
            "question": task.query.strip(),
            "answer": " or ".join(answer.strip() for answer in task.answers),
        }
        return [
            ScoreRequest(
                prefix=template.prefix(chosen, values),
                candidates=tuple(template.candidate(p.strip(), values) for p in task.passages),
                continuations=tuple(
                    template.continuation(chosen, {**values, "verdict": word}, ("verdict",))
                    for word in (YES, NO)
                ),
            )
        ]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The log-odds of every passage."""
        del task
        (result,) = results
        out: list[UnitUtility] = []
        for index, (yes, no) in enumerate(result.scores):
            if index in result.unscored:
                out.append(UnitUtility(math.nan, reason=result.unscored[index]))
                continue
            parts = {"yes_logprob": yes[0].sum, "no_logprob": no[0].sum}
            out.append(UnitUtility(yes[0].sum - no[0].sum, parts))
        return out
