"""How far a passage moves what the model is about to say, whatever the true answer is.

`DistributionShift` is the divergence of Eq. 3 of Entropic Context Shaping, at the first token of
the answer; `TrajectoryShift` is Definition 3.3, its sum over the first T tokens:

    sum over t = 1..T of D_KL(P_t(. | C, u, q) || P_t(. | C, q))

Both need no answer, and both are magnitudes. By the paper's red-herring theorem (3.2) an unrelated
passage leaves the distribution where it was; the reverse does not hold. A passage that misleads
moves it as far as one that helps ("the direction problem", section 3.1), so these signals never
say `hurts`, and without a threshold of your own they only rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import (
    PAPER_TOP_K,
    ChatLayout,
    Divergence,
    LanguageModel,
    ScoreRequest,
    ScoreResult,
)
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate
from ecs_plugins.shaping.protocol import ScoringTask, UnitUtility
from ecs_plugins.shaping.signals import (
    ANSWER_TEMPLATE,
    BaseAgainstPassages,
    LayoutChoice,
    Rows,
    measured,
)
from ecs_plugins.tokens import Role, Stage, TokenLedger

PAPER_HORIZON = 8
"""T of Table 2: tokens along which two trajectories are compared."""

EXACT = Divergence()
"""Over the whole vocabulary."""

_ANYTHING = "the"
"""Scored in place of an answer: what predicts the first token does not depend on that token."""


@dataclass(frozen=True)
class DistributionShift(BaseAgainstPassages):
    """How far a passage moves the distribution of the answer's first token (Eq. 3).

    Attributes:
        divergence: Over the whole vocabulary, which is exact, or over the most likely tokens.
        template: The prompt; its response is where the answer would begin.
        layout: ``"plain"`` text, or the model's ``"chat"`` layout.
        threshold: Nats, from a calibration of your own.
    """

    divergence: Divergence = EXACT
    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "plain"
    threshold: float | None = None

    unit = "nats"
    needs_answer = False
    cost = "passage + question, one pass per passage"

    @property
    def name(self) -> str:
        """``distribution_shift``, with the number of tokens where it is not exact."""
        return f"distribution_shift{_suffix(self.divergence)}"

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request that asks for the divergence behind the question."""
        request = self._request(replace(task, answers=(_ANYTHING,)), layout, ("answer",))
        return [replace(request, divergence=self.divergence)]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The divergence at the first token."""
        del task
        return measured(results, lambda rows, _: UnitUtility(float(_divergences(rows)[0])))


@dataclass(frozen=True)
class TrajectoryShift(BaseAgainstPassages):
    """How far a passage moves the first T tokens of the reply (Definition 3.3).

    The model goes on greedily without a passage, once per question; behind every passage it is led
    along the same text. What the tokens were is read from their text, so that a tokenizer may
    count one more or less; never more than ``horizon`` are compared.

    Attributes:
        horizon: T.
        per_token: The mean over the tokens in place of the paper's sum.
        divergence: Over the whole vocabulary, which is exact, or over the most likely tokens.
        template: The prompt; what the model says takes the place of its response.
        layout: ``"chat"``, because an instructed model that sees a bare question often ends its
            reply at once and leaves nothing to follow, or ``"plain"``.
        threshold: In nats, or nats per token, from a calibration of your own.

    Raises:
        ConfigurationError: ``horizon`` is below 1.
    """

    horizon: int = PAPER_HORIZON
    per_token: bool = False
    divergence: Divergence = EXACT
    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "chat"
    threshold: float | None = None

    needs_answer = False

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ConfigurationError(f"horizon must be at least 1 token, got {self.horizon}")

    @property
    def name(self) -> str:
        """``trajectory_shift``, with the number of tokens where it is not exact."""
        return f"trajectory_shift{_suffix(self.divergence)}"

    @property
    def unit(self) -> str:
        """Nats, or nats per token."""
        return "nats per token" if self.per_token else "nats"

    @property
    def cost(self) -> str:
        """In words."""
        return (
            f"passage + question + {self.horizon} tokens, one pass per passage; "
            f"{self.horizon} tokens generated per question"
        )

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Let the model go on without a passage."""
        if task.trajectory:
            return task
        chosen = model.layout if self.layout == "chat" else PLAIN
        context = f"{task.context.strip()}\n" if task.context.strip() else ""
        values = {"context": context, "question": task.query.strip(), "answer": ""}
        (found,) = model.generate(
            [self.template.prompt(chosen, "", values)], max_new_tokens=self.horizon
        )
        ledger.book(Stage.QUERY, Role.SCORER, found.prompt_tokens + found.completion_tokens)
        # A last character may be cut in half, and some tokenizers drop the first space.
        text = found.text.rstrip("\ufffd")
        if text and not text[0].isspace():
            text = f" {text}"
        if not text or not model.count_tokens([text])[0]:
            return task
        return replace(task, trajectory=text)

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request along the trajectory; of an empty one, its first token."""
        request = self._request(replace(task, answers=(_ANYTHING,)), layout, ("answer",))
        # Not through the task's answers, which lose the white space around them.
        along = replace(self.template, response="{answer}").continuation(
            layout if self.layout == "chat" else PLAIN,
            {
                "context": "",
                "question": task.query.strip(),
                "answer": task.trajectory or f" {_ANYTHING}",
            },
        )
        return [replace(request, continuations=(along,), divergence=self.divergence)]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The sum, or mean, of the divergences along the trajectory."""
        compared = self.horizon if task.trajectory else 1

        def shift(rows: Rows, _base: Rows) -> UnitUtility:
            along = _divergences(rows)[:compared]
            whole = float(along.sum(dtype=np.float64))
            parts = {"first_token": float(along[0]), "tokens_compared": float(len(along))}
            return UnitUtility(whole / len(along) if self.per_token else whole, parts)

        return measured(results, shift)


def distribution_shift_top50() -> DistributionShift:
    """`DistributionShift` as in the paper, over the 50 most likely tokens."""
    return DistributionShift(Divergence(PAPER_TOP_K))


def trajectory_shift_top50() -> TrajectoryShift:
    """`TrajectoryShift` as in the paper, over the 50 most likely tokens."""
    return TrajectoryShift(divergence=Divergence(PAPER_TOP_K))


def _suffix(divergence: Divergence) -> str:
    return "" if divergence.top_k is None else f"_top{divergence.top_k}"


def _divergences(rows: Rows) -> npt.NDArray[np.float32]:
    found = rows[0][0].divergence
    if found is None:
        raise ConfigurationError(
            "the model returns no divergences, which this signal is made from: use a LocalLM, or "
            "another signal"
        )
    return found
