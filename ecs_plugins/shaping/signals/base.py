"""Protocol of a signal, and the definitions that signals share.

A signal is a pair of pure functions around the model: `Signal.requests` says what to score, and
`Signal.utilities` turns the scores into nats. `Signal.prepare` is the place for signals that
must ask the model something first, such as drafting answers. Whoever has an attribute of each name
is a signal; `PromptSignal` is the short way to one that reads a prompt.

Natural logarithm everywhere; utilities are in nats. Definition 3.1 of Entropic Context Shaping, as
its worked example (section 3.6) fixes it:

    U(u; C, a) = ln P(a | C, u, q) - ln P(a | C, q) - beta * |u|

with ``|u|`` in tokens. Algorithm 1 accepts u where U >= delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import (
    ChatLayout,
    LanguageModel,
    ScoreRequest,
    ScoreResult,
    Segments,
    SegmentScore,
)
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate
from ecs_plugins.tokens import TokenLedger

PAPER_THRESHOLD = 0.05
"""delta of Table 2, in nats."""

LayoutChoice = Literal["plain", "chat"]
"""Plain text for every model, or the chat layout of those that have one."""

Rows = Sequence[Sequence[SegmentScore]]
"""The scored segments of every continuation behind one candidate."""


@dataclass(frozen=True, slots=True)
class ScoringTask:
    """One question about some passages.

    Attributes:
        query: The question, not blank.
        passages: What is to be scored, none blank.
        context: What is known already (C); may be empty.
        answers: The known or drafted answers, none blank; empty if there are none.
        answer_log_weights: ``ln w`` of each answer; empty means equal.
        seed: For signals that sample.
        trajectory: How the model goes on without a passage, for signals that compare along the
            way; empty where nothing asked for it, or the model had nothing to say.
        stage1_scores: What found the passages gave each text; empty if unknown.
        titles: What each text is a part of, where that is known besides the text.
        unscored: What stage 1 passed on beside ``passages`` and the model does not read: a ranker
            compares with it too.
    """

    query: str
    passages: tuple[str, ...]
    context: str = ""
    answers: tuple[str, ...] = ()
    answer_log_weights: tuple[float, ...] = ()
    seed: int = 42
    trajectory: str = ""
    stage1_scores: Mapping[str, float] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    unscored: tuple[str, ...] = ()

    def narrowed(self, passages: Sequence[str], context: str) -> ScoringTask:
        """Return the same question about other passages, with another context."""
        return replace(self, passages=tuple(passages), context=context)


@dataclass(frozen=True, slots=True)
class UnitUtility:
    """Utility of one passage by a signal.

    Attributes:
        utility: Nats, without length penalty; what the threshold is compared with. NaN if the
            passage could not be scored.
        parts: What the utility was made from, by name.
        order_by: What passages are ordered by, where that is not the utility.
        reason: Why the utility is NaN.
        by_token: Log-probability of every token of the question behind this passage, in nats,
            where the signal scores the question; empty where it does not.
        probability: That the passage helps, in [0, 1]; None where nothing was fitted.
    """

    utility: float
    parts: Mapping[str, float] = field(default_factory=dict)
    order_by: float | None = None
    reason: str = ""
    by_token: tuple[float, ...] = ()
    probability: float | None = None

    @property
    def score(self) -> float:
        """Number by which passages are ordered."""
        return self.utility if self.order_by is None else self.order_by

    @property
    def is_finite(self) -> bool:
        """True if the passage could be scored and ordered."""
        return math.isfinite(self.utility) and math.isfinite(self.score)


def by_score(scored: Mapping[int, UnitUtility]) -> list[int]:
    """Return indices, best first; ties by index."""
    return sorted(scored, key=lambda index: (-scored[index].score, index))


@runtime_checkable
class Signal(Protocol):
    """Measure of a passage by the log-probabilities of a language model.

    Implementations hold settings only, so that one object serves any number of threads.
    """

    @property
    def name(self) -> str:
        """Return a stable identifier, recorded in results."""

    @property
    def unit(self) -> str:
        """Return the unit of the utility: ``"nats"`` or ``"nats per token"``."""

    @property
    def needs_answer(self) -> bool:
        """True if it cannot work without an answer."""

    @property
    def threshold(self) -> float | None:
        """Utility from which on a passage helps; None if the signal only ranks."""

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Complete the task once, before anything is scored, and book the cost.

        The task holds all passages that may be scored, in the order of the ranker, best first;
        where no ranker ran they stand as they were given. A signal with an attribute
        ``reads_best_first`` that is true gets them ranked also where all of them are scored.
        """

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """What to score. ``layout`` is that of the model."""

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """Return one utility per passage of the task, from one result per request."""


class PromptSignal:
    """A signal that asks one request made from a prompt: the layout that all of ours share.

    A subclass has a ``name``, and says in `requests` what is scored and in `utility` what follows
    from it.

    Attributes:
        template: The prompt; in ours the passage comes before the question.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.
        threshold: Utility from which on a passage helps, from a calibration of your own unless
            the paper has one; None only ranks.
        has_base: Whether passages are compared with none, the first candidate of the request.
    """

    template: PromptTemplate
    layout: LayoutChoice = "plain"
    threshold: float | None = None
    unit: ClassVar[str] = "nats"
    needs_answer: ClassVar[bool] = False
    has_base: ClassVar[bool] = True

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Return the task unchanged: this signal prepares nothing."""
        del model, ledger
        return task

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Return one `request`."""
        raise NotImplementedError

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """Return the utility of one passage.

        Args:
            task: What was asked.
            rows: ``rows[m][s]``, the s-th scored part of the m-th continuation behind the passage.
            base: The same without a passage; empty unless `has_base`.
        """
        raise NotImplementedError

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """Return the `utility` of every passage."""
        (result,) = results
        if self.has_base and 0 in result.unscored:
            raise ScoringError(
                f"the question cannot be scored without a passage: {result.unscored[0]}. "
                "Shorten the question, the answer or the context."
            )
        first = int(self.has_base)
        base: Rows = result.scores[0] if self.has_base else ()
        return [
            UnitUtility(math.nan, reason=result.unscored[index])
            if index in result.unscored
            else self.utility(task, row, base)
            for index, row in enumerate(result.scores[first:], start=first)
        ]

    def request(
        self,
        task: ScoringTask,
        layout: ChatLayout,
        responses: Sequence[Mapping[str, str]],
        scored: tuple[str, ...],
        divergence: bool = False,
    ) -> ScoreRequest:
        """Return a request with the base, if there is one, and then the prompt of every passage.

        Args:
            task: Fills ``{context}``, ``{question}`` and ``{passage}``.
            layout: That of the model.
            responses: For every continuation, what fills the other fields.
            scored: The fields that are scored.
            divergence: Whether their divergence from the base is wanted too.
        """
        chosen, values = self.laid_out(task, layout)
        passages = [passage.strip() for passage in task.passages]
        candidates = [self.template.candidate(passage, values) for passage in passages]
        if self.has_base:
            candidates.insert(0, ())
        continuations: list[Segments] = []
        for fields in responses:
            filled = {**values, **fields}
            continuations.append(self.template.continuation(chosen, filled, scored))
        return ScoreRequest(
            prefix=self.template.prefix(chosen, values),
            candidates=tuple(candidates),
            continuations=tuple(continuations),
            divergence=divergence,
        )

    def cue(self, task: ScoringTask, layout: ChatLayout, passage: str) -> Segments:
        """Return the prompt up to the response, to generate a response from it."""
        chosen, values = self.laid_out(task, layout)
        return self.template.prompt(chosen, passage, values)

    def laid_out(self, task: ScoringTask, layout: ChatLayout) -> tuple[ChatLayout, dict[str, str]]:
        """Return the layout in use, and the fields of the prompt."""
        context = task.context.strip()
        values = {
            "context": f"{context}\n" if context else "",
            "question": task.query.strip(),
            "answer": "",
        }
        chosen = layout if self.layout == "chat" else PLAIN
        return chosen, values


class SignalAround:
    """Signal made from another one, which provides all that a subclass does not.

    Attributes:
        signal: The other one.
    """

    signal: Signal
    unit: Any = property(attrgetter("signal.unit"))
    needs_answer: Any = property(attrgetter("signal.needs_answer"))
    threshold: Any = property(attrgetter("signal.threshold"))

    @property
    def reads_best_first(self) -> bool:
        """True if passages must be ranked before `prepare`."""
        return bool(getattr(self.signal, "reads_best_first", False))

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Complete the task."""
        return self.signal.prepare(task, model, ledger)

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """What to score."""
        return self.signal.requests(task, layout)

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """Return one utility per passage."""
        return self.signal.utilities(task, results)


def marginal_logprob(logprobs: Sequence[float], log_weights: Sequence[float] = ()) -> float:
    """``ln sum_i w_i P(a_i)``: the log-probability of any of several answers.

    Args:
        logprobs: ``ln P(a_i)``, at least one.
        log_weights: ``ln w_i``; without any all are 0, so that the answers are alternatives.
    """
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        weighted = np.add(logprobs, log_weights or 0.0)
        return float(np.logaddexp.reduce(weighted))
