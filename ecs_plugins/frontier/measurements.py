"""What was measured, question by question, how sure it is, and the file that keeps it.

Intervals are percentile intervals of a paired bootstrap: the same questions are drawn for every
strategy, so what makes a question hard for all of them cancels in differences. Where several
questions share a context they are not independent; ``by="context"`` draws whole contexts.

The file is versioned JSON with the points, the rows behind them, the prices and the provenance.
Means that do not follow from the rows are refused: such a file was edited or damaged.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, PlainSerializer, PlainValidator, TypeAdapter

from ecs_plugins.common.files import read_text, read_versioned, write_atomically
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import (
    ConfigValue,
    Dropped,
    PointKey,
    PriceVector,
    Provenance,
    StrategyPoint,
    Usage,
    check_reuse,
    check_weight,
    config_json,
    weight_crossover,
)
from ecs_plugins.tokens import Account, Stage, flat, nested

Array = npt.NDArray[np.float64]


Table = Annotated[Array, PlainValidator(lambda rows: rows), PlainSerializer(np.ndarray.tolist)]
Tables = Annotated[
    Mapping[Account, Array],
    PlainValidator(flat),
    PlainSerializer(lambda tables: nested({name: v.tolist() for name, v in tables.items()})),
]
FORMAT = "ecs_plugins.frontier"
VERSION = 1
_LEVEL = 0.95  # of every interval
_Z95 = 1.959963984540054
FEW_QUESTIONS = 30
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
    shared_input: Table
    prepare_seconds: Table
    query_seconds: Table

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
            top = 1.0 if name in ("f1", "em") else math.inf
            object.__setattr__(self, name, self._checked(name, getattr(self, name), top))

    def _checked(self, name: str, values: Any, top: float = math.inf) -> Array:
        try:
            array = np.array(values, dtype=np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInputError(f"{name} must be rows of numbers, all of one length") from error
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

    One set of B ``replicates`` serves all configurations and quantities, so any difference or
    crossover of them is paired. What is drawn ``by`` are questions, or contexts with all their
    questions.
    """

    def __init__(
        self,
        measurements: Measurements,
        prices: PriceVector | None = None,
        *,
        replicates: int = 2000,
        by: Literal["question", "context"] = "question",
    ) -> None:
        context, asked = measurements.grouped
        member = context if by == "context" else np.arange(len(measurements.questions))
        groups = int(member.max()) + 1
        rng = np.random.default_rng(42)
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
            return Interval(math.nan, math.nan, _LEVEL, 0.0)
        tail = (1 - _LEVEL) / 2
        low, high = np.quantile(known, [tail, 1 - tail])
        return Interval(float(low), float(high), _LEVEL, len(known) / len(values))

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


class _File(BaseModel):
    """Every value is checked, and what is unknown is left alone."""

    format: str = FORMAT
    version: int = VERSION
    provenance: Provenance
    prices: PriceVector
    points: tuple[StrategyPoint, ...]
    dropped: tuple[Dropped, ...]
    measurements: Measurements | None = None


def check_choice(routable: Iterable[str], why: str = "") -> None:
    """Refuse a choice between fewer than two strategies; ``why`` ends the message."""
    names = sorted(set(routable))
    if len(names) < 2:
        raise InvalidInputError(
            "a frontier chooses between strategies and needs at least two that can be "
            f"routed, got {names or 'none'}; measure another one as well. {why}".strip()
        )


class MeasuredPoints:
    """Points, and what is behind them.

    Args:
        points: At least two routable strategies; no strategy and configuration twice.
        measurements: The rows behind the points, for intervals and prices; in their order.
        prices: What the costs of the points are counted in.
        provenance: Where the points come from.
        dropped: Configurations that calibration gave up.

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
        self.routable = tuple(point for point in self.points if point.routable)
        self._rows = {point.key: row for row, point in enumerate(self.points)}
        twice = [key for key, count in Counter(p.key for p in self.points).items() if count > 1]
        if twice:
            raise InvalidInputError(
                f"{twice[0][0]} {twice[0][1]} is given twice; average repeated measurements first"
            )
        check_choice(point.strategy for point in self.routable)

    @classmethod
    def from_measurements(cls, measurements: Measurements, **parts: Any) -> Self:
        """From rows; the points are their means."""
        points = measurements.points(parts.get("prices"))
        return cls(points, measurements=measurements, **parts)

    def _parts(self, **changes: Any) -> dict[str, Any]:
        names = ("points", "measurements", "prices", "provenance", "dropped")
        return {name: getattr(self, name) for name in names} | changes

    def with_points(self, points: Iterable[StrategyPoint], **changes: Any) -> Self:
        """A copy with other points, and with what else is changed."""
        return type(self)(**self._parts(points=points, **changes))

    def priced(self, prices: PriceVector) -> Self:
        """The same measurements in another unit.

        Raises:
            InvalidInputError: A point has no usage to price.
        """
        rows = self.measurements
        points = [p.priced(prices) for p in self.points] if rows is None else rows.points(prices)
        return self.with_points(points, prices=prices)

    def only(self, names: Iterable[str]) -> Self:
        """The same measurements with fewer points: what there are chains for.

        ``names`` are labels (``"bm25(depth=4)"``) or strategies (``"bm25"``, all configurations).

        Raises:
            InvalidInputError: A name was not measured, or fewer than two routable strategies
                are left.
        """
        wanted = set(names)
        unknown = wanted - {name for p in self.points for name in (p.label, p.strategy)}
        if unknown:
            raise self._not_measured(", ".join(sorted(unknown)))
        rows = [k for k, p in enumerate(self.points) if wanted & {p.label, p.strategy}]
        kept = self.measurements and self.measurements.select(rows)
        return self.with_points([self.points[row] for row in rows], measurements=kept)

    def get(self, strategy: str, **config: ConfigValue) -> StrategyPoint:
        """The point of a strategy and configuration.

        Raises:
            InvalidInputError: It was not measured.
        """
        for point in self.points:
            if point.strategy == strategy and dict(point.config) == config:
                return point
        raise self._not_measured(f"{strategy} {config}")

    def _not_measured(self, what: str) -> InvalidInputError:
        known = ", ".join(point.label for point in self.points)
        return InvalidInputError(f"{what} was not measured; measured are {known}")

    @property
    def unit(self) -> str:
        """What costs are counted in."""
        return self.prices.unit

    def row(self, point: StrategyPoint) -> int:
        """Row of a point in `points` and in the measurements."""
        return self._rows[point.key]

    @cached_property
    def bootstrap(self) -> Bootstrap:
        """Paired resamples of the measurements.

        Raises:
            InvalidInputError: There are points alone.
        """
        if self.measurements is None:
            raise InvalidInputError(
                "this frontier holds means only; intervals need the measurements that "
                "calibrate() keeps"
            )
        return Bootstrap(self.measurements, self.prices)

    def f1_interval(self, point: StrategyPoint) -> Interval:
        """Bootstrap interval of a point's F1, or a normal one from its standard error.

        It is Wilson's, which is never too narrow for values in [0, 1], where there are few
        questions or all scored alike. One question without its rows has none.
        """
        half = _Z95 * point.f1_se
        found = Interval(max(0.0, point.f1 - half), min(1.0, point.f1 + half), _LEVEL)
        if self.measurements is not None:
            found = self.bootstrap.f1_interval(self.row(point))
        elif point.n == 1:
            return found
        return found if point.n >= FEW_QUESTIONS and found.low < found.high else wilson(point)

    def cost_interval(self, point: StrategyPoint) -> Interval:
        """Interval of a point's stage 2, as a ratio to its mean; none without measurements."""
        if self.measurements is None:
            return Interval(1.0, 1.0, _LEVEL)
        costs = self.bootstrap.cost(self.row(point), math.inf)
        return self.bootstrap.interval(costs / point.stage2)

    def latency(self, point: StrategyPoint) -> tuple[float, float] | None:
        """Seconds of a query, p50 and p95; None without measurements."""
        return self._latencies[self.row(point)] if self._latencies else None

    @cached_property
    def _latencies(self) -> list[tuple[float, float]]:
        rows = () if self.measurements is None else self.measurements.query_seconds
        return [
            (float(p50), float(p95)) for p50, p95 in (np.quantile(r, [0.5, 0.95]) for r in rows)
        ]

    @property
    def caution(self) -> str:
        """What to say where there are too few questions to compare; empty where there are not."""
        n = max(point.n for point in self.points)
        few = n < FEW_QUESTIONS and (n > 1 or self.measurements is not None)
        return f"measured on {n} questions, fewer than {FEW_QUESTIONS}: too few to compare F1" * few

    # The file.

    def to_json(self, *, measurements: bool = True) -> str:
        """The frontier as JSON text; without ``measurements`` it is small and has no intervals."""
        parts = self._parts() if measurements else self._parts(measurements=None)
        head = _File.model_construct(**parts).model_dump(mode="json")
        rows = head.pop("measurements")
        # What a person reads is indented; the rows are many numbers and stand on one line.
        text = json.dumps(head, indent=1, allow_nan=False)
        numbers = json.dumps(rows, separators=(",", ":"), allow_nan=False)
        return f'{text[:-2]},\n "measurements": {numbers}\n}}\n'

    @classmethod
    def from_json(cls, text: str, *, source: str = "the artefact") -> Self:
        """Rebuild a frontier and check it.

        Raises:
            InvalidInputError: Not JSON, not a frontier, of a newer version, a field missing or of
                the wrong type (named), a value out of range, or means that do not follow from
                the measurements.
        """
        file = read_versioned(
            TypeAdapter(_File),
            text,
            FORMAT,
            VERSION,
            source=source,
            otherwise="is not a frontier; make one with: ecs-plugins calibrate --out frontier.json",
            again="calibrate again",
        )
        parts = {name: value for name, value in file if name not in ("format", "version")}
        if file.measurements is not None:
            means = parts["points"] = file.measurements.points(file.prices)
            one, _ = file.prices.stages(file.measurements)
            if not _agree(file.points, means, one.mean(axis=1)):
                raise InvalidInputError(
                    f"{source}: a point does not follow from the measurements in the same file; "
                    "it was edited or damaged, so calibrate again"
                )
        return cls(**parts)

    def save(self, path: str | os.PathLike[str], *, measurements: bool = True) -> Path:
        """Write the artefact; a file of that name is replaced whole or not at all.

        Raises:
            StorageError: It cannot be written.
        """
        return write_atomically(Path(path), self.to_json(measurements=measurements))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an artefact.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: It is not a valid artefact; see `from_json`.
        """
        return cls.from_json(read_text(path, "the frontier"), source=str(path))


def wilson(point: StrategyPoint) -> Interval:
    """The score interval of a share (Wilson 1927), as if every F1 were 0 or 1."""
    share = _Z95**2 / point.n
    middle = (point.f1 + share / 2) / (1 + share)
    half = math.sqrt(point.f1 * (1 - point.f1) * share + share**2 / 4) / (1 + share)
    return Interval(max(0.0, middle - half), min(1.0, middle + half), _LEVEL)


def _agree(
    points: Sequence[StrategyPoint], means: Sequence[StrategyPoint], per_question: Sequence[float]
) -> bool:
    """Whether points are the means of their rows; 0.1.0 averaged stage 1 over questions."""
    close = partial(np.allclose, rtol=1e-6, atol=1e-9)
    if [(p.key, p.routable) for p in points] != [(p.key, p.routable) for p in means]:
        return False
    stage1 = [p.stage1 for p in points]
    return close([(p.f1, p.stage2) for p in points], [(p.f1, p.stage2) for p in means]) and (
        close(stage1, [p.stage1 for p in means]) or close(stage1, per_question)
    )
