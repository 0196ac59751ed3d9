"""Fusion of a signal with a ranker: two kinds of evidence, each on its own scale.

Relevance is ``z(signal) + weight * z(ranker)`` with z-scores over the passages that are scored
together, which makes nats and word overlap comparable without calibration. Where an answer was
given, the ranker is asked a second time, with the answer alone, and both z-scores count. What is
relevant is then ordered so that passages complement each other (`ecs_plugins.shaping.coverage`).
All of it depends on the company of a passage, so it only orders: the utility, and with it the
threshold, stay the signal's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.coverage import complementary_order
from ecs_plugins.shaping.protocol import ScoringTask, Signal, UnitUtility, reads_best_first
from ecs_plugins.shaping.signals import JointShift, QueryLikelihood
from ecs_plugins.tokens import TokenLedger


def z_scores(values: Sequence[float]) -> list[float]:
    """Mean 0 and standard deviation 1 over the finite values; all 0 where they do not differ.

    A value that is not finite stays as it is.
    """
    finite = [value for value in values if math.isfinite(value)]
    spread = pstdev(finite) if len(finite) > 1 else 0.0
    if not spread:
        return [0.0 if math.isfinite(value) else value for value in values]
    mean = fmean(finite)
    return [(value - mean) / spread if math.isfinite(value) else value for value in values]


@dataclass(frozen=True)
class RankFused:
    """A signal whose order also heeds a ranker.

    With ``acceptance="stream"``, where passages are scored one at a time, the ranker has no say.

    Attributes:
        signal: What is measured.
        ranker: Ranks the scored passages among themselves.
        weight: Of each of the ranker's z-scores against the signal's.
        coverage: Weight of what a passage adds to better ones, for signals that score the
            question; 0 orders by relevance alone.
    """

    signal: Signal = field(default_factory=QueryLikelihood)
    ranker: Ranker = field(default_factory=BM25Ranker)
    weight: float = 0.5
    coverage: float = 1.0

    @property
    def name(self) -> str:
        """The signal's name, ``+`` and the ranker's."""
        return f"{self.signal.name}+{self.ranker.name}"

    @property
    def unit(self) -> str:
        """The signal's."""
        return self.signal.unit

    @property
    def needs_answer(self) -> bool:
        """As the signal."""
        return self.signal.needs_answer

    @property
    def cost(self) -> str:
        """The signal's."""
        return f"{self.signal.cost}; a ranking"

    @property
    def threshold(self) -> float | None:
        """The signal's."""
        return self.signal.threshold

    @property
    def reads_best_first(self) -> bool:
        """As the signal."""
        return reads_best_first(self.signal)

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """As the signal."""
        return self.signal.prepare(task, model, ledger)

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """As the signal."""
        return self.signal.requests(task, layout)

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The signal's utilities, ordered together with the ranker."""
        found = self.signal.utilities(task, results)
        by_signal = z_scores(
            [unit.utility if unit.order_by is None else unit.order_by for unit in found]
        )
        by_rank = {
            part: z_scores(self.ranker.rank(asked, task.passages).scores)
            for part, asked in self._asked(task).items()
        }
        ranked = [sum(column) for column in zip(*by_rank.values(), strict=True)]
        relevance = [a + self.weight * b for a, b in zip(by_signal, ranked, strict=True)]
        placed = self._placed(found, relevance)
        return [
            replace(
                unit,
                parts={
                    **unit.parts,
                    "signal_z": by_signal[index],
                    **{part: scores[index] for part, scores in by_rank.items()},
                },
                order_by=placed[index],
            )
            for index, unit in enumerate(found)
        ]

    def _asked(self, task: ScoringTask) -> dict[str, str]:
        """What the ranker is asked, by the name of the part; answers only if they were given."""
        asked = {"ranker_z": task.query}
        if self.needs_answer and task.answers:
            asked["answer_ranker_z"] = " ".join(task.answers)
        return asked

    def _placed(self, found: Sequence[UnitUtility], relevance: list[float]) -> list[float]:
        """The same values, handed out again in the order of passages that complement each other."""
        ranked = [index for index, value in enumerate(relevance) if math.isfinite(value)]
        if not self.coverage or not all(found[index].by_token for index in ranked):
            return relevance
        values = [relevance[index] for index in ranked]
        order = complementary_order(values, [found[i].by_token for i in ranked], self.coverage)
        placed = list(relevance)
        for place, value in zip(order, sorted(values, reverse=True), strict=True):
            placed[ranked[place]] = value
        return placed


def query_likelihood_bm25() -> RankFused:
    """`QueryLikelihood`, heeding BM25 half as much: the default without an answer."""
    return RankFused(QueryLikelihood())


def joint_shift_bm25() -> RankFused:
    """`JointShift`, heeding BM25 of the question and of the answer: the default with an answer."""
    return RankFused(JointShift())
