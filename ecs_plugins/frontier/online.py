"""Rent or buy per context and target, where nobody knows how many queries will come.

Where nothing lapses, it is the game of `rental`, counted in all queries of a context, and its bound
holds. Where the stage 1 of all strategies is an entry of a prompt cache, the same plan begins anew
with every run of queries. Where both occur, each strategy is priced at twice the queries and twice
the run so far. No bound is shown where a cache lapses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ecs_plugins.frontier.cost import PointKey, StrategyPoint
from ecs_plugins.frontier.decision import Objective, RoutingDecision, Terms, amount, due_of
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.rental import Slope, plan_rental


class Position(NamedTuple):
    """Place of a query in the game of its context.

    Attributes:
        seen: Queries so far, this one included; at least 1.
        run: Those since the cache lapsed; all where nothing lapses.
    """

    seen: int
    run: int


class _Play(NamedTuple):
    """A point, and the reason for it."""

    point: StrategyPoint
    reason: str


def decide_online(
    frontier: EfficiencyFrontier,
    target_f1: float,
    at: Position | int,
    *,
    prepared: Iterable[PointKey] | Mapping[PointKey, float] = (),
    free: Iterable[PointKey] = (),
    max_seconds: float | None = None,
) -> RoutingDecision:
    """Rent or buy among the points `EfficiencyFrontier.reaching` a target.

    Args:
        frontier: The measured points.
        target_f1: The F1 to reach.
        at: Place of the query; a number where nothing lapses.
        prepared: Points prepared for the context, as in `EfficiencyFrontier.decide`. One of them
            is used where the choice of the plan costs no less per query.
        free: Points that were prepared before the first query: the optimum has them too.
        max_seconds: As in `EfficiencyFrontier.decide`.
    """
    position = Position(at, at) if isinstance(at, int) else at
    given = frozenset(free)
    due = {**dict.fromkeys(given, 0.0), **due_of(prepared)}
    able = frontier.reaching(target_f1, max_seconds)
    play = _play(frontier, able, given, position, due)
    ready = [point for point in able if due.get(point.key) == 0]
    if ready:
        best = min(ready, key=lambda point: point.stage2)
        if best.stage2 <= play.point.stage2:
            bound = play.reason.rpartition(". ")[2]
            reason = f"{best.label} from this query on, however many follow. {bound}"
            play = _Play(best, reason)
    run = "" if position.run == position.seen else f", {position.run} since the cache lapsed"
    terms = Terms(float(position.seen), float(position.run), due)
    return frontier.decided(
        play.point,
        Objective.TARGET_F1,
        target_f1,
        terms,
        note=f"query {position.seen} of this context{run}: {play.reason}",
        max_seconds=max_seconds,
    )


def _play(
    frontier: EfficiencyFrontier,
    able: Sequence[StrategyPoint],
    free: frozenset[PointKey],
    at: Position,
    due: Mapping[PointKey, float],
) -> _Play:
    written = [frontier.lapsing.get(point.key, 0.0) for point in able]
    once = []
    for point, entry in zip(able, written, strict=True):
        once.append(0.0 if point.key in free else max(0.0, point.stage1 - entry))
    rates = [point.stage2 for point in able]
    if not any(written):
        play = _planned(able, tuple(zip(once, rates, strict=True)), at.seen, frontier.unit)
        bound = plan_rental(tuple(zip(once, rates, strict=True))).bound
        most = f"Never more than {bound:.2f} times the optimum for its queries at this target"
        return _Play(play.point, f"{play.reason}. {most}, however many queries come")
    lapses = "No bound holds where a cache lapses"
    if not any(once):
        play = _planned(able, tuple(zip(written, rates, strict=True)), at.run, frontier.unit)
        return _Play(play.point, f"{play.reason}. {lapses}")

    def cost(point: StrategyPoint) -> float:
        to_pay = due.get(point.key, point.stage1)
        entry = min(to_pay, frontier.lapsing.get(point.key, 0.0))
        return point.stage2 + (to_pay - entry) / (2 * at.seen) + entry / (2 * at.run)

    point = min(able, key=cost)
    return _Play(point, f"{point.label} costs the least if as many more come. {lapses}")


def _planned(
    able: Sequence[StrategyPoint], slopes: tuple[Slope, ...], query: int, unit: str
) -> _Play:
    plan = plan_rental(slopes)
    place = plan.at(query)
    chosen = able[plan.choices[place]]
    for later in range(place + 1, len(plan.starts)):
        following = able[plan.choices[later]]
        less = chosen.stage2 - following.stage2
        if less > 0:
            queries = plan.starts[later] - query
            return _Play(
                chosen,
                f"{chosen.label} for {queries} queries yet, then {following.label}, whose "
                f"preparation costs {amount(following.stage1, unit)} and which costs "
                f"{amount(less, unit)} less per query",
            )
    return _Play(chosen, f"{chosen.label} from this query on, however many follow")


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
