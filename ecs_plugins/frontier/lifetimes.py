"""How long what is paid before a query lasts: on disk, in a prompt cache, in a model's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ecs_plugins.frontier.cost import PointKey, StrategyPoint
from ecs_plugins.frontier.ledger import Preparation
from ecs_plugins.frontier.measured import MeasuredPoints
from ecs_plugins.tokens import Role, Stage


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long the stage 1 of each point of a frontier lasts.

    Attributes:
        stage1: What it costs, by point.
        lapsing: What of it a prompt cache forgets, where that is something.
        cache_seconds: How long an entry of that cache lives; None where nothing is cached.
        in_memory: The points whose stage 1 is what the scoring model has read.
        is_mixed: Whether there are both caches that lapse and preparations that stay.
    """

    stage1: Mapping[PointKey, float]
    lapsing: Mapping[PointKey, float]
    cache_seconds: float | None
    in_memory: frozenset[PointKey]
    is_mixed: bool

    @classmethod
    def of(cls, frontier: MeasuredPoints) -> Self:
        """Those of the points of a frontier."""
        stage1 = {point.key: point.stage1 for point in frontier.points}
        lapsing = frontier.lapsing
        cache_seconds = None
        is_mixed = False
        if lapsing:
            cache_seconds = frontier.prices.answer.cache_seconds
            is_mixed = any(cost > lapsing.get(key, 0.0) for key, cost in stage1.items())
        in_memory = frozenset(point.key for point in frontier.points if _is_read(point))
        return cls(stage1, lapsing, cache_seconds, in_memory, is_mixed)

    def due(self, preparations: Mapping[PointKey, Preparation]) -> dict[PointKey, float]:
        """What of a stage 1 that was paid is due all the same: an entry that has lapsed."""
        due = {}
        for key, preparation in preparations.items():
            if key in self.in_memory:
                continue  # the process that read it may be gone
            written = self.lapsing.get(key, 0.0)
            lives = self.cache_seconds is None or preparation.age <= self.cache_seconds
            if lives or not written:
                due[key] = 0.0
            elif written < self.stage1.get(key, 0.0):
                due[key] = written
        return due


def _is_read(point: StrategyPoint) -> bool:
    """Whether its stage 1 is what the scoring model reads, and nothing else."""
    if not point.stage1 or point.usage is None:
        return False
    paid = set()
    for (stage, role), tokens in point.usage.tokens.items():
        if stage == Stage.PREPARE and tokens:
            paid.add(role)
    return paid == {Role.SCORER}
