"""Which passages must be scored exactly, once all of them have been scored fast.

A model that brings a faster copy of itself along (`LocalLM` with ``exactness="screen"``) lets the
copy score every passage, and itself those that can still be kept. The decision is made by the
same `select` as always, on the passages with exact scores: if that fills ``top_k``, a passage
whose score cannot reach the worst kept one comes after all of them and changes nothing, whatever
redundancy, budget and threshold say. If it does not, further passages are scored exactly, best
first, but for those that cannot reach the threshold. So the kept passages and their order are
those of the model alone, as long as no passage that was left out differs by more than the margin
(see `ecs_plugins.lm.screening`), which is measured on those that were scored twice.

A signal that orders passages by how they compare with each other (`RankFused`) compares them here
with the fast scores of those that were left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ecs_plugins.lm.base import ScoreRequest
from ecs_plugins.lm.screening import SCORED_TWICE, margin_of
from ecs_plugins.shaping.redundancy import NearRepetitions
from ecs_plugins.shaping.selection import Limits, Scored, by_score, select


@dataclass(frozen=True, slots=True)
class Screening:
    """What screening did for one result.

    Attributes:
        exact: Passages that were scored exactly, in the end, ascending.
        passages: How many were scored at all.
        margin: On what passages are ordered by; the widest, if they were scored several times.
        utility_margin: On the utility, which the threshold is compared with.
    """

    exact: tuple[int, ...]
    passages: int
    margin: float
    utility_margin: float

    def to_dict(self) -> dict[str, object]:
        """For JSON: plain types only."""
        return {
            "exact": list(self.exact),
            "passages": self.passages,
            "margin": self.margin if math.isfinite(self.margin) else None,
            "utility_margin": self.utility_margin if math.isfinite(self.utility_margin) else None,
        }

    def joined(self, earlier: Screening | None) -> Screening:
        """This one, of a later round, with what the rounds before it did."""
        if earlier is None:
            return self
        return Screening(
            tuple(sorted({*self.exact, *earlier.exact})),
            max(self.passages, earlier.passages),
            max(self.margin, earlier.margin),
            max(self.utility_margin, earlier.utility_margin),
        )


@dataclass(frozen=True, slots=True)
class Contest:
    """What scored passages compete for.

    Attributes:
        tokens: Of every passage, by index.
        limits: What bounds the selection.
        repetitions: Finds near repetitions of what is kept.
        kept: What is kept already.
    """

    tokens: Sequence[int]
    limits: Limits
    repetitions: NearRepetitions
    kept: Sequence[int] = ()

    @property
    def head_start(self) -> int:
        """How many passages are scored exactly before anything is known of the margin."""
        return max(SCORED_TWICE, (self.limits.top_k or 0) + 1)

    def worth_screening(self, passages: int) -> bool:
        """Whether enough of so many passages can lose on their fast score."""
        bounded = self.limits.top_k is not None or self.limits.threshold is not None
        return bounded and passages >= 2 * self.head_start

    def for_the_next(self) -> Contest:
        """The same for one more place only."""
        return replace(self, limits=replace(self.limits, top_k=len(self.kept) + 1))


class Screen:
    """Passages with fast scores, of which more and more get exact ones.

    Args:
        fast: Passage index -> its fast score.
        contest: What they compete for.
    """

    def __init__(self, fast: Mapping[int, Scored], contest: Contest) -> None:
        self._fast = fast
        self._contest = contest
        self._asked: set[int] = set()
        self._exact: dict[int, Scored] = {}
        self._score = self._utility = math.inf

    def next(self) -> list[int]:
        """The passages that must be scored exactly now; none if all is decided."""
        ranked = by_score(self._fast)
        if not self._asked:
            return ranked[: self._contest.head_start]
        limits, kept = self._contest.limits, self._contest.kept
        decisions = select(
            self._exact, self._contest.tokens, limits, self._contest.repetitions, kept
        )
        taken = [index for index, decision in decisions.items() if decision.kept]
        left = [index for index in ranked if index not in self._asked and self._may_help(index)]
        if not limits.full(len(kept) + len(taken)):
            return left[:SCORED_TWICE]
        bar = min((self._exact[index].score for index in taken), default=math.inf)
        return [index for index in left if self._fast[index].score + self._score >= bar]

    def add(self, asked: Collection[int], found: Mapping[int, Scored]) -> None:
        """Take exact scores of the passages that were asked for, and perhaps of others."""
        self._asked.update(asked)
        self._exact = {index: found[index] for index in self._asked if index in found}
        pairs = [(exact, self._fast[index]) for index, exact in self._exact.items()]
        self._score = margin_of([exact.score - fast.score for exact, fast in pairs])
        self._utility = margin_of([exact.utility - fast.utility for exact, fast in pairs])

    def _may_help(self, index: int) -> bool:
        threshold = self._contest.limits.threshold
        return threshold is None or self._fast[index].utility + self._utility >= threshold

    @property
    def scored(self) -> dict[int, Scored]:
        """Every passage: exact scores where they were needed, fast ones of the others."""
        others = {i: fast for i, fast in self._fast.items() if i not in self._asked}
        return {**self._exact, **others}

    @property
    def report(self) -> Screening:
        """What was done."""
        return Screening(tuple(sorted(self._exact)), len(self._fast), self._score, self._utility)


def places(request: ScoreRequest, passages: int) -> range | None:
    """Which candidates of a request are its passages, in order; None if that is not plain."""
    first = 0 if request.candidates[0] else 1
    found = range(first, len(request.candidates))
    return found if len(found) == passages else None
