"""The Efficiency Frontier: which strategy and configuration is best, for every w, N and target.

The three stages of the paper: stage 1 keeps, per strategy, what is optimal for some (w, N)
(Eq. 3); stage 2 prices what is kept at a given N (Eq. 1); stage 3 takes the best over all
strategies (Eq. 4). A sweep over w reaches only the convex hull in (F1, ln cost), so look-ups by
target F1 or budget use the whole non-dominated set instead. All transitions are closed forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.chooser import Chooser
from ecs_plugins.frontier.cost import (
    PriceVector,
    check_reuse,
    check_weight,
    efficiency_score,
    exchange_rate,
    reuse_crossover,
    weight_crossover,
)
from ecs_plugins.frontier.decision import Objective, RoutingDecision, UnreachableTargetError
from ecs_plugins.frontier.hull import non_dominated
from ecs_plugins.frontier.paths import (
    EnvelopeStep,
    ReuseStep,
    Transition,
    envelope_steps,
    reuse_steps,
)
from ecs_plugins.frontier.points import PointKey, StrategyPoint
from ecs_plugins.frontier.provenance import Dropped, Provenance
from ecs_plugins.frontier.prune import Triple, optimal_somewhere

if TYPE_CHECKING:
    from ecs_plugins.frontier.bootstrap import Bootstrap, Interval
    from ecs_plugins.frontier.measurements import Measurements

_Z95 = 1.959963984540054


class EfficiencyFrontier:
    """Measured operating points and every decision that follows from them.

    Args:
        points: At least two routable strategies; no strategy and configuration twice.
        measurements: The rows behind the points, for intervals and prices; in their order.
        prices: What the costs of the points are counted in.
        provenance: Where the points come from.
        dropped: Configurations that calibration gave up early.

    Raises:
        InvalidInputError: Fewer than two routable strategies, or a duplicate.
    """

    def __init__(
        self,
        points: Iterable[StrategyPoint],
        *,
        measurements: Measurements | None = None,
        prices: PriceVector | None = None,
        provenance: Provenance | None = None,
        dropped: Sequence[Dropped] = (),
    ) -> None:
        self.points: tuple[StrategyPoint, ...] = tuple(points)
        self.measurements = measurements
        self.prices = prices or PriceVector()
        self.provenance = provenance or Provenance()
        self.dropped = tuple(dropped)
        twice = [key for key, count in Counter(p.key for p in self.points).items() if count > 1]
        if twice:
            raise InvalidInputError(
                f"{twice[0][0]} {twice[0][1]} is given twice; average repeated measurements first"
            )
        self.routable = tuple(point for point in self.points if point.routable)
        strategies = {point.strategy for point in self.routable}
        if len(strategies) < 2:
            raise InvalidInputError(
                "a frontier chooses between strategies and needs at least two that can be "
                f"routed, got {sorted(strategies) or 'none'}; measure another one as well"
            )
        self._rows = {point.key: row for row, point in enumerate(self.points)}
        self._chooser = Chooser(self.routable)

    @classmethod
    def from_measurements(
        cls,
        measurements: Measurements,
        *,
        prices: PriceVector | None = None,
        provenance: Provenance | None = None,
        dropped: Sequence[Dropped] = (),
    ) -> EfficiencyFrontier:
        """From rows; the points are their means."""
        return cls(
            measurements.points(prices),
            measurements=measurements,
            prices=prices,
            provenance=provenance,
            dropped=dropped,
        )

    def priced(self, prices: PriceVector) -> EfficiencyFrontier:
        """The same measurements in another unit.

        Raises:
            InvalidInputError: A point has no usage to price.
        """
        if self.measurements is not None:
            points = self.measurements.points(prices)
        else:
            points = tuple(point.priced(prices) for point in self.points)
        return EfficiencyFrontier(
            points,
            measurements=self.measurements,
            prices=prices,
            provenance=self.provenance,
            dropped=self.dropped,
        )

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
        return EfficiencyFrontier(
            [self.points[row] for row in rows],
            measurements=None if self.measurements is None else self.measurements.select(rows),
            prices=self.prices,
            provenance=self.provenance,
            dropped=self.dropped,
        )

    @property
    def unit(self) -> str:
        """What costs are counted in."""
        return self.prices.unit

    def row(self, point: StrategyPoint) -> int:
        """Row of a point in `points` and in the measurements."""
        return self._rows[point.key]

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

    @cached_property
    def survivors(self) -> dict[str, tuple[StrategyPoint, ...]]:
        """Stage 1: per strategy, the configurations that are optimal for some (w, N)."""
        kept: dict[str, tuple[StrategyPoint, ...]] = {}
        for strategy in dict.fromkeys(point.strategy for point in self.routable):
            own = [point for point in self.routable if point.strategy == strategy]
            kept[strategy] = tuple(own[i] for i in optimal_somewhere([_triple(p) for p in own]))
        return kept

    def envelope(
        self, reuse: float, points: Sequence[StrategyPoint] | None = None
    ) -> tuple[EnvelopeStep, ...]:
        """Stage 3: the best point for every w in [0, 1] at N = ``reuse``, exactly.

        Args:
            reuse: N >= 1.
            points: Only these; all survivors of stage 1 by default.
        """
        if points is None:
            points = [point for kept in self.survivors.values() for point in kept]
        return envelope_steps(points, reuse)

    def transitions(self, reuse: float, *, intervals: bool = False) -> tuple[Transition, ...]:
        """Every w at which the best choice changes at N = ``reuse``.

        Args:
            reuse: N >= 1.
            intervals: Whether to bootstrap each weight; needs measurements.
        """
        steps = self.envelope(reuse)
        out = []
        for before, after in pairwise(steps):
            interval = None
            if intervals:
                interval = self.bootstrap.weight_crossover(
                    self.row(before.point), self.row(after.point), reuse
                )
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

    def dominator(
        self, point: StrategyPoint, reuse: float, prepared: frozenset[PointKey] = frozenset()
    ) -> StrategyPoint | None:
        """The cheapest routable point that dominates ``point`` at N, if one does."""
        return self._chooser.dominator(point, reuse, prepared)

    def weight_crossover(self, a: StrategyPoint, b: StrategyPoint, reuse: float) -> float | None:
        """The w at which a and b score alike at N = ``reuse``; see `cost.weight_crossover`."""
        return weight_crossover(a.f1, a.effective(reuse), b.f1, b.effective(reuse))

    def reuse_crossover(
        self, a: StrategyPoint, b: StrategyPoint, weight: float | None = None
    ) -> float | None:
        """The N at which a and b are equally good; see `cost.reuse_crossover`."""
        return reuse_crossover(_triple(a), _triple(b), weight)

    # Decisions.

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
            target_f1: The cheapest point that reaches it.
            budget: The best F1 whose cost per query does not exceed it.
            weight: The best efficiency score.
            prepared: Keys of the points for which the context is prepared: their stage 1 is
                sunk and counts nothing.

        Raises:
            InvalidInputError: Not exactly one objective, or a value out of range.
            UnreachableTargetError: Nothing measured reaches the target or fits the budget.
        """
        if sum(value is not None for value in (target_f1, budget, weight)) != 1:
            raise InvalidInputError("give exactly one of target_f1, budget and weight")
        if target_f1 is not None:
            return self.cheapest(target_f1, reuse, prepared=prepared)
        if budget is not None:
            return self.within(budget, reuse, prepared=prepared)
        assert weight is not None
        return self.best(weight, reuse, prepared=prepared)

    def cheapest(
        self, target_f1: float, reuse: float, *, prepared: Iterable[PointKey] = ()
    ) -> RoutingDecision:
        """The cheapest point with F1 >= ``target_f1`` at N = ``reuse``; of equals the better."""
        check_reuse(reuse)
        if not 0 <= target_f1 <= 1:
            raise InvalidInputError(f"the target F1 must lie in [0, 1], got {target_f1!r}")
        ready = frozenset(prepared)
        chosen, cost = self._chooser.cheapest(target_f1, reuse, ready)
        if chosen is None:
            raise self._out_of_reach(target_f1)
        return self._decided(chosen, Objective.TARGET_F1, target_f1, reuse, cost, ready)

    def within(
        self, budget: float, reuse: float, *, prepared: Iterable[PointKey] = ()
    ) -> RoutingDecision:
        """The highest F1 whose cost per query at N = ``reuse`` is at most ``budget``."""
        check_reuse(reuse)
        if not budget > 0:
            raise InvalidInputError(f"the budget must be positive, got {budget!r}")
        ready = frozenset(prepared)
        chosen, cost = self._chooser.within(budget, reuse, ready)
        if chosen is None:
            raise UnreachableTargetError(
                f"nothing measured costs at most {budget:g} {self.unit} per query at "
                f"N = {reuse:g}; the cheapest needs {cost:g}",
                cost,
            )
        return self._decided(chosen, Objective.BUDGET, budget, reuse, cost, ready)

    def best(
        self, weight: float, reuse: float, *, prepared: Iterable[PointKey] = ()
    ) -> RoutingDecision:
        """The highest efficiency score at ``weight`` and N = ``reuse``; of equals the cheaper."""
        check_reuse(reuse)
        check_weight(weight)
        ready = frozenset(prepared)
        chosen, cost = self._chooser.best(weight, reuse, ready)
        return self._decided(chosen, Objective.WEIGHT, weight, reuse, cost, ready)

    def score(self, point: StrategyPoint, weight: float, reuse: float) -> float:
        """Efficiency score of a point (Eq. 2)."""
        return efficiency_score(point.f1, point.effective(reuse), weight)

    def _decided(
        self,
        point: StrategyPoint,
        objective: Objective,
        value: float,
        reuse: float,
        cost: float,
        ready: frozenset[PointKey],
    ) -> RoutingDecision:
        return RoutingDecision(
            point, objective, value, reuse, cost, self.unit, point.key in ready, ready, self
        )

    def _out_of_reach(self, target_f1: float) -> UnreachableTargetError:
        best = max(self.routable, key=lambda point: point.f1)
        return UnreachableTargetError(
            f"no measured strategy reaches F1 {target_f1:g}; the nearest is {best.f1:.4f} with "
            f"{best.label}. Ask for at most that, or calibrate stronger strategies",
            best.f1,
        )

    # How sure.

    @cached_property
    def bootstrap(self) -> Bootstrap:
        """Paired resamples of the measurements.

        Raises:
            InvalidInputError: The frontier was made from points alone.
        """
        from ecs_plugins.frontier.bootstrap import Bootstrap

        if self.measurements is None:
            raise InvalidInputError(
                "this frontier holds means only; intervals need the measurements that "
                "calibrate() keeps"
            )
        return Bootstrap(self.measurements, self.prices)

    def f1_interval(self, point: StrategyPoint) -> Interval:
        """Bootstrap interval of a point's F1, or a normal one from its standard error."""
        from ecs_plugins.frontier.bootstrap import Interval

        if self.measurements is not None:
            return self.bootstrap.f1_interval(self.row(point))
        half = _Z95 * point.f1_se
        return Interval(max(0.0, point.f1 - half), min(1.0, point.f1 + half), 0.95)


def _triple(point: StrategyPoint) -> Triple:
    return (point.f1, point.stage1, point.stage2)
