"""What is measured of a passage: which log-probabilities, and how they become a utility.

`AnswerShift` is Definition 3.1 of Entropic Context Shaping. `QueryLikelihood` is its label-free
stand-in: a passage that makes the question likely usually answers it (Sachan et al. 2022, UPR).
`JointShift` reads both from one pass over ``passage -> question -> answer``.

All of them compare each passage with no passage, the first candidate of their only request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ScoringError
from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult, SegmentScore
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate
from ecs_plugins.shaping.protocol import ScoringTask, Signal, UnitUtility
from ecs_plugins.shaping.utility import PAPER_THRESHOLD, marginal_logprob, pragmatic_utility
from ecs_plugins.tokens import TokenLedger

LayoutChoice = Literal["plain", "chat"]
"""Plain text for every model, or the chat layout of those that have one."""

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
JOINT_TEMPLATE = PromptTemplate(
    before="{context}",
    passage="Passage: {passage}\n",
    after="Write a question answered by this passage.",
    cue="Question:",
    response=" {question}\nAnswer: {answer}",
)
"""As `QUERY_TEMPLATE`, going on to the answer."""


class BaseAgainstPassages:
    """The common shape: one request whose first candidate is empty and serves as the base."""

    template: PromptTemplate
    layout: LayoutChoice

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Nothing to prepare."""
        del model, ledger
        return task

    def _request(
        self, task: ScoringTask, layout: ChatLayout, scored: tuple[str, ...]
    ) -> ScoreRequest:
        chosen = layout if self.layout == "chat" else PLAIN
        context = f"{task.context.strip()}\n" if task.context.strip() else ""
        values = {"context": context, "question": task.query.strip()}
        answers = task.answers if "answer" in scored else ("",)
        return ScoreRequest(
            prefix=self.template.prefix(chosen, values),
            candidates=(
                (),
                *(self.template.candidate(passage.strip(), values) for passage in task.passages),
            ),
            continuations=tuple(
                self.template.continuation(chosen, {**values, "answer": answer.strip()}, scored)
                for answer in answers
            ),
        )


Rows = Sequence[Sequence[SegmentScore]]
"""The scored segments of every continuation behind one candidate."""


def measured(
    results: Sequence[ScoreResult], shift: Callable[[Rows, Rows], UnitUtility]
) -> list[UnitUtility]:
    """Compare every passage with the base, the first candidate of the only request."""
    (result,) = results
    if 0 in result.unscored:
        raise ScoringError(
            f"the question cannot be scored without a passage: {result.unscored[0]}. "
            "Shorten the question, the answer or the context."
        )
    base, *rows = result.scores
    return [
        UnitUtility(math.nan, reason=result.unscored[index])
        if index in result.unscored
        else shift(row, base)
        for index, row in enumerate(rows, start=1)
    ]


def _answer_logprob(rows: Rows, segment: int, weights: tuple[float, ...], per_token: bool) -> float:
    scores = [row[segment] for row in rows]
    return marginal_logprob(
        [score.mean if per_token else score.sum for score in scores], weights or None
    )


@dataclass(frozen=True)
class AnswerShift(BaseAgainstPassages):
    """Definition 3.1: how much a passage raises the log-probability of the known answer.

    Several answers are alternatives, marginalised by logsumexp.

    Attributes:
        template: The prompt; the passage comes before the question.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.
        per_token: Use each answer's mean log-probability per token in place of its sum.
        threshold: Nats from which on a passage helps; the paper's delta.
    """

    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "plain"
    per_token: bool = False
    threshold: float | None = PAPER_THRESHOLD

    name = "answer_shift"
    needs_answer = True
    cost = "passage + question + answers, one pass per passage"

    @property
    def unit(self) -> str:
        """Nats, or nats per answer token."""
        return "nats per token" if self.per_token else "nats"

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request; every answer is a continuation."""
        return [self._request(task, layout, ("answer",))]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The shift of the answers' marginal log-probability."""

        def shift(rows: Rows, base: Rows) -> UnitUtility:
            known = _answer_logprob(rows, 0, task.answer_log_weights, self.per_token)
            unknown = _answer_logprob(base, 0, task.answer_log_weights, self.per_token)
            return UnitUtility(
                pragmatic_utility(known, unknown),
                {"answer_logprob": known, "base_answer_logprob": unknown},
            )

        return measured(results, shift)


@dataclass(frozen=True)
class QueryLikelihood(BaseAgainstPassages):
    """How much a passage raises the question's mean log-probability per token.

    The base (no passage) is the same for all, so the order is that of ``P(question | passage)``;
    subtracting it gives the number a zero. It has no threshold of its own: a red herring about
    the same people raises the question's likelihood too, so the number only ranks until it
    has been calibrated.

    Attributes:
        template: The prompt, which asks for a question.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.
        threshold: Nats per token, from a calibration of your own.
    """

    template: PromptTemplate = QUERY_TEMPLATE
    layout: LayoutChoice = "plain"
    threshold: float | None = None

    name = "query_likelihood"
    unit = "nats per token"
    needs_answer = False
    cost = "passage + question, one pass per passage"

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request with the question as its only continuation."""
        return [self._request(task, layout, ("question",))]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The shift of the question's mean log-probability."""
        del task

        def shift(rows: Rows, base: Rows) -> UnitUtility:
            known, unknown = rows[0][0].mean, base[0][0].mean
            return UnitUtility(
                pragmatic_utility(known, unknown),
                {"query_logprob": known, "base_query_logprob": unknown},
                by_token=tuple(map(float, rows[0][0].logprobs)),
            )

        return measured(results, shift)


@dataclass(frozen=True)
class JointShift(BaseAgainstPassages):
    """Question and answer in one pass: ``passage -> question -> answer``, both scored.

    The utility is the answer's shift, so the threshold keeps its meaning. Passages are ordered by

        shift of ln P(question) per token + answer_weight * shift of ln P(answer) per token

    because neither a long question nor a long answer should decide alone.

    Attributes:
        template: The prompt, which asks for a question and goes on to its answer.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.
        answer_weight: Weight of the answer against the question.
        threshold: Nats of answer shift.
    """

    template: PromptTemplate = JOINT_TEMPLATE
    layout: LayoutChoice = "plain"
    answer_weight: float = 1.0
    threshold: float | None = PAPER_THRESHOLD

    name = "joint_shift"
    unit = "nats"
    needs_answer = True
    cost = "passage + question + answers, one pass per passage"

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request; every continuation is the question and one answer."""
        return [self._request(task, layout, ("question", "answer"))]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The answer's shift, ordered together with the question's."""
        weights = task.answer_log_weights

        def shift(rows: Rows, base: Rows) -> UnitUtility:
            known = _answer_logprob(rows, 1, weights, per_token=False)
            unknown = _answer_logprob(base, 1, weights, per_token=False)
            by_answer = pragmatic_utility(
                _answer_logprob(rows, 1, weights, per_token=True),
                _answer_logprob(base, 1, weights, per_token=True),
            )
            by_query = pragmatic_utility(rows[0][0].mean, base[0][0].mean)
            return UnitUtility(
                pragmatic_utility(known, unknown),
                {
                    "answer_logprob": known,
                    "base_answer_logprob": unknown,
                    "query_shift_per_token": by_query,
                    "answer_shift_per_token": by_answer,
                },
                order_by=by_query + self.answer_weight * by_answer,
                by_token=tuple(map(float, rows[0][0].logprobs)),
            )

        return measured(results, shift)


def _elsewhere(module: str, maker: str, **settings: str) -> Callable[[], Signal]:
    """A signal of a module that builds on this one, imported when it is asked for."""

    def make() -> Signal:
        found: Signal = getattr(import_module(f"ecs_plugins.shaping.{module}"), maker)(**settings)
        return found

    return make


SIGNALS: dict[str, Callable[[], Signal]] = {
    "answer_shift": AnswerShift,
    "query_likelihood": QueryLikelihood,
    "joint_shift": JointShift,
    "drafted_answer_shift": _elsewhere("answers", "drafted_answer_shift"),
    "drafted_joint_shift": _elsewhere("answers", "drafted_joint_shift"),
    "query_likelihood+bm25": _elsewhere("fusion", "query_likelihood_bm25"),
    "joint_shift+bm25": _elsewhere("fusion", "joint_shift_bm25"),
    "distribution_shift": _elsewhere("divergence", "DistributionShift"),
    "distribution_shift_top50": _elsewhere("divergence", "distribution_shift_top50"),
    "trajectory_shift": _elsewhere("divergence", "TrajectoryShift"),
    "trajectory_shift_top50": _elsewhere("divergence", "trajectory_shift_top50"),
    "judge_factuality": _elsewhere("judge", "Judge", wording="factuality"),
    "judge_helpfulness": _elsewhere("judge", "Judge", wording="helpfulness"),
    "judge_correctness": _elsewhere("judge", "Judge", wording="correctness"),
}
"""Signals by name."""
AUTO_WITH_ANSWER = "joint_shift+bm25"
AUTO_WITHOUT_ANSWER = "query_likelihood+bm25"


def resolve_signal(signal: str | Signal, *, has_answer: bool) -> Signal:
    """The signal of a configuration.

    Args:
        signal: A name, an own `Signal`, or ``"auto"``: `JointShift` when an answer is known,
            else `QueryLikelihood`, either ordered together with BM25.
        has_answer: Whether an answer is known.

    Raises:
        ConfigurationError: The name is unknown.
        InvalidInputError: The signal needs an answer and there is none.
    """
    if isinstance(signal, str):
        name = signal
        if name == "auto":
            name = AUTO_WITH_ANSWER if has_answer else AUTO_WITHOUT_ANSWER
        if name not in SIGNALS:
            raise ConfigurationError(
                f"unknown signal {name!r}: use auto, {', '.join(SIGNALS)}, or pass an own Signal"
            )
        signal = SIGNALS[name]()
    if signal.needs_answer and not has_answer:
        raise InvalidInputError(
            f"the signal {signal.name!r} needs an answer: pass answer=..., or use the signal "
            "'query_likelihood', which needs none"
        )
    return signal
