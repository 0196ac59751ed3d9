"""The offline optimum, and rules for how many queries will follow, without a ledger.

Each rule is a baseline for the router, which expects as many queries as the decayed geometric mean
of all contexts, and no fewer than have come.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from ecs_plugins.frontier import EfficiencyFrontier


class Line(NamedTuple):
    """Costs of a strategy: once per context, per entry of a prompt cache, and per query."""

    prepare: float
    write: float
    rate: float


@dataclass
class Asked:
    """One context so far."""

    seen: int = 0
    run: int = 0
    last: float = -math.inf
    prepared: set[int] = field(default_factory=set)
    alive: dict[int, float] = field(default_factory=dict)


class AsManyMore:
    """As many more queries as have come: one line, no memory."""

    def note(self, asked: Asked) -> None:
        """Learn from a query."""

    def more(self, count: int, *, runs: bool) -> float:
        """Return the queries that are expected after some, of contexts or of runs."""
        del runs
        return float(count)


class Decayed(AsManyMore):
    """A decayed mean of all contexts, by a scale: as it is, or of logarithms."""

    decay = 0.95

    def __init__(self, scale: Callable[[float], float], back: Callable[[float], float]) -> None:
        self.scale = scale
        self.back = back
        self.sums = {False: [1.0, scale(1)], True: [1.0, scale(1)]}

    def note(self, asked: Asked) -> None:
        """Learn from a query."""
        for runs, count in ((False, asked.seen), (True, asked.run)):
            sums = self.sums[runs]
            if count == 1:
                sums[0] = sums[0] * self.decay + 1
                sums[1] = sums[1] * self.decay + self.scale(1)
            else:
                sums[1] += self.scale(count) - self.scale(count - 1)

    def more(self, count: int, *, runs: bool) -> float:
        """Return the queries that are expected after some, of contexts or of runs."""
        weight, total = self.sums[runs]
        return max(self.back(total / weight) - count, float(count))


def _same(number: float) -> float:
    return number


EXPECTATIONS: dict[str, Callable[[], AsManyMore]] = {
    "as many more as have come": AsManyMore,
    "decayed mean": lambda: Decayed(_same, _same),
    "decayed geometric mean": lambda: Decayed(math.log, math.exp),
}


def lines_of(frontier: EfficiencyFrontier) -> list[Line]:
    """Return the costs of the points of a frontier."""
    lines = []
    for point in frontier.points:
        written = frontier.lapsing.get(point.key, 0.0)
        lines.append(Line(max(0.0, point.stage1 - written), written, point.stage2))
    return lines


def optimum(lines: Sequence[Line], runs: Mapping[int, int]) -> float:
    """Return the least cost of a context's queries, whose times are known beforehand.

    ``runs`` says how often so many queries follow each other before a cache lapses. Tried is every
    set of preparations; each run has the cheapest line that they allow.
    """
    free = [line for line in lines if line.prepare <= 1e-9]
    bought = [line for line in lines if line.prepare > 1e-9]
    best = math.inf
    for size in range(len(bought) + 1):
        for chosen in combinations(bought, size):
            usable = [*free, *chosen]
            if usable:
                cost = sum(line.prepare for line in chosen)
                for run, times in runs.items():
                    cost += times * min(line.write + run * line.rate for line in usable)
                best = min(best, cost)
    return best


def runs_of(times: Iterable[float], life: float) -> Counter[int]:
    """Count the runs of queries without a lapse, by length."""
    runs: Counter[int] = Counter()
    last = -math.inf
    run = 0
    for time in times:
        if run and time - last > life:
            runs[run] += 1
            run = 0
        run += 1
        last = time
    runs[run] += 1
    return runs


def replayed(
    lines: Sequence[Line],
    queries: Iterable[tuple[float, int]],
    life: float,
    expected: AsManyMore,
) -> float:
    """Return the cost of (time, context) queries, each decided for those that are expected."""
    contexts: dict[int, Asked] = defaultdict(Asked)
    total = 0.0
    for time, name in queries:
        asked = contexts[name]
        if time - asked.last > life:
            asked.run = 0
        asked.seen += 1
        asked.run += 1
        asked.last = time
        expected.note(asked)
        more = expected.more(asked.seen, runs=False)
        share = 1 + more
        run_share = 1 + min(more, expected.more(asked.run, runs=True))
        best = (math.inf, 0.0, 0)
        for index, line in enumerate(lines):
            prepare = 0.0 if index in asked.prepared else line.prepare
            write = 0.0 if time <= asked.alive.get(index, -math.inf) else line.write
            price = line.rate + prepare / share + write / run_share
            best = min(best, (price, line.rate + prepare + write, index))
        _, paid, chosen = best
        total += paid
        asked.prepared.add(chosen)
        asked.alive[chosen] = time + life
    return total
