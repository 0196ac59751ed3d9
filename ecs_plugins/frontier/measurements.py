"""What was measured, question by question: the rows behind every point of a frontier.

All strategies answer the same questions, so the rows are paired: column q of every array is
the same question. The bootstrap resamples columns, and prices can be changed afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import PriceVector, Usage
from ecs_plugins.frontier.points import ConfigValue, PointKey, StrategyPoint, config_json
from ecs_plugins.tokens import Role, Stage

Array = npt.NDArray[np.float64]
Account = tuple[Stage, Role]


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
    """P configurations on Q questions.

    Attributes:
        arms: The P configurations.
        questions: Q question ids.
        contexts: Q context ids; questions about one context share it.
        f1: Answer F1 in [0, 1], shape ``[P, Q]``.
        em: Exact match, 0 or 1, ``[P, Q]``.
        tokens: (stage, role) -> tokens, ``[P, Q]``; stage 1 is that of the question's context.
        shared_input: Prompt tokens equal for all questions about a context, ``[P, Q]``.
        prepare_seconds: Wall time of stage 1 of the question's context, ``[P, Q]``.
        query_seconds: Wall time of stage 2, ``[P, Q]``.

    Raises:
        InvalidInputError: Shapes disagree, or a value is NaN, negative or out of range.
    """

    arms: tuple[Arm, ...]
    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    f1: Array
    em: Array
    tokens: Mapping[Account, Array]
    shared_input: Array | None = None
    prepare_seconds: Array | None = None
    query_seconds: Array | None = None
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        shape = (len(self.arms), len(self.questions))
        object.__setattr__(self, "shape", shape)
        if not all(shape):
            raise InvalidInputError("measurements need at least one strategy and one question")
        if len(self.contexts) != shape[1]:
            raise InvalidInputError(
                f"{shape[1]} questions but {len(self.contexts)} context ids; give one each"
            )
        accounts = {}
        for (stage, role), values in self.tokens.items():
            accounts[(stage, role)] = _checked(f"tokens[{stage}][{role}]", values, shape)
        object.__setattr__(self, "tokens", accounts)
        for name, top in (("f1", 1.0), ("em", 1.0)):
            object.__setattr__(self, name, _checked(name, getattr(self, name), shape, top))
        for name in ("shared_input", "prepare_seconds", "query_seconds"):
            given = getattr(self, name)
            values = np.zeros(shape) if given is None else given
            object.__setattr__(self, name, _checked(name, values, shape))

    def stages(self, prices: PriceVector) -> tuple[Array, Array]:
        """Cost of stage 1 and 2 per configuration and question, each ``[P, Q]``."""
        one, two = np.zeros(self.shape), np.zeros(self.shape)
        assert self.prepare_seconds is not None
        assert self.query_seconds is not None
        assert self.shared_input is not None
        for (stage, role), tokens in self.tokens.items():
            if stage == Stage.PREPARE:
                one += prices.prepare_factor * prices.of(role) * tokens
            else:
                two += prices.of(role) * tokens
        one += prices.per_second * self.prepare_seconds + prices.cache_saving * self.shared_input
        two += prices.per_second * self.query_seconds - prices.cache_saving * self.shared_input
        return one, two

    def points(self, prices: PriceVector | None = None) -> tuple[StrategyPoint, ...]:
        """The mean of each configuration, with standard errors."""
        one, two = self.stages(prices or PriceVector())
        assert self.prepare_seconds is not None
        assert self.query_seconds is not None
        assert self.shared_input is not None
        out = []
        for row, arm in enumerate(self.arms):
            usage = Usage(
                {account: float(v[row].mean()) for account, v in self.tokens.items()},
                float(self.shared_input[row].mean()),
                float(self.prepare_seconds[row].mean()),
                float(self.query_seconds[row].mean()),
            )
            out.append(
                StrategyPoint(
                    arm.strategy,
                    arm.config,
                    f1=min(1.0, float(self.f1[row].mean())),
                    stage1=float(one[row].mean()),
                    stage2=float(two[row].mean()),
                    n=self.shape[1],
                    f1_se=_standard_error(self.f1[row]),
                    stage1_se=_standard_error(one[row]),
                    stage2_se=_standard_error(two[row]),
                    em=float(self.em[row].mean()),
                    seconds=usage.query_seconds,
                    usage=usage,
                    routable=arm.routable,
                )
            )
        return tuple(out)

    def select(self, rows: Sequence[int]) -> Measurements:
        """Only some configurations."""
        index = list(rows)

        def cut(values: Array | None) -> Array | None:
            return None if values is None else values[index]

        return Measurements(
            tuple(self.arms[i] for i in index),
            self.questions,
            self.contexts,
            self.f1[index],
            self.em[index],
            {account: values[index] for account, values in self.tokens.items()},
            cut(self.shared_input),
            cut(self.prepare_seconds),
            cut(self.query_seconds),
        )


def _checked(name: str, values: Array, shape: tuple[int, int], top: float = math.inf) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise InvalidInputError(
            f"{name} has shape {array.shape}, expected {shape} (configurations, questions)"
        )
    if not (np.isfinite(array).all() and (array >= 0).all() and (array <= top).all()):
        limit = "finite and not negative" if math.isinf(top) else f"in [0, {top:g}]"
        raise InvalidInputError(f"every value of {name} must be {limit}")
    array = array.copy()
    array.setflags(write=False)
    return array


def _standard_error(values: Array) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
