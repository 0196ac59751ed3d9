"""Rent or buy among any number of strategies when nobody knows how many queries will come.

Each strategy is a line: it serves n queries of a context for ``stage 1 + n * stage 2``. What is
bought stays, and the next one costs its whole stage 1 again. This is ski rental with many slopes
(Lotker, Patt-Shamir and Rawitz 2008), where switching costs the full price: online capital
investment (Damaschke 2003).

A plan costs at most 4 times the optimum, however many strategies there are and whatever they
cost; ``docs/theory/rent-or-buy.md`` has the proof. The plan made here is the best of its kind for
the given lines, by the search of Augustine, Irani and Swamy (2004), and knows its bound to six
digits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ecs_plugins.frontier.cost import PointKey, StrategyPoint
from ecs_plugins.frontier.decision import Objective, RoutingDecision, Terms, due_of
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.hull import cheapest_lines

Slope = tuple[float, float]
"""(stage 1 >= 0, stage 2 > 0) of a strategy."""

WORST_BOUND = 4.0
"""What no plan exceeds."""

_PRECISION = 1e-6  # of the search for the least bound
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RentalPlan:
    """Which slope, by its index, serves a context from which query on, rising from 1.

    The cost after any number of queries is at most ``bound`` times the optimum.
    """

    starts: tuple[int, ...]
    choices: tuple[int, ...]
    bound: float

    def at(self, query: int) -> int:
        """Return the index in ``choices`` of the line for a query; the first is query 1."""
        return bisect_right(self.starts, query) - 1


@lru_cache(maxsize=1024)
def plan_rental(slopes: tuple[Slope, ...]) -> RentalPlan:
    """Return the plan with the least bound over all numbers of queries, to six digits."""
    useful = [index for index, _, _ in cheapest_lines(slopes)]  # the largest stage 2 first
    lines = [slopes[index] for index in useful]
    best = _search(lines, WORST_BOUND + _ROUNDING)
    assert best is not None, "the doubling plan is within 4"
    low = 1.0
    high = WORST_BOUND
    while high - low > _PRECISION:
        middle = (low + high) / 2
        plan = _search(lines, middle)
        if plan is None:
            low = middle
        else:
            high = middle
            best = plan
    starts = tuple(start for start, _ in best)
    choices = tuple(useful[line] for _, line in best)
    return RentalPlan(starts, choices, high)


class _Owned(NamedTuple):
    """Purchase of a line: first query, price paid, and previous line.

    ``paid`` is the cost through any later query n less n times the line's stage 2.
    """

    start: int
    paid: float
    before: int | None


def _search(lines: list[Slope], ratio: float) -> list[tuple[int, int]] | None:
    """Return (first query, line) of a plan that never costs more than ``ratio`` times the optimum.

    To own a line earlier is never worse while the ratio holds, so the earliest query for which
    each can be bought is enough to know. None where no plan keeps the ratio.
    """
    owned: dict[int, _Owned] = {}
    most = ratio * sum(lines[0]) * (1 + _ROUNDING)
    for new, (price, rate) in enumerate(lines):
        ways: list[_Owned] = []
        if price + rate <= most:
            ways.append(_Owned(1, price, None))
        for old, way in owned.items():
            _, renting = lines[old]
            _, until = _within(lines, ratio, way.paid, renting)
            bought = way.paid - renting + price + rate
            first, last = _within(lines, ratio, bought, renting)
            first = max(first, way.start + 1)
            if first <= min(last, until + 1):
                rented = (first - 1) * (renting - rate)
                ways.append(_Owned(int(first), way.paid + rented + price, old))
        if ways:
            owned[new] = min(ways, key=lambda way: (way.start, way.paid))
    # Of those that hold without end, the one with the lowest stage 2.
    for line, way in reversed(owned.items()):
        _, rate = lines[line]
        _, last = _within(lines, ratio, way.paid, rate)
        if math.isinf(last):
            return _way_to(line, owned)
    return None


def _way_to(line: int, owned: Mapping[int, _Owned]) -> list[tuple[int, int]]:
    """Return the plan that ends with a line: (first query, line) of it and all before."""
    plan = []
    place: int | None = line
    while place is not None:
        way = owned[place]
        plan.append((way.start, place))
        place = way.before
    plan.reverse()
    return plan


def _within(lines: list[Slope], ratio: float, fixed: float, rate: float) -> tuple[float, float]:
    """Return the first and last integer n >= 1 with ``fixed + n * rate <= ratio * optimum(n)``.

    These n form one interval, since the optimum is a minimum of lines; (1, 0) if it is empty.
    """
    low = 1.0
    high = math.inf
    for price, own in lines:
        room = ratio * price - fixed
        rise = rate - ratio * own
        if rise > 0:
            high = min(high, room / rise)
        elif rise < 0:
            low = max(low, room / rise)
        elif room < 0:
            return 1.0, 0.0
    first = math.ceil(low * (1 - _ROUNDING))
    if math.isinf(high):
        return first, high
    return first, math.floor(high * (1 + _ROUNDING))


# Deciding.


def decide_online(
    frontier: EfficiencyFrontier,
    target_f1: float,
    query: int,
    *,
    prepared: Iterable[PointKey] | Mapping[PointKey, float] = (),
    free: Iterable[PointKey] = (),
    max_seconds: float | None = None,
) -> RoutingDecision:
    """Decide by rent or buy among the points that reach a target, where nothing lapses.

    Args:
        frontier: The measured points.
        target_f1: The F1 to reach.
        query: Number of the query in the game of its context; the first is 1.
        prepared: Points prepared for the context, as in `EfficiencyFrontier.decide`. One of them
            is used where the choice of the plan costs no less per query.
        free: Points that were prepared before the first query: the optimum has them too.
        max_seconds: As in `EfficiencyFrontier.decide`.
    """
    given = frozenset(free)
    due = {**dict.fromkeys(given, 0.0), **due_of(prepared)}
    able = frontier.reaching(target_f1, max_seconds)
    slopes = tuple((0.0 if p.key in given else p.stage1, p.stage2) for p in able)
    plan = plan_rental(slopes)
    place = plan.at(query)
    chosen = able[plan.choices[place]]
    reason = f"{chosen.label} from this query on, however many follow"
    if place + 1 < len(plan.starts):
        following = able[plan.choices[place + 1]]
        left = plan.starts[place + 1] - query
        reason = f"{chosen.label} for {left} queries yet, then {following.label}"
    ready = [point for point in able if due.get(point.key) == 0]
    best = min(ready, key=lambda point: point.stage2, default=chosen)
    if best.stage2 <= chosen.stage2 and best is not chosen:
        chosen = best
        reason = f"{best.label} from this query on, however many follow"
    return frontier.decided(
        chosen,
        Objective.TARGET_F1,
        target_f1,
        Terms(float(query), float(query), due),
        note=f"query {query} of this context: {reason}. Never more than {plan.bound:.2f} times the "
        "optimum for its queries at this target, however many queries come",
        max_seconds=max_seconds,
    )


def game_of(points: Iterable[StrategyPoint], usual: float | None, target: float) -> str:
    """Return the name of the game of a target; empty for the ``usual`` target.

    Targets that the same points reach are one game.
    """
    levels = sorted(point.f1 for point in points)
    lowest = _lowest_reaching(levels, target)
    if usual is not None and lowest == _lowest_reaching(levels, usual):
        return ""
    return f"F1 {lowest:.6g}"


def _lowest_reaching(rising: Sequence[float], target: float) -> float:
    return next((level for level in rising if level >= target), target)
