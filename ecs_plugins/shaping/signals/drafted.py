"""Where an answer comes from when none is given: the model drafts some, and they are weighted.

Definition 3.1 needs an answer. The model answers the question from each of the first passages of
the pool, and each draft is weighted by its own probability there,

    w_i = P(a_i | q) / sum_j P(a_j | q),   P(a | q) = mean over the drafting passages of P(a | u, q)

all drafts being continuations of one request that share their head. A signal that needs an answer
then works without one: the utility of a passage is the shift of ``ln sum_i w_i P(a_i)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ecs_plugins.errors import ConfigurationError, ScoringError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, SignalAround, marginal_logprob
from ecs_plugins.shaping.signals.likelihood import AnswerShift
from ecs_plugins.tokens import Role, Stage, TokenLedger

MAX_NEW_TOKENS = 16
"""Of one draft, which also ends with its line."""


@dataclass(frozen=True)
class Drafted(SignalAround):
    """Label-free form of a signal that needs an answer: missing answers are drafted.

    Drafts are greedy, one per passage, so that they differ where the passages do. The signal
    has no threshold of its own: a draft is likely behind the passage it was drawn from,
    whether it is true or not, so the number only ranks until it has been calibrated.

    Attributes:
        signal: `AnswerShift`, `JointShift` or another one that needs an answer.
        drafts: From how many passages one is drafted; equal drafts become one.
        threshold: In the signal's unit, from a calibration of your own.

    Raises:
        ConfigurationError: ``drafts`` is below 1.
    """

    signal: Signal
    drafts: int = 4
    threshold: float | None = None

    needs_answer = False
    reads_best_first = True

    def __post_init__(self) -> None:
        if self.drafts < 1:
            raise ConfigurationError(f"drafts must be at least 1, got {self.drafts}")

    @property
    def name(self) -> str:
        """``drafted_`` and the signal's name."""
        return f"drafted_{self.signal.name}"

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Draft answers from the first passages if none are given, and weight them.

        Without any passage the model drafts from what it knows.

        Raises:
            ScoringError: The model drafted nothing that has tokens.
        """
        task = self.signal.prepare(task, model, ledger)
        if task.answers:
            return task
        sources = [passage.strip() for passage in task.passages[: self.drafts]] or [""]
        signal = AnswerShift()
        drafts = _drafts(signal, task, sources, model, ledger)
        if not drafts:
            raise ScoringError(
                "the model drafted no answer; use the signal 'query_likelihood', which needs none, "
                "or another model"
            )
        drafted = replace(task, answers=drafts)
        weights = _log_weights(signal, drafted, sources, model, ledger)
        return replace(drafted, answer_log_weights=weights)


def _drafts(
    signal: AnswerShift,
    task: ScoringTask,
    sources: Sequence[str],
    model: LanguageModel,
    ledger: TokenLedger,
) -> tuple[str, ...]:
    """Return the model's answers from each passage alone, each answer once."""
    generations = model.generate(
        [signal.cue(task, model.layout, source) for source in sources],
        max_new_tokens=MAX_NEW_TOKENS,
        seed=task.seed,
        stop=("\n",),
    )
    texts: dict[str, None] = {}
    for generation in generations:
        tokens = generation.prompt_tokens + generation.completion_tokens
        ledger.book(Stage.QUERY, Role.SCORER, tokens)
        texts[generation.text.strip()] = None
    texts.pop("", None)
    answers = list(texts)
    if not answers:
        return ()
    counts = model.count_tokens(answers)
    pairs = zip(answers, counts, strict=True)
    return tuple(text for text, count in pairs if count)


def _log_weights(
    signal: AnswerShift,
    task: ScoringTask,
    sources: Sequence[str],
    model: LanguageModel,
    ledger: TokenLedger,
) -> tuple[float, ...]:
    """Return ``ln w_i`` of the answers, normalised; equal weights if none can be scored."""
    drafts = len(task.answers)
    if drafts == 1:
        return (0.0,)
    narrowed = task.narrowed(sources, task.context)
    (request,) = signal.requests(narrowed, model.layout)
    without_base = replace(request, candidates=request.candidates[1:])
    (result,) = model.score([without_base])
    ledger.book(Stage.QUERY, Role.SCORER, result.computed_tokens)
    rows = [row for k, row in enumerate(result.scores) if k not in result.unscored]
    if not rows:
        return tuple([-math.log(drafts)] * drafts)
    share = [-math.log(len(rows))] * len(rows)
    logprobs: list[float] = []
    for draft in range(drafts):
        by_source = [row[draft][0].sum for row in rows]
        logprobs.append(marginal_logprob(by_source, share))
    total = marginal_logprob(logprobs)
    return tuple(logprob - total for logprob in logprobs)
