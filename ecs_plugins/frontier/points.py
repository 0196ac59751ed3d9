"""Measured operating points: quality and cost of a strategy, and where the figures come from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.cost import PriceVector, Usage, check_reuse

ConfigValue = str | int | float | bool | None
"""What a configuration may hold: what JSON can say in one word."""

PointKey = tuple[str, str]
"""(strategy, configuration as canonical JSON): what a point is called in tables and ledgers."""


def config_json(config: Mapping[str, ConfigValue]) -> str:
    """A configuration as canonical JSON, equal for equal configurations."""
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class StrategyPoint:
    """A strategy and configuration with its mean quality and cost.

    Attributes:
        strategy: For example ``"bm25"``.
        config: For example ``{"depth": 5}``.
        f1: Mean answer F1 in [0, 1].
        stage1: Mean cost of preparing a context, >= 0.
        stage2: Mean cost of a query, > 0.
        n: Questions measured.
        f1_se: Standard error of ``f1``, 0.0 when not known.
        em: Mean exact match, where measured.
        routable: False for upper bounds such as the oracle, which are shown and never chosen.
        usage: Tokens per stage and role, needed to price the point.

    Raises:
        InvalidInputError: F1 outside [0, 1] or NaN, a stage that is negative, not finite, or a
            stage 2 of zero, or no question measured.
    """

    strategy: str
    config: Mapping[str, ConfigValue]
    f1: float
    stage1: float
    stage2: float
    n: int = 1
    f1_se: float = 0.0
    em: float | None = None
    routable: bool = True
    usage: Usage | None = None
    key: PointKey = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.strategy:
            raise InvalidInputError("a point needs the name of its strategy")
        try:
            key = (self.strategy, config_json(self.config))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the configuration of {self.strategy!r} cannot be written as JSON: {error}"
            ) from error
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "config", dict(self.config))
        wrong = {
            f"F1 must lie in [0, 1], got {self.f1!r}; divide percentages by 100": (
                not 0 <= self.f1 <= 1
            ),
            f"stage 1 must be >= 0, got {self.stage1!r}": not 0 <= self.stage1 < math.inf,
            f"stage 2 must be positive, got {self.stage2!r}; every query reads a prompt, so "
            "count its tokens": not 0 < self.stage2 < math.inf,
            "the number of questions n must lie in [1, 2**53]": not 1 <= self.n <= 2**53,
        }
        for reason in (text for text, holds in wrong.items() if holds):
            raise InvalidInputError(f"{self.label}: {reason}")

    @property
    def label(self) -> str:
        """``strategy(key=value, ...)``."""
        inner = ", ".join(f"{name}={value}" for name, value in sorted(self.config.items()))
        return f"{self.strategy}({inner})" if inner else self.strategy

    def effective(self, reuse: float, *, sunk: bool = False) -> float:
        """Cost per query at N = ``reuse`` (Eq. 1); ``sunk`` leaves a stage 1 already paid out."""
        shared_by = check_reuse(reuse)
        return self.stage2 if sunk else self.stage2 + self.stage1 / shared_by

    def priced(self, prices: PriceVector) -> StrategyPoint:
        """This point in another unit.

        Raises:
            InvalidInputError: The point has no `usage` to price.
        """
        if self.usage is None:
            raise InvalidInputError(
                f"{self.label} has no token usage per model role, so it cannot be priced in "
                f"{prices.unit}; calibrate it, or give StrategyPoint(usage=...)"
            )
        stage1, stage2 = prices.stages(self.usage)
        return replace(self, stage1=stage1, stage2=stage2)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A configuration that calibration gave up after ``questions`` questions, and why."""

    strategy: str
    config: Mapping[str, ConfigValue]
    questions: int
    reason: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """What was measured, with which models by role, when; settings are what else shapes it."""

    models: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    data_hash: str = ""
    questions: int = 0
    created: str = ""
    package_version: str = ""
    seed: int = 42
    settings: Mapping[str, ConfigValue] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """What F1 and tokens depend on beside the data: models, prompt and dtype."""
        parts = {**self.models, **{k: str(self.settings.get(k, "")) for k in ("prompt", "dtype")}}
        return ", ".join(f"{name}: {value}" for name, value in sorted(parts.items()) if value)

    def require(self, *, answer_model: str) -> None:
        """Refuse another answering model than the one measured.

        Raises:
            ConfigurationError: It differs; a frontier holds for what it was measured on.
        """
        measured = self.models.get("answer", "")
        if answer_model != measured:
            raise ConfigurationError(
                f"this frontier was measured with {measured!r}, not {answer_model!r}; "
                "F1 and tokens do not carry over, so calibrate again with the model in use"
            )
