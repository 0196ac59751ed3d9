"""Which passages must be scored exactly, once all of them have been scored fast.

A model that brings a faster copy of itself along (`LocalLM` with ``exactness="screen"``) lets the
copy score every passage, and itself those that can still be kept. The decision is made by the
same `select` as always, on the passages with exact scores: if that fills ``top_k``, a passage
whose score cannot reach the worst kept one comes after all of them and changes nothing, whatever
redundancy, budget and threshold say. If it does not, further passages are scored exactly, best
first, but for those that cannot reach the threshold. So the kept passages and their order are
those of the model alone, as long as no passage that was left out differs by more than the margin
(see `ecs_plugins.lm.screening`), which is measured on those that were scored twice.

A signal that orders passages by how they compare with each other (`RankFused`) compares them with
the fast scores of those that were left out. Whether that matters is tried: the scores that were
left fast are moved by as much as others were found to be off, `DRAWS` times, and if anything else
would be kept even once, everything is scored exactly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.lm.screening import SCORED_TWICE, margin_of, rescored, shaken
from ecs_plugins.shaping.redundancy import NearRepetitions
from ecs_plugins.shaping.selection import Limits, Scored, by_score, select

WORTHWHILE = 3
"""Passages for each that is scored twice in any case; with fewer, screening saved nothing."""
DRAWS = 16
"""Trials of whether scores that were left fast matter to the others."""


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

    def open_to(self, passages: Collection[int]) -> bool:
        """Whether enough of these passages can lose on their fast score."""
        bounded = self.limits.top_k is not None or self.limits.threshold is not None
        return bounded and len(set(passages)) >= WORTHWHILE * self.head_start

    def winners(self, scored: Mapping[int, Scored]) -> list[int]:
        """The passages that would be kept, best first."""
        decisions = select(scored, self.tokens, self.limits, self.repetitions, self.kept)
        return [index for index in by_score(scored) if decisions[index].kept]

    def for_the_next(self) -> Contest:
        """The same for one more place only."""
        return replace(self, limits=replace(self.limits, top_k=len(self.kept) + 1))


class Screen:
    """Passages with fast scores, of which more and more get exact ones.

    Args:
        requests: What was asked of the fast model.
        results: What it answered.
        where: For every request, which candidates are the scored units.
        sources: The passage that each of those belongs to.
        contest: What the passages compete for.
        value: What results say of every passage.

    Attributes:
        results: The present answers, exact where that was needed.
    """

    def __init__(
        self,
        requests: Sequence[ScoreRequest],
        results: Sequence[ScoreResult],
        where: Sequence[range],
        sources: Sequence[int],
        contest: Contest,
        value: Callable[[Sequence[ScoreResult]], dict[int, Scored]],
    ) -> None:
        self.results = list(results)
        self._requests, self._first = requests, results
        self._where, self._sources = where, sources
        self._contest, self._value = contest, value
        self._fast = value(results)
        self._asked: set[int] = set()
        self._exact: dict[int, Scored] = {}
        self._score = self._utility = math.inf

    def settle(self, model: LanguageModel, seed: int) -> None:
        """Score with the exact model until it is decided what is kept."""
        while wanted := self._next():
            self._rescore(model, wanted)
        if not self._robust(random.Random(seed)):
            self._rescore(model, self._left)

    @property
    def scored(self) -> dict[int, Scored]:
        """Every passage: exact scores where they were needed, fast ones of the others."""
        return {**self._exact, **{index: self._fast[index] for index in self._left}}

    @property
    def report(self) -> Screening:
        """What was done."""
        return Screening(tuple(sorted(self._exact)), len(self._fast), self._score, self._utility)

    def _next(self) -> list[int]:
        """The passages that must be scored exactly now."""
        if not self._asked:
            return by_score(self._fast)[: self._contest.head_start]
        taken = self._contest.winners(self._exact)
        left = [index for index in self._left if self._may_help(index)]
        if not self._contest.limits.full(len(self._contest.kept) + len(taken)):
            return left[:SCORED_TWICE]
        bar = min((self._exact[index].score for index in taken), default=math.inf)
        return [index for index in left if self._fast[index].score + self._score >= bar]

    def _rescore(self, model: LanguageModel, wanted: Collection[int]) -> None:
        self._asked.update(wanted)
        self.results = [
            rescored(model, request, result, self._candidates(place, wanted))
            for request, result, place in zip(
                self._requests, self.results, self._where, strict=True
            )
        ]
        found = self._value(self.results)
        self._exact = {index: found[index] for index in self._asked if index in found}
        pairs = [(exact, self._fast[index]) for index, exact in self._exact.items()]
        self._score = margin_of([exact.score - fast.score for exact, fast in pairs])
        self._utility = margin_of([exact.utility - fast.utility for exact, fast in pairs])

    def _robust(self, draw: random.Random) -> bool:
        """Whether nothing else is kept when the scores that were left fast are moved."""
        winners = self._contest.winners(self._exact)
        exact = [
            [*range(place.start), *self._candidates(place, self._asked)] for place in self._where
        ]
        for _ in range(DRAWS if self._left else 0):
            found = self._value(
                [shaken(*pair, draw) for pair in zip(self._first, self.results, exact, strict=True)]
            )
            if all(found.get(index) == scored for index, scored in self._exact.items()):
                return True  # no passage depends on the others
            if self._contest.winners(found) != winners:
                return False
        return True

    def _candidates(self, place: range, passages: Collection[int]) -> list[int]:
        return [k for k, source in zip(place, self._sources, strict=True) if source in passages]

    def _may_help(self, index: int) -> bool:
        threshold = self._contest.limits.threshold
        return threshold is None or self._fast[index].utility + self._utility >= threshold

    @property
    def _left(self) -> list[int]:
        """The passages that have fast scores only, best first."""
        return [index for index in by_score(self._fast) if index not in self._asked]


def places(request: ScoreRequest, passages: int) -> range | None:
    """Which candidates of a request are its passages, in order; None if that is not plain."""
    first = 0 if request.candidates[0] else 1
    found = range(first, len(request.candidates))
    return found if len(found) == passages else None
