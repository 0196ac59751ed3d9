"""What was measured, question by question, and how sure it is.

Intervals are percentile intervals of a paired bootstrap: the same questions are drawn for every
strategy, so what makes a question hard for all of them cancels in differences. Where several
questions share a context they are not independent; ``by="context"`` draws whole contexts.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import (
    Account,
    PriceVector,
    Usage,
    check_reuse,
    check_weight,
    flat,
    nested,
    weight_crossover,
)
from ecs_plugins.frontier.points import ConfigValue, PointKey, StrategyPoint, config_json
from ecs_plugins.tokens import Stage

Array = npt.NDArray[np.float64]


def _array(rows: Any) -> Array:
    try:
        return np.array(rows, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError("measurements must be rows of numbers, all of one length") from error


Table = Annotated[Array, PlainValidator(_array), PlainSerializer(np.ndarray.tolist)]
Tables = Annotated[
    Mapping[Account, Array],
    PlainValidator(lambda stored: {name: _array(rows) for name, rows in flat(stored).items()}),
    PlainSerializer(lambda tables: nested({name: v.tolist() for name, v in tables.items()})),
]
_ABSENT: Array = np.zeros(0)
TABLES = ("f1", "em", "shared_input", "prepare_seconds", "query_seconds")


@dataclass(frozen=True, slots=True)
class Arm:
    """One strategy in one configuration, as it was measured."""

    strategy: str
    config: Mapping[str, ConfigValue]
    routable: bool = True

    @property
    def key(self) -> PointKey:
        """What its point is called."""
        return (self.strategy, config_json(self.config))


@dataclass(frozen=True, eq=False)
class Measurements:
    """P configurations on Q questions, each with the id of its context; all tables ``[P, Q]``.

    Tokens and seconds are those of a `Usage`, stage 1 being that of the question's context.

    Raises:
        InvalidInputError: Shapes disagree, or a value is NaN, negative or out of range.
    """

    arms: tuple[Arm, ...]
    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    f1: Table
    em: Table
    tokens: Tables
    shared_input: Table = field(default_factory=lambda: _ABSENT)
    prepare_seconds: Table = field(default_factory=lambda: _ABSENT)
    query_seconds: Table = field(default_factory=lambda: _ABSENT)

    def __post_init__(self) -> None:
        if not all(self.shape):
            raise InvalidInputError("measurements need at least one strategy and one question")
        if len(self.contexts) != len(self.questions):
            raise InvalidInputError(
                f"{len(self.questions)} questions but {len(self.contexts)} context ids; give one "
                "each"
            )
        tokens = {
            (stage, role): self._checked(f"tokens[{stage}][{role}]", values)
            for (stage, role), values in self.tokens.items()
        }
        object.__setattr__(self, "tokens", tokens)
        for name in TABLES:
            given = getattr(self, name)
            values = np.zeros(self.shape) if given is _ABSENT else given
            top = 1.0 if name in ("f1", "em") else math.inf
            object.__setattr__(self, name, self._checked(name, values, top))

    def _checked(self, name: str, values: Array, top: float = math.inf) -> Array:
        array = np.array(values, dtype=np.float64)
        if array.shape != self.shape:
            raise InvalidInputError(
                f"{name} has shape {array.shape}, expected {self.shape} (configurations, questions)"
            )
        if not (np.isfinite(array).all() and (array >= 0).all() and (array <= top).all()):
            limit = "finite and not negative" if math.isinf(top) else f"in [0, {top:g}]"
            raise InvalidInputError(f"every value of {name} must be {limit}")
        array.setflags(write=False)
        return array

    @property
    def shape(self) -> tuple[int, int]:
        """(P, Q)."""
        return (len(self.arms), len(self.questions))

    def points(self, prices: PriceVector | None = None) -> tuple[StrategyPoint, ...]:
        """The mean of each configuration, with standard errors.

        Stage 1 is paid once per context, so its mean is over contexts; that of the rest is over
        questions.
        """
        one, two = (prices or PriceVector()).stages(self)
        once = self.per_context(one)
        return tuple(self._point(row, once[row], two[row]) for row in range(len(self.arms)))

    @property
    def grouped(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The number of each question's context, and how many questions each context has."""
        return np.unique(self.contexts, return_inverse=True, return_counts=True)[1:]

    def per_context(self, values: Array) -> Array:
        """The mean per context of values per question, ``[P, Q]`` to ``[P, contexts]``."""
        member, questions = self.grouped
        out = np.zeros((len(values), len(questions)))
        np.add.at(out.T, member, values.T)
        return out / questions

    def _point(self, row: int, one: Array, two: Array) -> StrategyPoint:
        arm, f1 = self.arms[row], self.f1[row]
        own = {account: v[[row]] for account, v in self.tokens.items()}
        tokens = {
            account: float((self.per_context(v) if account[0] == Stage.PREPARE else v).mean())
            for account, v in own.items()
        }
        prepare = float(self.per_context(self.prepare_seconds[[row]]).mean())
        query = float(self.query_seconds[row].mean())
        return StrategyPoint(
            arm.strategy,
            arm.config,
            f1=min(1.0, float(f1.mean())),
            stage1=float(one.mean()),
            stage2=float(two.mean()),
            n=len(self.questions),
            f1_se=float(f1.std(ddof=1) / math.sqrt(len(f1))) if len(f1) > 1 else 0.0,
            em=float(self.em[row].mean()),
            usage=Usage(tokens, float(self.shared_input[row].mean()), prepare, query),
            routable=arm.routable,
        )

    def select(self, rows: Sequence[int]) -> Measurements:
        """Only some configurations."""
        index = list(rows)
        tables: dict[str, Any] = {name: getattr(self, name)[index] for name in TABLES}
        tokens = {account: values[index] for account, values in self.tokens.items()}
        return replace(self, arms=tuple(self.arms[i] for i in index), tokens=tokens, **tables)


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval, and the share of resamples in which the quantity exists at all."""

    low: float
    high: float
    level: float
    share: float = 1.0

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"[{self.low:.3g}, {self.high:.3g}]"


class Bootstrap:
    """Resampled means of every configuration, and the intervals that follow.

    One set of B resamples serves all configurations and quantities, so any difference or
    crossover of them is paired.

    Args:
        measurements: What to resample.
        prices: What costs are counted in.
        replicates: B.
        seed: Same seed, same intervals.
        level: Coverage of the intervals.
        by: What is drawn: questions, or contexts with all their questions.
    """

    def __init__(
        self,
        measurements: Measurements,
        prices: PriceVector | None = None,
        *,
        replicates: int = 2000,
        seed: int = 42,
        level: float = 0.95,
        by: Literal["question", "context"] = "question",
    ) -> None:
        self.level = level
        context, asked = measurements.grouped
        member = context if by == "context" else np.arange(len(measurements.questions))
        groups = int(member.max()) + 1
        rng = np.random.default_rng(seed)
        drawn = rng.multinomial(groups, np.full(groups, 1 / groups), replicates)
        # How much each question counts in each resample, [Q, B].
        weights = drawn[:, member].T.astype(np.float64)
        weights /= weights.sum(axis=0)
        one, two = (prices or PriceVector()).stages(measurements)
        # Means per configuration and resample, [P, B].
        self.f1, self.stage2 = measurements.f1 @ weights, two @ weights
        # Stage 1 is paid once per context: a question counts as its share of one.
        weights /= asked[context, None]
        self.stage1 = one @ (weights / weights.sum(axis=0))

    def interval(self, values: Array) -> Interval:
        """Percentile interval of B resampled values; NaN marks resamples without one."""
        known = values[np.isfinite(values)]
        if not len(known):
            return Interval(math.nan, math.nan, self.level, 0.0)
        tail = (1 - self.level) / 2
        low, high = np.quantile(known, [tail, 1 - tail])
        return Interval(float(low), float(high), self.level, len(known) / len(values))

    def f1_interval(self, row: int) -> Interval:
        """Of the mean F1 of one configuration."""
        return self.interval(self.f1[row])

    def cost(self, row: int, reuse: float, *, sunk: bool = False) -> Array:
        """Resampled cost per query at N = ``reuse``, ``[B]``."""
        shared_by = math.inf if sunk else check_reuse(reuse)
        total: Array = self.stage2[row] + self.stage1[row] / shared_by
        return total

    def f1_difference(self, a: int, b: int) -> Interval:
        """Of ``F1_a - F1_b``, paired."""
        return self.interval(self.f1[a] - self.f1[b])

    def score_difference(
        self, a: int, b: int, reuse: float, weight: float, prepared: Container[int] = ()
    ) -> Interval:
        """Of the difference of efficiency scores (Eq. 2), paired; ``prepared`` rows are sunk."""
        check_weight(weight)
        logs = [np.log(self.cost(row, reuse, sunk=row in prepared)) for row in (a, b)]
        quality = self.f1[a] - self.f1[b]
        return self.interval(weight * quality - (1 - weight) * (logs[0] - logs[1]))

    def weight_crossover(self, a: int, b: int, reuse: float) -> Interval:
        """Of the w at which two configurations score alike at N = ``reuse``."""
        columns = (self.f1[a], self.cost(a, reuse), self.f1[b], self.cost(b, reuse))
        found = map(weight_crossover, *columns)
        return self.interval(np.array([math.nan if w is None else w for w in found]))
