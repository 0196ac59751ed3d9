"""What a signal is: the one protocol by which own signals join in.

A signal is a pair of pure functions around the model: `Signal.requests` says what to score, and
`Signal.utilities` turns the scores into nats. `Signal.prepare` is the place for signals that
must ask the model something first, such as drafting answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.tokens import TokenLedger


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
    """

    query: str
    passages: tuple[str, ...]
    context: str = ""
    answers: tuple[str, ...] = ()
    answer_log_weights: tuple[float, ...] = ()
    seed: int = 42
    trajectory: str = ""

    def narrowed(self, passages: Sequence[str], context: str) -> ScoringTask:
        """The same question about other passages, with another context."""
        return replace(self, passages=tuple(passages), context=context)


@dataclass(frozen=True, slots=True)
class UnitUtility:
    """What a signal says of one passage.

    Attributes:
        utility: Nats, without length penalty; what the threshold is compared with. NaN if the
            passage could not be scored.
        parts: What the utility was made from, by name.
        order_by: What passages are ordered by, where that is not the utility.
        reason: Why the utility is NaN.
        by_token: Log-probability of every token of the question behind this passage, in nats,
            where the signal scores the question; empty where it does not.
    """

    utility: float
    parts: Mapping[str, float] = field(default_factory=dict)
    order_by: float | None = None
    reason: str = ""
    by_token: tuple[float, ...] = ()


@runtime_checkable
class Signal(Protocol):
    """How useful a passage is, by the log-probabilities of a language model.

    Implementations hold settings only, so that one object serves any number of threads.
    """

    @property
    def name(self) -> str:
        """A stable identifier, recorded in results."""
        ...

    @property
    def unit(self) -> str:
        """The unit of the utility: ``"nats"`` or ``"nats per token"``."""
        ...

    @property
    def needs_answer(self) -> bool:
        """Whether it cannot work without an answer."""
        ...

    @property
    def cost(self) -> str:
        """In words: what is computed for each passage."""
        ...

    @property
    def threshold(self) -> float | None:
        """Utility from which on a passage helps; None if the signal only ranks."""
        ...

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Complete the task once, before anything is scored, and book what that cost.

        The task holds all passages that may be scored, in the order of the ranker, best first;
        where no ranker ran they stand as they were given. A signal with an attribute
        ``reads_best_first`` that is true gets them ranked also where all of them are scored.
        """
        ...

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """What to score. ``layout`` is that of the model."""
        ...

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """One utility per passage of the task, from one result per request."""
        ...


def reads_best_first(signal: Signal) -> bool:
    """Whether a signal prepares from the first passages, so that their order matters to it."""
    return bool(getattr(signal, "reads_best_first", False))
