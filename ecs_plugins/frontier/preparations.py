"""Preparations of contexts: which are noted, and how long they stay valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ecs_plugins.common.checks import check_kind
from ecs_plugins.frontier.cost import PointKey, StrategyPoint, Usage
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.measured import MeasuredPoints
from ecs_plugins.frontier.reuse import Preparation
from ecs_plugins.frontier.usage import CacheTokens
from ecs_plugins.tokens import Role, Stage, TokenLedger

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of the stage 1 of each point of a frontier.

    Attributes:
        stage1: Cost of stage 1, by point.
        lapsing: The part of it that a prompt cache forgets, where there is one.
        cache_seconds: Life of an entry of that cache; None where nothing is cached.
        in_memory: Points whose stage 1 is in the memory of the scoring model alone.
    """

    stage1: Mapping[PointKey, float]
    lapsing: Mapping[PointKey, float]
    cache_seconds: float | None
    in_memory: frozenset[PointKey]

    @classmethod
    def of(cls, frontier: MeasuredPoints) -> Self:
        """Return the lifetimes of the points of a frontier."""
        stage1 = {point.key: point.stage1 for point in frontier.points}
        cache_seconds = frontier.prices.answer.cache_seconds if frontier.lapsing else None
        in_memory = frozenset(point.key for point in frontier.points if _is_read(point))
        return cls(stage1, frontier.lapsing, cache_seconds, in_memory)

    def due(
        self, preparations: Mapping[PointKey, Preparation], stored: Mapping[PointKey, bool]
    ) -> dict[PointKey, float]:
        """Return the cost of stage 1 that is still due, of the points that were prepared.

        A cache entry that has lapsed is due again. ``stored`` says of points whose preparations
        can be looked up whether they are there, whatever the ledger has noted.
        """
        due = {}
        for key in {*preparations, *stored}:
            paid = preparations.get(key)
            is_there = stored.get(key, paid is not None and key not in self.in_memory)
            if not is_there:
                continue
            written = self.lapsing.get(key, 0.0)
            if not written or self._lives(paid):
                due[key] = 0.0
            elif written < self.stage1.get(key, 0.0):
                due[key] = written
        return due

    def _lives(self, paid: Preparation | None) -> bool:
        if paid is None:
            return False
        return self.cache_seconds is None or paid.age <= (paid.life or self.cache_seconds)


def _is_read(point: StrategyPoint) -> bool:
    """Return True if the scoring model reads in stage 1, and nothing else happens."""
    if not point.stage1 or point.usage is None:
        return False
    paid = set()
    for (stage, role), tokens in point.usage.tokens.items():
        if stage == Stage.PREPARE and tokens:
            paid.add(role)
    return paid == {Role.SCORER}


def has_failed(
    decision: RoutingDecision, noted: Mapping[PointKey, Preparation], measured: MeasuredPoints
) -> bool:
    """Return True if the chosen strategy skipped its preparation."""
    written = measured.lapsing.get(decision.point.key, 0.0)
    return decision.stage1 > written and decision.point.key not in noted


def prepared_by(decision: RoutingDecision, actual: TokenLedger) -> dict[PointKey, TokenLedger]:
    """Return the choice with its tokens, if some of them prepared."""
    return {decision.point.key: actual} if actual.total(Stage.PREPARE) > 0 else {}


def newly_prepared(
    decision: RoutingDecision,
    prepared: Mapping[PointKey, TokenLedger],
    measured: MeasuredPoints,
    *,
    cached: CacheTokens,
    reads: bool,
) -> dict[PointKey, Preparation]:
    """Return the preparations to note, with the cost of their stage 1.

    A query that ``reads`` an entry of a prompt cache notes it again: it lives on from there, for
    an hour if it was written for an hour.
    """
    stage1 = {point.key: point.stage1 for point in measured.points}
    noted: dict[PointKey, Preparation] = {}
    check_kind("prepared", prepared, Mapping)  # type: ignore[type-abstract]
    life = _life(cached, measured)
    for key, tokens in prepared.items():
        check_kind("the tokens of a preparation", tokens, TokenLedger)
        is_new = bool(stage1.get(key)) and key not in decision.due
        if tokens.total(Stage.PREPARE) or is_new:
            one, _ = measured.prices.stages(Usage(dict(tokens)))
            noted[key] = Preparation(float(one), 0.0, life)
    own = decision.point.key
    if reads and own in measured.lapsing:
        # Written or read again, the entry lives from now on.
        only_cached = measured.lapsing[own] >= decision.point.stage1
        if only_cached or own in noted or own in decision.due:
            cost = decision.point.stage1 if only_cached else 0.0
            noted.setdefault(own, Preparation(cost, 0.0, life))
    return noted


def _life(cached: CacheTokens, measured: MeasuredPoints) -> float:
    """Return the life of the entry that a query wrote; 0 where it wrote none."""
    if cached.written_1h:
        return _HOUR
    if cached.written:
        return measured.prices.answer.cache_seconds
    return 0.0
