"""Measurements by question: the rows of a frontier's points, and their intervals.

Intervals are those of a paired bootstrap, and Wilson's for few questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import (
    ConfigValue,
    PointKey,
    StrategyPoint,
    Usage,
    check_reuse,
    config_json,
    weight_crossover,
)
from ecs_plugins.frontier.prices import PriceVector
from ecs_plugins.tokens import Account, Stage, flat, nested

Array = npt.NDArray[np.float64]


def _listed(tables: Mapping[Account, Array]) -> dict[str, dict[str, Any]]:
    """Return the tables as JSON lists."""
    rows = {account: table.tolist() for account, table in tables.items()}
    return nested(rows)


Table = Annotated[Array, PlainValidator(lambda rows: rows), PlainSerializer(np.ndarray.tolist)]
Tables = Annotated[Mapping[Account, Array], PlainValidator(flat), PlainSerializer(_listed)]
_LEVEL = 0.95  # of every interval
_SEED = 42
Z95 = 1.959963984540054
FEW_QUESTIONS = 30
CALLS = ("prepare_calls", "query_calls")
TABLES = ("f1", "shared_input", "prepare_seconds", "query_seconds", *CALLS)


@dataclass(frozen=True, slots=True)
class Arm:
    """One strategy in one configuration, as it was measured."""

    strategy: str
    config: Mapping[str, ConfigValue]
    routable: bool = True

    @property
    def key(self) -> PointKey:
        """Return the key of its point."""
        return (self.strategy, config_json(self.config))


@dataclass(frozen=True, eq=False)
class Measurements:
    """P configurations on Q questions, each with the id of its context; all tables ``[P, Q]``.

    Tokens, seconds and calls are those of a `Usage`, stage 1 being that of the question's context;
    without tables of calls each stage makes one.

    Raises:
        InvalidInputError: Shapes disagree, or a value is NaN, negative or out of range.
    """

    arms: tuple[Arm, ...]
    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    f1: Table
    tokens: Tables
    shared_input: Table
    prepare_seconds: Table
    query_seconds: Table
    prepare_calls: Table | None = None
    query_calls: Table | None = None

    def __post_init__(self) -> None:
        if not all(self.shape):
            raise InvalidInputError("measurements need at least one strategy and one question")
        if len(self.contexts) != len(self.questions):
            raise InvalidInputError(
                f"{len(self.questions)} questions but {len(self.contexts)} context ids; give one "
                "each"
            )
        tokens = {}
        for (stage, role), values in self.tokens.items():
            name = f"tokens[{stage}][{role}]"
            tokens[stage, role] = self._checked(name, values)
        object.__setattr__(self, "tokens", tokens)
        for name in CALLS:
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.ones(self.shape))
        for name in TABLES:
            top = 1.0 if name == "f1" else math.inf
            table = self._checked(name, getattr(self, name), top)
            object.__setattr__(self, name, table)

    def _checked(self, name: str, values: Any, top: float = math.inf) -> Array:
        try:
            array = np.array(values, dtype=np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInputError(f"{name} must be rows of numbers, all of one length") from error
        if array.shape != self.shape:
            raise InvalidInputError(
                f"{name} has shape {array.shape}, expected {self.shape} (configurations, questions)"
            )
        within = np.isfinite(array) & (array >= 0) & (array <= top)
        if not within.all():
            limit = f"in [0, {top:g}]"
            if math.isinf(top):
                limit = "finite and not negative"
            raise InvalidInputError(f"every value of {name} must be {limit}")
        array.setflags(write=False)
        return array

    @property
    def shape(self) -> tuple[int, int]:
        """Return (configurations, questions)."""
        return (len(self.arms), len(self.questions))

    def points(self, prices: PriceVector | None = None) -> tuple[StrategyPoint, ...]:
        """Return the mean of each configuration.

        Stage 1 is paid once per context, so its mean is over contexts; that of the rest is over
        questions.
        """
        vector = prices or PriceVector()
        one, two = vector.stages(self)
        once = self.per_context(one)
        return tuple(self._point(row, once[row], two[row]) for row in range(len(self.arms)))

    def per_context(self, values: Array) -> Array:
        """Return the mean per context of values per question, ``[P, Q]`` to ``[P, contexts]``."""
        _, context, counts = np.unique(self.contexts, return_inverse=True, return_counts=True)
        sums = np.zeros((len(values), len(counts)))
        np.add.at(sums.T, context, values.T)
        return sums / counts

    def _point(self, row: int, one: Array, two: Array) -> StrategyPoint:
        arm = self.arms[row]
        return StrategyPoint(
            arm.strategy,
            arm.config,
            f1=min(1.0, float(self.f1[row].mean())),
            stage1=float(one.mean()),
            stage2=float(two.mean()),
            n=len(self.questions),
            usage=self._usage(row),
            routable=arm.routable,
        )

    def _usage(self, row: int) -> Usage:
        tokens = {}
        for account, table in self.tokens.items():
            own = table[[row]]
            if account[0] == Stage.PREPARE:
                own = self.per_context(own)
            tokens[account] = float(own.mean())
        means = {name: getattr(self, name)[[row]] for name in TABLES[1:]}
        for name in ("prepare_seconds", "prepare_calls"):
            means[name] = self.per_context(means[name])
        return Usage(tokens, **{name: float(table.mean()) for name, table in means.items()})

    def select(self, rows: Sequence[int]) -> Measurements:
        """Return the measurements of some configurations only, given by their rows."""
        index = list(rows)
        tables: dict[str, Any] = {name: getattr(self, name)[index] for name in TABLES}
        tokens = {account: values[index] for account, values in self.tokens.items()}
        arms = tuple(self.arms[row] for row in index)
        return replace(self, arms=arms, tokens=tokens, **tables)


# Intervals.


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval, and the share of resamples in which the quantity exists at all."""

    low: float
    high: float
    share: float = 1.0

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"[{self.low:.3g}, {self.high:.3g}]"


class Bootstrap:
    """Resampled means of every configuration, and the intervals that follow.

    One set of B ``replicates`` serves all configurations and quantities, so crossovers are paired:
    a question that is hard for all of them cancels.
    """

    def __init__(
        self,
        measurements: Measurements,
        prices: PriceVector | None = None,
        *,
        replicates: int = 2000,
    ) -> None:
        contexts = measurements.contexts
        _, context, counts = np.unique(contexts, return_inverse=True, return_counts=True)
        questions = len(contexts)
        rng = np.random.default_rng(_SEED)
        drawn = rng.multinomial(questions, np.full(questions, 1 / questions), replicates)
        # How much each question counts in each resample, [Q, B].
        weights = drawn.T / questions
        vector = prices or PriceVector()
        one, two = vector.stages(measurements)
        # Means per configuration and resample, [P, B].
        self.f1 = measurements.f1 @ weights
        self.stage2 = two @ weights
        # Stage 1 is paid once per context: a question counts as its share of one.
        weights /= counts[context, None]
        weights /= weights.sum(axis=0)
        self.stage1 = one @ weights

    def interval(self, values: Array) -> Interval:
        """Return the percentile interval of B resampled values; NaN marks resamples without one."""
        existing = values[np.isfinite(values)]
        if not len(existing):
            return Interval(math.nan, math.nan, share=0.0)
        tail = (1 - _LEVEL) / 2
        ends = np.quantile(existing, [tail, 1 - tail])
        low, high = ends.tolist()
        share = len(existing) / len(values)
        return Interval(low, high, share=share)

    def f1_interval(self, row: int) -> Interval:
        """Return the interval of a configuration's mean F1."""
        return self.interval(self.f1[row])

    def weight_crossover(
        self,
        a: int,
        b: int,
        reuse: float,
    ) -> Interval:
        """Return the interval of the w with equal scores at N = ``reuse``."""
        shared_by = check_reuse(reuse)
        cost_a = self.stage2[a] + self.stage1[a] / shared_by
        cost_b = self.stage2[b] + self.stage1[b] / shared_by
        weights = []
        for resample in zip(self.f1[a], cost_a, self.f1[b], cost_b, strict=True):
            weight = weight_crossover(*resample)
            weights.append(math.nan if weight is None else weight)
        return self.interval(np.array(weights))


def wilson(point: StrategyPoint) -> Interval:
    """Return the score interval of a share (Wilson 1927), as if every F1 were 0 or 1."""
    share = Z95**2 / point.n
    middle = (point.f1 + share / 2) / (1 + share)
    variance = point.f1 * (1 - point.f1) * share + share**2 / 4
    half = math.sqrt(variance) / (1 + share)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))
