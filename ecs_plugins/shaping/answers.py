"""Where an answer comes from when none is given: the model drafts some, and they are weighted.

Definition 3.1 needs an answer. `DraftAnswer` lets the model answer the question from the first
passages of the pool, and weights each draft by its own probability there,

    w_i = P(a_i | q) / sum_j P(a_j | q),   P(a | q) = mean over the drafting passages of P(a | u, q)

all drafts being continuations of one request that share their head. A signal that needs an answer
then works without one: the utility of a passage is the shift of ``ln sum_i w_i P(a_i)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ecs_plugins.errors import ConfigurationError, ScoringError
from ecs_plugins.lm.base import (
    ChatLayout,
    Generation,
    LanguageModel,
    ScoreRequest,
    ScoreResult,
    Segments,
)
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate
from ecs_plugins.shaping.protocol import ScoringTask, Signal, UnitUtility
from ecs_plugins.shaping.signals import ANSWER_TEMPLATE, AnswerShift, JointShift, LayoutChoice
from ecs_plugins.shaping.utility import marginal_logprob
from ecs_plugins.tokens import Role, Stage, TokenLedger

_TEMPLATE_ROOM = 160
"""Tokens of the window set aside for the template and the chat layout."""

Sources = Literal["each", "together"]
"""One draft from each of the first passages, or all drafts from all of them at once."""


@dataclass(frozen=True)
class DraftAnswer:
    """How answers are drafted.

    Attributes:
        drafts: How many; equal ones become one.
        sources: ``"each"`` drafts greedily from one passage after another, so that the drafts
            differ where the passages do. ``"together"`` drafts from all of them at once, first
            greedily and then by sampling.
        passages: How many passages ``"together"`` reads; ``"each"`` reads as many as ``drafts``.
        max_new_tokens: Of one draft, which also ends with its line.
        temperature: Of the sampled drafts.
        template: The prompt; its response is the draft.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.

    Raises:
        ConfigurationError: A number is out of range, or ``sources`` is unknown.
    """

    drafts: int = 4
    sources: Sources = "each"
    passages: int = 4
    max_new_tokens: int = 16
    temperature: float = 0.7
    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "plain"

    def __post_init__(self) -> None:
        for name in ("drafts", "passages", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.sources not in ("each", "together"):
            raise ConfigurationError(f"sources is each or together, got {self.sources!r}")
        if not 0.0 < self.temperature < math.inf:
            raise ConfigurationError(f"temperature must be positive, got {self.temperature}")

    def complete(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """The task with drafted answers and their log-weights; one with answers stays as it is.

        Args:
            task: Its passages in the order of the ranker, best first. Without any passage the
                model drafts from what it knows.
            model: Drafts and weights.
            ledger: Is charged for both.

        Raises:
            ScoringError: The model drafted nothing that has tokens.
        """
        if task.answers:
            return task
        sources = self._sources(task, model)
        texts = self._generate(task, sources, model, ledger)
        drafts = list(dict.fromkeys(text for text in texts if text))
        if drafts:
            counts = model.count_tokens(drafts)
            drafts = [draft for draft, count in zip(drafts, counts, strict=True) if count]
        if not drafts:
            raise ScoringError(
                "the model drafted no answer; use the signal 'query_likelihood', which needs none, "
                "or another model"
            )
        weights = self._weights(task, sources, drafts, model, ledger)
        return replace(task, answers=tuple(drafts), answer_log_weights=weights)

    def _sources(self, task: ScoringTask, model: LanguageModel) -> list[str]:
        passages = [passage.strip() for passage in task.passages if passage.strip()]
        if self.sources == "each":
            return passages[: self.drafts] or [""]
        chosen = passages[: self.passages]
        known, *sizes = model.count_tokens([f"{task.context}\n{task.query}", *chosen])
        left = model.max_tokens - _TEMPLATE_ROOM - self.max_new_tokens - known
        fitting = []
        for passage, size in zip(chosen, sizes, strict=True):
            left -= size + 1
            if left < 0:
                break
            fitting.append(passage)
        return ["\n".join(fitting)]

    def _generate(
        self, task: ScoringTask, sources: list[str], model: LanguageModel, ledger: TokenLedger
    ) -> list[str]:
        prompts = [self._prompt(task, source, model.layout) for source in sources]
        found = self._call(model, prompts, 0.0, task.seed)
        if self.sources == "together":
            # One call per seed: equal prompts in one batch may be sampled alike.
            for extra in range(1, self.drafts):
                found += self._call(model, prompts, self.temperature, task.seed + extra)
        for generation in found:
            tokens = generation.prompt_tokens + generation.completion_tokens
            ledger.book(Stage.QUERY, Role.SCORER, tokens)
        return [generation.text.strip() for generation in found]

    def _call(
        self, model: LanguageModel, prompts: list[Segments], temperature: float, seed: int
    ) -> list[Generation]:
        return model.generate(
            prompts,
            max_new_tokens=self.max_new_tokens,
            temperature=temperature,
            seed=seed,
            stop=("\n",),
        )

    def _weights(
        self,
        task: ScoringTask,
        sources: list[str],
        drafts: list[str],
        model: LanguageModel,
        ledger: TokenLedger,
    ) -> tuple[float, ...]:
        """``ln w_i``, normalised; equal where nothing can be said of any draft."""
        if len(drafts) == 1:
            return (0.0,)
        layout, values = self._laid_out(task, model.layout)
        request = ScoreRequest(
            prefix=self.template.prefix(layout, values),
            candidates=tuple(self.template.candidate(source, values) for source in sources),
            continuations=tuple(
                self.template.continuation(layout, {**values, "answer": draft}) for draft in drafts
            ),
            name="drafts",
        )
        (result,) = model.score([request])
        ledger.book(Stage.QUERY, Role.SCORER, result.computed_tokens)
        scored = [row for k, row in enumerate(result.scores) if k not in result.unscored]
        if not scored:
            return tuple([-math.log(len(drafts))] * len(drafts))
        share = [-math.log(len(scored))] * len(scored)
        logprobs = [
            marginal_logprob([row[m][0].sum for row in scored], share) for m in range(len(drafts))
        ]
        total = marginal_logprob(logprobs)
        return tuple(logprob - total for logprob in logprobs)

    def _prompt(self, task: ScoringTask, passage: str, layout: ChatLayout) -> Segments:
        chosen, values = self._laid_out(task, layout)
        return self.template.prompt(chosen, passage, values)

    def _laid_out(self, task: ScoringTask, layout: ChatLayout) -> tuple[ChatLayout, dict[str, str]]:
        chosen = layout if self.layout == "chat" else PLAIN
        context = f"{task.context.strip()}\n" if task.context.strip() else ""
        return chosen, {"context": context, "question": task.query.strip(), "answer": ""}


@dataclass(frozen=True)
class Drafted:
    """A signal that needs an answer, made label-free: what is not given is drafted.

    It has no threshold of its own: a draft is likely behind the passage it was drawn from,
    whether it is true or not, so the number only ranks until it has been calibrated.

    Attributes:
        signal: `AnswerShift`, `JointShift` or another one that needs an answer.
        drafting: How answers are drafted.
        threshold: In the signal's unit, from a calibration of your own.
    """

    signal: Signal
    drafting: DraftAnswer = DraftAnswer()
    threshold: float | None = None

    needs_answer = False
    reads_best_first = True

    @property
    def name(self) -> str:
        """``drafted_`` and the signal's name."""
        return f"drafted_{self.signal.name}"

    @property
    def unit(self) -> str:
        """The signal's."""
        return self.signal.unit

    @property
    def cost(self) -> str:
        """The signal's, and the drafts."""
        return f"{self.signal.cost}; {self.drafting.drafts} drafts of a few tokens per question"

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Draft answers if none are given."""
        task = self.signal.prepare(task, model, ledger)
        return self.drafting.complete(task, model, ledger)

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """The signal's."""
        return self.signal.requests(task, layout)

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The signal's."""
        return self.signal.utilities(task, results)


def drafted_answer_shift() -> Drafted:
    """`AnswerShift` with drafted answers."""
    return Drafted(AnswerShift())


def drafted_joint_shift() -> Drafted:
    """`JointShift` with drafted answers."""
    return Drafted(JointShift())
