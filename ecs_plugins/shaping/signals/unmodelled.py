"""The order of a ranker in place of a signal: shaping without a language model.

Nothing is asked of the model; its tokenizer only counts. Passages and, where they are pruned, their
sentences are worth what a ranker makes of them, so it costs what ranking costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.fused import z_scores
from ecs_plugins.shaping.signals.base import ScoringTask, UnitUtility
from ecs_plugins.shaping.signals.fused import by_word, complemented
from ecs_plugins.tokens import TokenLedger


@dataclass(frozen=True)
class RankOnly:
    """Signal that asks no model: the worth of a passage is a ranker's score.

    Attributes:
        ranker: Scores the passages that are compared.
        complements: True to order passages so that they complement each other.
    """

    ranker: Ranker
    complements: bool = False
    unit: ClassVar[str] = "points"
    needs_answer: ClassVar[bool] = False
    threshold: ClassVar[float | None] = None

    @property
    def name(self) -> str:
        """Return the ranker's."""
        return self.ranker.name

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Nothing to prepare."""
        del model, ledger
        return task

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """None."""
        del task, layout
        return []

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """Return the ranker's scores; their order complements each other as in `RankFused`."""
        del results
        compared = (*task.passages, *task.unscored)
        scores = self.ranker.rank(task.query, compared).scores[: len(task.passages)]
        orders = z_scores(scores)
        if self.complements and orders:
            words = by_word(task.query, task.passages, task.unscored)
            orders = complemented(task, task.passages, orders, words)
        return [
            UnitUtility(score, order_by=order) for score, order in zip(scores, orders, strict=True)
        ]
