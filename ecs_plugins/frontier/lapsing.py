"""Rent or buy where some of what is bought lapses: preparations that stay, caches that do not.

A strategy costs ``prepare`` once, ``write`` whenever its cache entry is not alive, and ``rate``
for every query. A run is queries without a gap that lets an entry lapse. Whoever knows all runs
pays at least

    LB = min over k of  prepare_k + sum over runs of  min over i in Q_k of  write_i + n * rate_i

where ``Q_k`` holds what costs at most ``prepare_k`` to prepare. The router follows the strategy
that attains this minimum for what has come so far. ``docs/theory/rent-or-buy.md`` proves what it
pays at most for that; `LapsingGame.bound` is this number for the strategies at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from typing import NamedTuple

_MOST_LEVELS = 6  # preparations among which the best few are looked for


class CostLine(NamedTuple):
    """What a strategy costs: once, per run, and per query."""

    prepare: float
    write: float
    rate: float

    def cost(self, queries: float) -> float:
        """Of one run, once it is prepared."""
        return self.write + queries * self.rate


class _Purchase(NamedTuple):
    """A preparation, and what is written once more in the run in which it is bought."""

    prepared: float
    written: float

    def over(self, optimum: float, rewritten: float) -> float:
        """Over an optimum; what is written anew costs no more than the run itself."""
        written = min(self.written / optimum, 1 + rewritten)
        return self.prepared / optimum + written


@dataclass(frozen=True)
class LapsingGame:
    """The game of some strategies, and how it is played.

    Attributes:
        lines: All that reach the target.
        levels: What the router may prepare, by rising cost; the first needs the least.
    """

    lines: tuple[CostLine, ...]
    levels: tuple[float, ...]

    def choose(self, run: int, finished: Mapping[int, int]) -> int:
        """Which line, by its index, serves the query ``run`` of the current run.

        ``finished`` says how often a run of so many queries has ended before.
        """
        # Of levels that have cost the same, the lowest: they rise.
        best = min(self.levels, key=lambda level: self._paid(level, run, finished))

        def cost(index: int) -> tuple[float, float]:
            line = self.lines[index]
            return line.cost(run), line.rate

        return min(self._allowed(best), key=cost)

    def optimum(self, run: int, finished: Mapping[int, int]) -> float:
        """What the optimum costs at least, at the query ``run`` of the current run."""
        return min(self._paid(level, run, finished) for level in self.levels)

    def _paid(self, level: float, run: int, finished: Mapping[int, int]) -> float:
        lines = self._of(level)
        paid = level + _cheapest(lines, run)
        for queries, times in finished.items():
            paid += times * _cheapest(lines, queries)
        return paid

    def _allowed(self, level: float) -> list[int]:
        """The lines that need no more than a level, and are prepared for at one of the levels."""
        allowed = []
        for index, line in enumerate(self.lines):
            is_prepared = line.prepare in self.levels
            if is_prepared and line.prepare <= level:
                allowed.append(index)
        return allowed

    @cached_property
    def _by_level(self) -> dict[float, list[CostLine]]:
        """Those lines, by level."""
        by_level = {}
        for level in self.levels:
            by_level[level] = [self.lines[index] for index in self._allowed(level)]
        return by_level

    def _of(self, level: float) -> list[CostLine]:
        return self._by_level[level]

    @cached_property
    def bound(self) -> float:
        """What the router pays at most, over the optimum of all ``lines``."""
        rewritten = max(_rewritten(self._of(level)) for level in self.levels)
        paid = 1 + rewritten + self._prepared(rewritten)
        return paid * self._loss()

    def _prepared(self, rewritten: float) -> float:
        """What is paid for preparations beyond the first level, over the optimum by then."""
        base = self.levels[0]
        purchases: list[_Purchase] = []
        worst = 0.0
        for level in self.levels[1:]:
            lines = self._of(level)
            bought = [line.prepare for line in lines if line.prepare == level]
            prepared = sum(bought)
            written = sum(line.write for line in _chain(lines))
            purchases.append(_Purchase(prepared, written))
            left = _least_ratio(lines, self._of(base))
            if left < 1:
                by_then = level + left * (level - base) / (1 - left)
                paid = sum(each.over(by_then, rewritten) for each in purchases)
                worst = max(worst, paid)
        return worst

    def _loss(self) -> float:
        """What leaving out some preparations costs at most, as a factor."""
        loss = 1.0
        for level in sorted({line.prepare for line in self.lines}):
            full = [line for line in self.lines if line.prepare <= level]
            ways = []
            for kept in self.levels:
                dearer = 1.0
                if kept > level:
                    dearer = kept / level if level else math.inf
                per_run = _greatest_ratio(self._of(kept), full)
                ways.append(max(dearer, per_run))
            least = min(ways)
            loss = max(loss, least)
        return loss


@lru_cache(maxsize=256)
def lapsing_game(lines: tuple[CostLine, ...]) -> LapsingGame:
    """The game of these lines, with those preparations for which its bound is the least."""
    levels = sorted({line.prepare for line in lines})
    base = levels[0]
    rest = _useful(lines, levels)
    games = []
    for size in range(len(rest) + 1):
        for chosen in combinations(rest, size):
            game = LapsingGame(lines, (base, *chosen))
            games.append(game)
    return min(games, key=lambda game: game.bound)


def _useful(lines: Sequence[CostLine], levels: Sequence[float]) -> list[float]:
    """The preparations that make a run of some length cheaper, the first few of them."""
    useful = []
    owned = [line for line in lines if line.prepare == levels[0]]
    for level in levels[1:]:
        more = [line for line in lines if line.prepare <= level]
        if _least_ratio(more, owned) < 1:
            useful.append(level)
            owned = more
    return useful[:_MOST_LEVELS]


def _cheapest(lines: Iterable[CostLine], queries: float) -> float:
    return min(line.cost(queries) for line in lines)


def _chain(lines: Sequence[CostLine]) -> list[CostLine]:
    """The lines that are the cheapest for some length of a run, from one query on."""
    current = min(lines, key=lambda line: (line.cost(1), line.rate))
    chain = [current]
    at = 1.0
    while True:
        flatter = [line for line in lines if line.rate < current.rate]
        if not flatter:
            return chain
        best = (math.inf, math.inf, current)
        for line in flatter:
            start = max(at, _crossing(current, line))
            best = min(best, (start, line.rate, line))
        at, _, current = best
        chain.append(current)


def _crossing(steep: CostLine, flat: CostLine) -> float:
    """The length of a run at which two lines cost the same."""
    return (flat.write - steep.write) / (steep.rate - flat.rate)


def _rewritten(lines: Sequence[CostLine]) -> float:
    """What is written within a run beyond its first query, over what the run costs at least."""
    worst = 0.0
    spent = 0.0
    chain = _chain(lines)
    for before, line in pairwise(chain):
        spent += line.write
        start = max(1.0, _crossing(before, line))
        share = spent / line.cost(start)
        worst = max(worst, share)
    return worst


def _lengths(lines: Sequence[CostLine]) -> list[float]:
    """The lengths of a run between which costs are straight lines."""
    lengths = {1.0}
    for a, b in combinations(lines, 2):
        if a.rate == b.rate:
            continue
        length = _crossing(a, b)
        if length > 1:
            lengths.add(length)
    return sorted(lengths)


def _ratios(over: Sequence[CostLine], under: Sequence[CostLine]) -> list[float]:
    """The cheapest of some lines over that of others, at each length that can be an extreme."""
    rate_over = min(line.rate for line in over)
    rate_under = min(line.rate for line in under)
    # The first is that of runs without end.
    ratios = [rate_over / rate_under]
    for length in _lengths([*over, *under]):
        ratio = _cheapest(over, length) / _cheapest(under, length)
        ratios.append(ratio)
    return ratios


def _least_ratio(over: Sequence[CostLine], under: Sequence[CostLine]) -> float:
    return min(_ratios(over, under))


def _greatest_ratio(over: Sequence[CostLine], under: Sequence[CostLine]) -> float:
    return max(_ratios(over, under))
