"""Stage 1: which passages, and which of their units, the model is asked about.

The paper's two stages: a cheap ranker reduces thousands of candidates, the model ranks what is
left. Ranking is by unit, since a ranker too is blind to one sentence in a long text; a passage
stands where its best unit stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecs_plugins.ranking.base import Ranker
from ecs_plugins.shaping.passages import Unit

MAX_UNITS = 8
"""Units of one long passage that are scored at most, the best by the ranker."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What goes to the model.

    Attributes:
        units: Passage index -> its units to score, in reading order; in input order.
        ranks: Passage index -> its place, 1 is the best; empty if nothing was ranked.
        scores: Passage index -> the ranker's score.
    """

    units: Mapping[int, tuple[Unit, ...]]
    ranks: Mapping[int, int]
    scores: Mapping[int, float]

    @property
    def order(self) -> tuple[int, ...]:
        """Passage indices, best first; as given if nothing was ranked."""
        return tuple(sorted(self.units, key=lambda index: self.ranks.get(index, 0)))

    @property
    def best_first(self) -> tuple[str, ...]:
        """Texts of the units, those of the best passage first."""
        return tuple(unit.text.strip() for index in self.order for unit in self.units[index])


def sought(query: str, answers: Sequence[str]) -> str:
    """What the ranker looks for: the question and, where they are known, its answers."""
    return " ".join((query, *answers))


def build_pool(query: str, units: Sequence[Unit], ranker: Ranker | None, pool_size: int) -> Pool:
    """Keep the ``pool_size`` passages that the ranker puts first.

    Args:
        query: What is looked for.
        units: Units of all passages that can be scored.
        ranker: None keeps everything.
        pool_size: How many passages are kept.
    """
    by_passage: dict[int, list[Unit]] = {}
    for unit in units:
        by_passage.setdefault(unit.source, []).append(unit)
    if ranker is None:
        return Pool({i: tuple(found) for i, found in sorted(by_passage.items())}, {}, {})
    ranking = ranker.rank(query, [unit.text for unit in units])
    ranks: dict[int, int] = {}
    scores: dict[int, float] = {}
    best: dict[int, list[Unit]] = {}
    for place in ranking.order:
        unit = units[place]
        if unit.source not in ranks:
            ranks[unit.source] = len(ranks) + 1
            scores[unit.source] = ranking.scores[place]
        best.setdefault(unit.source, []).append(unit)
    chosen = sorted(index for index, rank in ranks.items() if rank <= pool_size)
    return Pool(
        {i: tuple(sorted(best[i][:MAX_UNITS], key=lambda unit: unit.start)) for i in chosen},
        ranks,
        scores,
    )


def needs_ranking(units: Sequence[Unit], pool_size: int) -> bool:
    """Whether the ranker has anything to decide: more passages, or units, than are scored."""
    counts: dict[int, int] = {}
    for unit in units:
        counts[unit.source] = counts.get(unit.source, 0) + 1
    return len(counts) > pool_size or any(count > MAX_UNITS for count in counts.values())
