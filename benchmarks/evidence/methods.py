"""Interface of a method, and methods without a model: rankers, chance and the ceiling."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from benchmarks.evidence.candidates import Candidates, order_by_piece
from ecs_plugins.ranking.base import Ranker


@dataclass(frozen=True, slots=True)
class Ordered:
    """Result of a method on a pool.

    Attributes:
        order: Indices of units, best first.
        scores: Of the first units of the order; shorter where the rest was not scored.
        scored_tokens: Tokens that pass through the language model for it.
        seconds: Wall time.
        error: Why stage 1's order stands in for it; empty if it does not.
    """

    order: tuple[int, ...]
    scores: tuple[float, ...] = ()
    scored_tokens: int = 0
    seconds: float = 0.0
    error: str = ""


class Method(Protocol):
    """Orders the pool of a question without asking the language model."""

    def order(self, candidates: Candidates) -> Ordered:
        """Order the pool."""
        ...


class RankerMethod:
    """A ranker over all units of the question, with the statistics that it has in use.

    Args:
        ranker: Ranks.
        everywhere: Order all units and not the pool alone.
        by_piece: Let a long unit stand where its best piece stands, as stage 1 does, instead of
            ranking it as a whole.
    """

    def __init__(self, ranker: Ranker, *, everywhere: bool = False, by_piece: bool = False) -> None:
        self._ranker = ranker
        self._everywhere = everywhere
        self._by_piece = by_piece

    def order(self, candidates: Candidates) -> Ordered:
        """By the ranker's scores over all units."""
        question = candidates.question
        if self._by_piece:
            ranked = order_by_piece(self._ranker, candidates)
            order = tuple(sorted(ranked.ranks, key=lambda index: ranked.ranks[index]))
            scores = ranked.scores
        else:
            ranking = self._ranker.rank(question.question, question.units)
            order, scores = ranking.order, dict(enumerate(ranking.scores))
        if not self._everywhere:
            wanted = set(candidates.pool)
            order = tuple(index for index in order if index in wanted)
        return Ordered(order, tuple(scores[index] for index in order))


class PoolOrder:
    """Stage 1 itself.

    Args:
        answered: Of question and answer, instead of the question alone.
    """

    def __init__(self, *, answered: bool = False) -> None:
        self._answered = answered

    def order(self, candidates: Candidates) -> Ordered:
        """Return the order of the pool."""
        pool = candidates.answered if self._answered else candidates.stage1
        return Ordered(pool.order, tuple(pool.scores[index] for index in pool.order))


class RandomOrder:
    """Chance."""

    def __init__(self, seed: int = 42) -> None:
        self._seed = seed

    def order(self, candidates: Candidates) -> Ordered:
        """Shuffled, from the seed and the question's id."""
        order = sorted(candidates.pool)
        random.Random(f"{self._seed}/{candidates.question.id}").shuffle(order)
        return Ordered(tuple(order))


class Oracle:
    """Ceiling of the pool: its evidence comes first."""

    def order(self, candidates: Candidates) -> Ordered:
        """Evidence first."""
        known = set(candidates.question.evidence)
        return Ordered(tuple(sorted(candidates.pool, key=lambda index: index not in known)))
