"""Divergence of the next tokens by a passage, whatever the true answer is.

`DistributionShift` is the divergence of Eq. 3 of Entropic Context Shaping, at the first token of
the answer; `TrajectoryShift` is Definition 3.3, its sum over the first T tokens:

    sum over t = 1..T of D_KL(P_t(. | C, u, q) || P_t(. | C, q))

The divergence is exact, over the whole vocabulary. Both need no answer, and both are magnitudes. By
the paper's red-herring theorem (3.2) an unrelated passage leaves the distribution where it was; the
reverse does not hold. A passage that misleads moves it as far as one that helps ("the direction
problem", section 3.1), so these signals never say `hurts`, and without a threshold of your own they
only rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.shaping.signals.base import (
    LayoutChoice,
    PromptSignal,
    Rows,
    ScoringTask,
    UnitUtility,
)
from ecs_plugins.shaping.signals.likelihood import ANSWER_TEMPLATE
from ecs_plugins.tokens import Role, Stage, TokenLedger

PAPER_HORIZON = 8
"""T of Table 2: tokens along which two trajectories are compared."""

_ANYTHING = "the"
"""Scored in place of an answer: what predicts the first token does not depend on that token."""


@dataclass(frozen=True)
class DistributionShift(PromptSignal):
    """Divergence of the distribution of the answer's first token (Eq. 3)."""

    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "plain"
    threshold: float | None = None

    name = "distribution_shift"

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Return one request for the divergence after the question."""
        anything = {"answer": _ANYTHING}
        request = self.request(task, layout, [anything], ("answer",), divergence=True)
        return [request]

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """Return the divergence at the first token."""
        del task, base
        return UnitUtility(float(_divergences(rows)[0]))


@dataclass(frozen=True)
class TrajectoryShift(PromptSignal):
    """Divergence along the first T tokens of the reply (Definition 3.3).

    The model goes on greedily without a passage, once per question; behind every passage it is led
    along the same text. What the tokens were is read from their text, so that a tokenizer may
    count one more or less; never more than ``horizon`` are compared. The layout is ``"chat"``,
    because an instructed model that sees a bare question often ends its reply at once and leaves
    nothing to follow.

    Attributes:
        horizon: T.

    Raises:
        ConfigurationError: ``horizon`` is below 1.
    """

    template: PromptTemplate = ANSWER_TEMPLATE
    layout: LayoutChoice = "chat"
    threshold: float | None = None
    horizon: int = PAPER_HORIZON

    name = "trajectory_shift"

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ConfigurationError(f"horizon must be at least 1 token, got {self.horizon}")

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Let the model go on without a passage."""
        if task.trajectory:
            return task
        asked = self.cue(task, model.layout, "")
        (found,) = model.generate([asked], max_new_tokens=self.horizon)
        ledger.book(Stage.QUERY, Role.SCORER, found.prompt_tokens + found.completion_tokens)
        # A last character may be cut in half, and some tokenizers drop the first space.
        text = found.text.rstrip("\ufffd")
        if text and not text[0].isspace():
            text = f" {text}"
        if not text or not model.count_tokens([text])[0]:
            return task
        return replace(task, trajectory=text)

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Return one request along the trajectory; of an empty one, its first token."""
        bare = replace(self.template, response="{answer}")
        led = replace(self, template=bare)
        along = {"answer": task.trajectory or f" {_ANYTHING}"}
        request = led.request(task, layout, [along], ("answer",), divergence=True)
        return [request]

    def utility(self, task: ScoringTask, rows: Rows, base: Rows) -> UnitUtility:
        """Return the sum of the divergences along the trajectory."""
        del base
        compared = self.horizon if task.trajectory else 1
        along = _divergences(rows)[:compared]
        parts = {
            "first_token": float(along[0]),
            "tokens_compared": float(len(along)),
        }
        total = along.sum(dtype=np.float64)
        return UnitUtility(float(total), parts)


def _divergences(rows: Rows) -> npt.NDArray[np.float32]:
    found = rows[0][0].divergence
    if found is None:
        raise ConfigurationError(
            "the model returns no divergences, which this signal is made from: use a LocalLM, or "
            "another signal"
        )
    return found
