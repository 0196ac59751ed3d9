"""The likelihood of the answer and of the question after a passage, and of both together.

`AnswerShift` is Definition 3.1 of Entropic Context Shaping, for a known answer.
`QueryLikelihood` is the label-free stand-in for Definition 3.1: a passage that makes the question
likely usually answers it (Sachan et al. 2022, UPR). `JointShift` reads question and answer from one
pass over ``passage -> question -> answer``. `Judge` asks whether a passage helps (section 3.5):
where the answer is known the paper asks whether the passage helps to answer correctly; where it is
not, its "factuality-aware" proxy appeals to what the model knows (Algorithm 1, line 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

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
)

ANSWER_TEMPLATE = PromptTemplate(
    before="{context}",
    passage="{passage}\n",
    after="Question: {question}",
    cue="Answer:",
    response=" {answer}",
)
"""Passage, question, answer: the layout of Definition 3.1."""
QUERY_TEMPLATE = PromptTemplate(
    before="{context}",
    passage="Passage: {passage}\n",
    after="Write a question answered by this passage.",
    cue="Question:",
    response=" {question}",
)
"""Passage, then the question that it answers (Sachan et al. 2022)."""
JOINT_TEMPLATE = replace(QUERY_TEMPLATE, response=" {question}\nAnswer: {answer}")
"""As `QUERY_TEMPLATE`, going on to the answer."""


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


def pragmatic_utility(with_passage: float, without: float) -> float:
    """Definition 3.1 before the price of length: the shift of the answer's log-probability.

    Args:
        with_passage: ``ln P(a | C, u, q)``.
        without: ``ln P(a | C, q)``.

    Returns:
        Nats; negative where the passage makes the answer less likely. Two impossible answers
        (both minus infinity) differ by nothing.
    """
    return 0.0 if with_passage == without else with_passage - without


@dataclass(frozen=True)
class AnswerShift(PromptSignal):
    """Definition 3.1: how much a passage raises the log-probability of the known answer.

    Several answers are alternatives, marginalised by logsumexp. The threshold is the paper's delta.
    """

    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "plain"
    threshold: float | None = PAPER_THRESHOLD

    name = "answer_shift"
    needs_answer = True
    scored: ClassVar[tuple[str, ...]] = ("answer",)

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Return one request; every answer is a continuation."""
        answers = [{"answer": answer.strip()} for answer in task.answers]
        return [self.request(task, layout, answers, self.scored)]

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """Return the shift of the answers' marginal log-probability."""
        known, unknown = (
            marginal_logprob([row[-1].sum for row in side], task.answer_log_weights)
            for side in (rows, base)
        )
        return UnitUtility(
            pragmatic_utility(known, unknown),
            {"answer_logprob": known, "base_answer_logprob": unknown},
        )


@dataclass(frozen=True)
class QueryLikelihood(PromptSignal):
    """Rise of the question's mean log-probability per token by a passage.

    The base (no passage) is the same for all, so the order is that of ``P(question | passage)``;
    subtracting it gives the number a zero. It has no threshold of its own: a red herring about
    the same people raises the question's likelihood too, so the number only ranks until it
    has been calibrated.
    """

    template: PromptTemplate = QUERY_TEMPLATE
    layout: LayoutChoice = "plain"
    threshold: float | None = None

    name = "query_likelihood"
    unit = "nats per token"

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Return one request with the question as its only continuation."""
        return [self.request(task, layout, [{}], ("question",))]

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """Return the shift of the question's mean log-probability."""
        del task
        known, unknown = rows[0][0].mean, base[0][0].mean
        return UnitUtility(
            pragmatic_utility(known, unknown),
            {
                "query_logprob": known,
                "base_query_logprob": unknown,
                "explained": 1.0 - known / unknown if unknown else 0.0,
            },
            by_token=tuple(map(float, rows[0][0].logprobs)),
        )


@dataclass(frozen=True)
class JointShift(AnswerShift):
    """Question and answer in one pass: ``passage -> question -> answer``, both scored.

    The utility is the answer's shift, so the threshold keeps its meaning. Passages are ordered by

        shift of ln P(question) per token + shift of ln P(answer) per token

    because neither a long question nor a long answer should decide alone.
    """

    template: PromptTemplate = JOINT_TEMPLATE

    name = "joint_shift"
    scored = ("question", "answer")

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """Return the answer's shift, ordered together with the question's."""
        by_answer = pragmatic_utility(
            *(
                marginal_logprob([row[1].mean for row in side], task.answer_log_weights)
                for side in (rows, base)
            )
        )
        by_query = pragmatic_utility(rows[0][0].mean, base[0][0].mean)
        shift = super().utility(task, rows, base)
        return replace(
            shift,
            parts={
                **shift.parts,
                "query_shift_per_token": by_query,
                "answer_shift_per_token": by_answer,
            },
            order_by=by_query + by_answer,
            by_token=tuple(map(float, rows[0][0].logprobs)),
        )


@dataclass(frozen=True)
class Judge(PromptSignal):
    """``ln P(Yes) - ln P(No)`` after a passage and a question about it.

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
