"""Measurements by question: the rows of a frontier's points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import ConfigValue, PointKey, StrategyPoint, Usage, config_json
from ecs_plugins.frontier.prices import PriceVector
from ecs_plugins.tokens import Account, Stage, flat, nested

Array = npt.NDArray[np.float64]


def _listed(tables: Mapping[Account, Array]) -> dict[str, dict[str, Any]]:
    """Tables as JSON holds them."""
    rows = {account: table.tolist() for account, table in tables.items()}
    return nested(rows)


Table = Annotated[Array, PlainValidator(lambda rows: rows), PlainSerializer(np.ndarray.tolist)]
Tables = Annotated[Mapping[Account, Array], PlainValidator(flat), PlainSerializer(_listed)]
CALLS = ("prepare_calls", "query_calls")
TABLES = ("f1", "em", "shared_input", "prepare_seconds", "query_seconds", *CALLS)


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


class Grouping(NamedTuple):
    """The number of each question's context, and how many questions each context has."""

    context: npt.NDArray[np.intp]
    questions: npt.NDArray[np.intp]


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
    em: Table
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
            top = 1.0 if name in ("f1", "em") else math.inf
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
        """(P, Q)."""
        return (len(self.arms), len(self.questions))

    def points(self, prices: PriceVector | None = None) -> tuple[StrategyPoint, ...]:
        """Return the mean of each configuration, with standard errors.

        Stage 1 is paid once per context, so its mean is over contexts; that of the rest is over
        questions.
        """
        vector = prices or PriceVector()
        one, two = vector.stages(self)
        once = self.per_context(one)
        points = []
        for row, _ in enumerate(self.arms):
            point = self._point(row, once[row], two[row])
            points.append(point)
        return tuple(points)

    @property
    def grouped(self) -> Grouping:
        """Which questions are about one context."""
        _, context, questions = np.unique(self.contexts, return_inverse=True, return_counts=True)
        return Grouping(context, questions)

    def per_context(self, values: Array) -> Array:
        """Return the mean per context of values per question, ``[P, Q]`` to ``[P, contexts]``."""
        grouping = self.grouped
        contexts = len(grouping.questions)
        sums = np.zeros((len(values), contexts))
        np.add.at(sums.T, grouping.context, values.T)
        return sums / grouping.questions

    def _point(self, row: int, one: Array, two: Array) -> StrategyPoint:
        arm = self.arms[row]
        f1 = self.f1[row]
        error = 0.0
        if len(f1) > 1:
            deviation = float(f1.std(ddof=1))
            error = deviation / math.sqrt(len(f1))
        return StrategyPoint(
            arm.strategy,
            arm.config,
            f1=min(1.0, float(f1.mean())),
            stage1=float(one.mean()),
            stage2=float(two.mean()),
            n=len(self.questions),
            f1_se=error,
            em=float(self.em[row].mean()),
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
        means = {name: getattr(self, name)[[row]] for name in TABLES[2:]}
        for name in ("prepare_seconds", "prepare_calls"):
            means[name] = self.per_context(means[name])
        return Usage(tokens, **{name: float(table.mean()) for name, table in means.items()})

    def select(self, rows: Sequence[int]) -> Measurements:
        """Only some configurations."""
        index = list(rows)
        tables: dict[str, Any] = {name: getattr(self, name)[index] for name in TABLES}
        tokens = {account: values[index] for account, values in self.tokens.items()}
        arms = tuple(self.arms[row] for row in index)
        return replace(self, arms=arms, tokens=tokens, **tables)
