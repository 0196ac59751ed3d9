"""The model as a judge: log-odds of Yes against No (section 3.5 of Entropic Context Shaping).

Where the answer is known the paper asks whether the passage helps to answer correctly; where it is
not, its "factuality-aware" proxy appeals to what the model knows (Algorithm 1, line 4). A pointwise
judgement is what many rerankers ask of a language model; small models mostly say the same of every
passage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ecs_plugins.lm.base import ChatLayout, ScoreRequest
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.shaping.signals.base import (
    LayoutChoice,
    PromptSignal,
    Rows,
    ScoringTask,
    UnitUtility,
)

JUDGE_TEMPLATE = PromptTemplate(
    before="{context}",
    passage="Passage: {passage}\n",
    after="Question: {question}\nBased on your knowledge, does this passage contain accurate "
    "information for answering this question? Answer Yes or No.",
    cue="Answer:",
    response=" {verdict}",
)
"""Setting 2 of section 3.5, where no answer is known."""
ANSWERED = (
    "Question: {question}\nCorrect answer: {answer}\nDoes this passage help answer the "
    "question correctly? Answer Yes or No."
)
"""What follows the passage in setting 1, where the answer is known."""


@dataclass(frozen=True)
class Judge(PromptSignal):
    """``ln P(Yes) - ln P(No)`` behind a passage and a question about it.

    There is no base: the log-odds have their own zero, where Yes and No are equally likely. It
    is not a threshold, because models lean towards one of the words whatever is asked. The layout
    is ``"chat"``, since it is an instruction.
    """

    template: PromptTemplate = JUDGE_TEMPLATE
    layout: LayoutChoice = "chat"
    threshold: float | None = None

    name = "judge"
    has_base = False

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Return one request with the continuations Yes and No."""
        asked = self
        if task.answers:
            asked = replace(self, template=replace(self.template, after=ANSWERED))
        answer = " or ".join(answer.strip() for answer in task.answers)
        words = [{"answer": answer, "verdict": word} for word in ("Yes", "No")]
        return [asked.request(task, layout, words, ("verdict",))]

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """Return the log-odds."""
        del task, base
        yes, no = (row[0].sum for row in rows)
        return UnitUtility(yes - no, {"yes_logprob": yes, "no_logprob": no})
