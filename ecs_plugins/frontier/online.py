"""Deciding without knowing how many queries come: rent or buy, per context and target.

Where nothing lapses it is the game of `rental`, counted in all queries of a context. Where all
that is bought is an entry of a prompt cache, it is the same game, begun anew with every run of
queries that no gap ends. Where both occur it is that of `lapsing`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ecs_plugins.frontier.cost import PointKey, StrategyPoint
from ecs_plugins.frontier.decision import Objective, RoutingDecision, Terms, amount
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.lapsing import CostLine, lapsing_game
from ecs_plugins.frontier.rental import Slope, plan_random, plan_rental


@dataclass(frozen=True, slots=True)
class Position:
    """Where a context has come to in its game.

    Attributes:
        seen: Its queries, this one included; at least 1.
        run: Those of them since its cache lapsed; all where nothing lapses.
        finished: How often a run of so many queries has ended before.
        lapses: How many have.
    """

    seen: int
    run: int
    finished: Mapping[int, int] = field(default_factory=dict)
    lapses: int = 0


class _Play(NamedTuple):
    """What the game says at a query: a point, what it costs at most, and what comes next."""

    point: StrategyPoint
    bound: float
    step: str
    more: str


def decide_online(
    frontier: EfficiencyFrontier,
    target_f1: float,
    at: Position | int,
    *,
    prepared: Iterable[PointKey] | Mapping[PointKey, float] = (),
    free: Iterable[PointKey] = (),
    max_seconds: float | None = None,
    draw: float | None = None,
) -> RoutingDecision:
    """Rent or buy at equal quality, all `EfficiencyFrontier.reaching` it; the reason is the note.

    Args:
        frontier: What was measured.
        target_f1: What must be reached.
        at: Where the context has come to; a number is that of the query where nothing lapses.
        prepared: Points prepared for it, as in `EfficiencyFrontier.decide`. One of them is used
            where what the plan would use costs no less per query.
        free: Those that were before the first query: the optimum has them too.
        max_seconds: As in `EfficiencyFrontier.decide`.
        draw: Uniform in [0, 1) for the randomised plan; None for the deterministic one.
    """
    position = Position(at, at) if isinstance(at, int) else at
    given = frozenset(free)
    due = dict.fromkeys(given, 0.0)
    if isinstance(prepared, Mapping):
        due.update(prepared)
    else:
        due.update(dict.fromkeys(prepared, 0.0))
    able = frontier.reaching(target_f1, max_seconds)
    lines = []
    for point in able:
        written = frontier.lapsing.get(point.key, 0.0)
        lines.append(_line(point, written, free=point.key in given))
    play = _play(able, tuple(lines), position, frontier.unit, draw)
    chosen = play.point
    ready = [point for point in able if due.get(point.key) == 0]
    if ready:
        best = min(ready, key=lambda point: point.stage2)
        if best.stage2 <= chosen.stage2:
            chosen = best
            play = play._replace(more="from this query on, however many follow")
    most = "Never more than"
    if draw is not None:
        most = "In expectation at most"
    note = (
        f"{play.step} of this context: {chosen.label} {play.more}. {most} {play.bound:.2f} times "
        f"the optimum for its queries at this target, however many queries come"
    )
    if any(line.write for line in lines):
        note += " and whenever the cache lapses"
    terms = Terms(float(position.seen), float(position.run), due)
    return frontier.decided(
        chosen, Objective.TARGET_F1, target_f1, terms, note=note, max_seconds=max_seconds
    )


def _line(point: StrategyPoint, written: float, *, free: bool) -> CostLine:
    prepare = 0.0
    if not free:
        prepare = max(0.0, point.stage1 - written)
    return CostLine(prepare, written, point.stage2)


def _play(
    able: Sequence[StrategyPoint],
    lines: tuple[CostLine, ...],
    at: Position,
    unit: str,
    draw: float | None,
) -> _Play:
    if not any(line.write for line in lines):
        slopes = tuple((line.prepare, line.rate) for line in lines)
        return _planned(able, slopes, at.seen, f"query {at.seen}", unit, draw)
    step = f"query {at.run} since a gap let the cache of this context lapse, and {at.seen}"
    if at.run == at.seen:
        step = f"query {at.seen}"
    if not any(line.prepare for line in lines):
        slopes = tuple((line.write, line.rate) for line in lines)
        return _planned(able, slopes, at.run, step, unit, draw)
    game = lapsing_game(lines)
    point = able[game.choose(at.run, at.finished)]
    return _Play(point, game.bound, step, "is what would have cost the least so far")


def _planned(
    able: Sequence[StrategyPoint],
    slopes: tuple[Slope, ...],
    query: int,
    step: str,
    unit: str,
    draw: float | None,
) -> _Play:
    plan = plan_rental(slopes) if draw is None else plan_random(slopes, draw)
    place = plan.at(query)
    chosen = able[plan.choices[place]]
    more = "from this query on, however many follow"
    for later in range(place + 1, len(plan.starts)):
        following = able[plan.choices[later]]
        less = chosen.stage2 - following.stage2
        if less > 0:
            queries = plan.starts[later] - query
            more = (
                f"for {queries} queries yet, then {following.label}, whose preparation "
                f"costs {amount(following.stage1, unit)} and which costs {amount(less, unit)} "
                "less per query"
            )
            break
    return _Play(chosen, plan.bound, step, more)


def game_of(points: Iterable[StrategyPoint], usual: float | None, target: float) -> str:
    """What queries at a target are counted together as; empty for the ``usual`` target.

    Targets that the same points reach are one game.
    """
    levels = sorted(point.f1 for point in points)
    lowest = _lowest_reaching(levels, target)
    if usual is not None and lowest == _lowest_reaching(levels, usual):
        return ""
    return f"F1 {lowest:.6g}"


def _lowest_reaching(rising: Sequence[float], target: float) -> float:
    return next((level for level in rising if level >= target), target)


def coin(context_id: str) -> float:
    """The coin of a context, in [0, 1): the same in every process, at every query."""
    encoded = context_id.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(encoded, digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
