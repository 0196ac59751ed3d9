"""The Efficiency Frontier: which strategy and configuration is best, for every w, N and target.

The three stages of the paper: stage 1 keeps, per strategy, what is optimal under some w (Eq. 3);
stage 2 prices every configuration at a given N (Eq. 1); stage 3 takes the best over all
strategies (Eq. 4). A sweep over w reaches only the convex hull in (F1, ln cost), so look-ups by
target F1 or budget use the whole non-dominated set instead. All transitions are closed forms.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ecs_plugins.common.files import read_text, write_atomically
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier import artefact
from ecs_plugins.frontier.cost import (
    PriceVector,
    check_reuse,
    check_weight,
    exchange_rate,
)
from ecs_plugins.frontier.decision import Objective, RoutingDecision, UnreachableTargetError
from ecs_plugins.frontier.hull import (
    EnvelopeStep,
    ReuseStep,
    envelope_steps,
    non_dominated,
    reuse_steps,
)
from ecs_plugins.frontier.measurements import Interval, MeasuredPoints, Measurements
from ecs_plugins.frontier.points import PointKey, StrategyPoint

_Choice = tuple[float, StrategyPoint]


@dataclass(frozen=True, slots=True)
class Transition:
    """Where the best choice changes as w rises.

    Attributes:
        weight: The w at which both score alike.
        exchange_rate: Rise in cost that 0.01 more F1 is worth at that w.
        before: The better below.
        after: The better above.
        interval: Paired bootstrap interval of ``weight``, where there are measurements.
    """

    weight: float
    exchange_rate: float
    before: StrategyPoint
    after: StrategyPoint
    interval: Interval | None = None


class EfficiencyFrontier(MeasuredPoints):
    """Measured operating points and every decision that follows from them.

    Its arguments are those of `MeasuredPoints`.
    """

    @classmethod
    def from_measurements(cls, measurements: Measurements, **parts: Any) -> EfficiencyFrontier:
        """From rows; the points are their means."""
        points = measurements.points(parts.get("prices"))
        return cls(points, measurements=measurements, **parts)

    def priced(self, prices: PriceVector) -> EfficiencyFrontier:
        """The same measurements in another unit.

        Raises:
            InvalidInputError: A point has no usage to price.
        """
        rows = self.measurements
        points = [p.priced(prices) for p in self.points] if rows is None else rows.points(prices)
        return EfficiencyFrontier(**self.parts() | {"points": points, "prices": prices})

    def only(self, names: Iterable[str]) -> EfficiencyFrontier:
        """The same measurements with fewer points: what there are chains for.

        Args:
            names: Labels (``"bm25(depth=4)"``) or strategies (``"bm25"``, all configurations).

        Raises:
            InvalidInputError: A name was not measured, or fewer than two routable strategies
                are left.
        """
        wanted = set(names)
        unknown = wanted - {name for p in self.points for name in (p.label, p.strategy)}
        if unknown:
            raise InvalidInputError(
                f"{', '.join(sorted(unknown))} was not measured; measured are "
                f"{', '.join(point.label for point in self.points)}"
            )
        rows = [
            row for row, p in enumerate(self.points) if p.label in wanted or p.strategy in wanted
        ]
        kept = None if self.measurements is None else self.measurements.select(rows)
        points = [self.points[row] for row in rows]
        return EfficiencyFrontier(**self.parts() | {"points": points, "measurements": kept})

    def get(self, strategy: str, **config: str | int | float | bool | None) -> StrategyPoint:
        """The point of a strategy and configuration.

        Raises:
            InvalidInputError: It was not measured.
        """
        for point in self.points:
            if point.strategy == strategy and dict(point.config) == config:
                return point
        known = sorted(p.label for p in self.points if p.strategy == strategy)
        raise InvalidInputError(
            f"{strategy} {config} was not measured; measured are "
            f"{known or sorted({p.strategy for p in self.points})}"
        )

    # Stages 1 and 3 of the paper.

    def survivors(self, reuse: float) -> dict[str, tuple[StrategyPoint, ...]]:
        """Stage 1: per strategy, the configurations that are optimal under some w at N."""
        kept: dict[str, tuple[StrategyPoint, ...]] = {}
        for strategy in dict.fromkeys(point.strategy for point in self.routable):
            own = [point for point in self.routable if point.strategy == strategy]
            kept[strategy] = tuple(step.point for step in envelope_steps(own, reuse))
        return kept

    def envelope(self, reuse: float) -> tuple[EnvelopeStep, ...]:
        """Stage 3: the best point for every w in [0, 1] at N = ``reuse``, exactly."""
        survivors = self.survivors(reuse).values()
        return envelope_steps([point for kept in survivors for point in kept], reuse)

    def transitions(self, reuse: float, *, intervals: bool = False) -> tuple[Transition, ...]:
        """Every w at which the best choice changes at N = ``reuse``.

        Args:
            reuse: N >= 1.
            intervals: Whether to bootstrap each weight; needs measurements.
        """
        out = []
        for before, after in pairwise(self.envelope(reuse)):
            rows = (self.row(before.point), self.row(after.point))
            interval = self.bootstrap.weight_crossover(*rows, reuse) if intervals else None
            weight = after.weight_low
            out.append(
                Transition(weight, exchange_rate(weight), before.point, after.point, interval)
            )
        return tuple(out)

    def reuse_path(
        self, *, target_f1: float | None = None, weight: float | None = None
    ) -> tuple[ReuseStep, ...]:
        """The best point for every N >= 1, at a target F1 or at a weight.

        Raises:
            InvalidInputError: Not exactly one of the two is given.
            UnreachableTargetError: Nothing reaches the target.
        """
        if (target_f1 is None) == (weight is None):
            raise InvalidInputError("give either target_f1 or weight")
        if weight is not None:
            return reuse_steps(self.routable, weight)
        assert target_f1 is not None
        able = [point for point in self.routable if point.f1 >= target_f1]
        if not able:
            raise self._out_of_reach(target_f1)
        return reuse_steps(able)

    def non_dominated(self, reuse: float) -> tuple[StrategyPoint, ...]:
        """The points that no other beats at N = ``reuse``, by rising cost and F1."""
        check_reuse(reuse)
        kept = non_dominated(
            [point.f1 for point in self.routable],
            [point.effective(reuse) for point in self.routable],
        )
        return tuple(self.routable[index] for index in kept)

    # Decisions.

    @cached_property
    def _by_f1(self) -> list[StrategyPoint]:
        """By rising F1; of equals the cheaper first, which is the one that is chosen."""
        return sorted(self.routable, key=lambda p: (p.f1, p.stage2, p.stage1))

    def decide(
        self,
        *,
        reuse: float,
        target_f1: float | None = None,
        budget: float | None = None,
        weight: float | None = None,
        prepared: Iterable[PointKey] = (),
    ) -> RoutingDecision:
        """Choose by exactly one of target F1, budget per query, and weight.

        Args:
            reuse: N, how many queries (this one included) will share the context.
            target_f1: The cheapest point that reaches it; of equals the better.
            budget: The best F1 whose cost per query does not exceed it; of equals the cheaper.
            weight: The best efficiency score (Eq. 2); of equals the cheaper.
            prepared: Keys of the points for which the context is prepared: their stage 1 is
                sunk and counts nothing.

        Raises:
            InvalidInputError: Not exactly one objective, or a value out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
        """
        ready = frozenset(prepared)
        check_reuse(reuse)
        choices = [
            (p.stage2 if p.key in ready else p.stage2 + p.stage1 / reuse, p) for p in self._by_f1
        ]
        given = zip(Objective, (target_f1, budget, weight), strict=True)
        asked = [(objective, value) for objective, value in given if value is not None]
        if len(asked) != 1:
            raise InvalidInputError("give exactly one of target_f1, budget and weight")
        objective, value = asked[0]
        if objective == Objective.TARGET_F1:
            cost, chosen = self._cheapest(choices, value)
        elif objective == Objective.BUDGET:
            cost, chosen = self._within(choices, value, reuse)
        else:
            w = check_weight(value)
            cost, chosen = max(
                choices, key=lambda c: (w * c[1].f1 - (1 - w) * math.log(c[0]), -c[0])
            )
        return RoutingDecision(
            chosen, objective, value, reuse, cost, self.unit, chosen.key in ready, ready, self
        )

    def _cheapest(self, choices: Sequence[_Choice], target_f1: float) -> _Choice:
        if not 0 <= target_f1 <= 1:
            raise InvalidInputError(f"the target F1 must lie in [0, 1], got {target_f1!r}")
        able = [choice for choice in choices if choice[1].f1 >= target_f1]
        if not able:
            raise self._out_of_reach(target_f1)
        return min(able, key=lambda choice: (choice[0], -choice[1].f1))

    def _within(self, choices: Sequence[_Choice], budget: float, reuse: float) -> _Choice:
        if not budget > 0:
            raise InvalidInputError(f"the budget must be positive, got {budget!r}")
        fitting = [choice for choice in choices if choice[0] <= budget]
        if not fitting:
            lowest = min(cost for cost, _ in choices)
            raise UnreachableTargetError(
                f"nothing measured costs at most {budget:g} {self.unit} per query at "
                f"N = {reuse:g}; the cheapest needs {lowest:g}",
                lowest,
            )
        return max(fitting, key=lambda choice: (choice[1].f1, -choice[0]))

    def _out_of_reach(self, target_f1: float) -> UnreachableTargetError:
        best = max(self.routable, key=lambda point: point.f1)
        return UnreachableTargetError(
            f"no measured strategy reaches F1 {target_f1:g}; the nearest is {best.f1:.4f} with "
            f"{best.label}. Ask for at most that, or calibrate stronger strategies",
            best.f1,
        )

    # The artefact.

    def to_json(self, *, measurements: bool = True) -> str:
        """The frontier as JSON text; without ``measurements`` it is small and has no intervals."""
        return artefact.dumps(self, with_rows=measurements)

    @classmethod
    def from_json(cls, text: str, *, source: str = "the artefact") -> EfficiencyFrontier:
        """Rebuild a frontier and check it.

        Raises:
            InvalidInputError: Not JSON, not a frontier, of a newer version, a field missing or of
                the wrong type (named), a value out of range, or means that do not follow from
                the measurements.
        """
        return cls(**artefact.loads(text, source))

    def save(self, path: str | os.PathLike[str], *, measurements: bool = True) -> Path:
        """Write the artefact; a file of that name is replaced whole or not at all.

        Raises:
            StorageError: It cannot be written.
        """
        return write_atomically(Path(path), self.to_json(measurements=measurements))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EfficiencyFrontier:
        """Read an artefact.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: It is not a valid artefact; see `from_json`.
        """
        return cls.from_json(read_text(path, "the frontier"), source=str(path))
