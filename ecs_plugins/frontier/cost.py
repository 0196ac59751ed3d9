"""Cost and score of a strategy: Eq. 1 and 2 of The Efficiency Frontier.

``EffectiveTokens = T_stage2 + T_stage1 / N`` (Eq. 1) and
``EfficiencyScore(w) = w * F1 - (1 - w) * ln(EffectiveTokens)`` (Eq. 2), natural logarithm.
Two strategies score alike where ``w / (1 - w) = ln(T_a / T_b) / (F1_a - F1_b)``, a closed form.

Any positive cost can take the place of tokens; see `prices`. A measured point holds the cost and
the quality of one configuration.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from ecs_plugins.common.checks import check_kind, check_text, shown
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.prices import ModelPrice as ModelPrice
from ecs_plugins.frontier.prices import PriceVector
from ecs_plugins.tokens import Account, flat, nested

_LARGEST_EXPONENT = 700.0
_RANGES = {
    "f1": ("F1", 0.0, 1.0, "lie in [0, 1]; divide percentages by 100"),
    "stage1": ("stage 1", 0.0, sys.float_info.max, "be >= 0"),
    "stage2": ("stage 2", 5e-324, sys.float_info.max, "be positive; every query reads a prompt"),
    "n": ("the number of questions n", 1.0, 2.0**53, "be a whole number in [1, 2**53]"),
}
"""The numbers of a point: what they are called, least, most, and the rule in words."""


def check_number(name: str, value: object) -> float:
    """Return a number, or raise; whole numbers beyond a float become infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidInputError(f"{name} must be a number, got {shown(value, 60)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if abs(value) == value else -math.inf


def check_reuse(reuse: float) -> float:
    """Return N; raise if it is below 1 or NaN. With ``math.inf``, stage 1 is free."""
    value = check_number("reuse", reuse)
    if not value >= 1:
        raise InvalidInputError(
            f"reuse N must be at least 1 (this query counts), got {value!r}; "
            "pass the number of queries that will share one prepared context"
        )
    return value


def check_weight(weight: float) -> float:
    """Return w, or refuse it outside [0, 1]."""
    value = check_number("weight", weight)
    if not 0 <= value <= 1:
        raise InvalidInputError(
            f"the performance weight w must lie in [0, 1], got {value!r}; "
            "0 looks at cost alone, 1 at quality alone"
        )
    return value


def efficiency_score(f1: float, cost: float, weight: float) -> float:
    """Return the efficiency score ``w * F1 - (1 - w) * ln(cost)`` (Eq. 2)."""
    return weight * f1 - (1 - weight) * math.log(cost)


def amount(value: float, unit: str) -> str:
    """Return a cost with its unit: whole tokens, three significant digits of anything else."""
    return f"{value:,.0f} {unit}" if unit == "tokens" else f"{value:.3g} {unit}"


def exchange_rate(weight: float, gain: float = 0.01) -> float:
    """Return the rise in cost that ``gain`` more F1 is worth: ``exp(w / (1 - w) * gain) - 1``.

    At w = 0.7 one point of F1 is worth 2.4 % more tokens. Infinite at w = 1.
    """
    check_weight(weight)
    if weight == 1:
        return math.inf
    exponent = weight / (1 - weight) * gain
    if exponent >= _LARGEST_EXPONENT:
        return math.inf
    return math.expm1(exponent)


def weight_crossover(f1_a: float, cost_a: float, f1_b: float, cost_b: float) -> float | None:
    """Return the w in [0, 1) at which a and b score alike; above it the higher F1 wins.

    None if both F1 are equal, or if one point is both better and cheaper.
    """
    if f1_a == f1_b:
        return None
    # A difference of logarithms, as the ratio of two costs may be beyond a float.
    odds = (math.log(cost_a) - math.log(cost_b)) / (f1_a - f1_b)
    if odds < 0:
        return None
    return odds / (1 + odds)


@dataclass(frozen=True, slots=True)
class Usage:
    """Mean tokens, calls and seconds of one configuration, kept apart so that prices can differ.

    They are per context in stage 1 and per query in stage 2. A provider's prompt cache can serve
    the tokens of ``shared_input``, which are the same for every question about a context.
    """

    tokens: Annotated[Mapping[Account, float], BeforeValidator(flat), PlainSerializer(nested)] = (
        field(default_factory=dict)
    )
    shared_input: float = 0.0
    prepare_seconds: float = 0.0
    query_seconds: float = 0.0
    prepare_calls: float = 1.0
    query_calls: float = 1.0


ConfigValue = str | int | float | bool | None
"""Plain values of a configuration, as JSON has them."""

PointKey = tuple[str, str]
"""(strategy, configuration as canonical JSON): the name of a point in tables and ledgers."""


def config_json(config: Mapping[str, ConfigValue]) -> str:
    """Return a configuration as canonical JSON, equal for equal configurations."""
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"), allow_nan=False)


def label_of(strategy: str, config: Mapping[str, ConfigValue]) -> str:
    """Return the name of a point for people: ``strategy(key=value, ...)``."""
    if not config:
        return strategy
    inner = ", ".join(f"{name}={value}" for name, value in sorted(config.items()))
    return f"{strategy}({inner})"


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
        routable: False for upper bounds such as the oracle, which are shown and never chosen.
        usage: Tokens per stage and role, needed to price the point.
        key: Strategy and configuration, the name of the point in tables and ledgers.
        label: The name of the point for people: ``strategy(key=value, ...)``.

    Raises:
        InvalidInputError: F1 outside [0, 1] or NaN, a stage that is negative, not finite, or a
            stage 2 of zero, no question measured, or a value of the wrong type.
    """

    strategy: str
    config: Mapping[str, ConfigValue]
    f1: float
    stage1: float
    stage2: float
    n: int = 1
    routable: bool = True
    usage: Usage | None = None
    key: PointKey = field(init=False, compare=False, repr=False)
    label: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_name()
        object.__setattr__(self, "key", (self.strategy, config_json(self.config)))
        object.__setattr__(self, "label", label_of(self.strategy, self.config))
        object.__setattr__(self, "config", dict(self.config))
        for name, (called, least, most, rule) in _RANGES.items():
            number = check_number(f"{self.label}: {called}", getattr(self, name))
            if not least <= number <= most or (name == "n" and number % 1):
                raise InvalidInputError(f"{self.label}: {called} must {rule}, got {number!r}")
            object.__setattr__(self, name, number)
        object.__setattr__(self, "n", int(self.n))
        check_kind(f"{self.label}: routable", self.routable, bool)
        if self.usage is not None:
            check_kind(f"{self.label}: usage", self.usage, Usage)

    def _check_name(self) -> None:
        if not isinstance(self.strategy, str) or not self.strategy:
            raise InvalidInputError(
                f"a point needs the name of its strategy, got {shown(self.strategy, 60)}"
            )
        check_text("the name of a strategy", self.strategy)
        if not isinstance(self.config, Mapping):
            raise InvalidInputError(
                f"the configuration of {self.strategy!r} must be a mapping, "
                f"got {shown(self.config, 60)}"
            )
        if any(not isinstance(name, str) for name in self.config):
            raise InvalidInputError(
                f"the configuration of {self.strategy!r} cannot be written as JSON: its names "
                "must be texts"
            )
        try:
            config_json(self.config)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(
                f"the configuration of {self.strategy!r} cannot be written as JSON: {error}"
            ) from error

    def effective(self, reuse: float, *, sunk: bool = False) -> float:
        """Return the cost per query at N = ``reuse`` (Eq. 1), in the unit of the point.

        ``sunk`` leaves out a stage 1 that is already paid.
        """
        shared_by = check_reuse(reuse)
        if sunk:
            return self.stage2
        return self.stage2 + self.stage1 / shared_by

    def priced(self, prices: PriceVector) -> StrategyPoint:
        """Return this point with its costs in another unit.

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
    """Origin of a measurement: data, models by role, time and settings."""

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
        """Return the settings on which F1 and tokens depend: models, prompt and dtype."""
        parts: dict[str, Any] = dict(self.models)
        for name in ("prompt", "dtype"):
            parts[name] = self.settings.get(name, "")
        return ", ".join(f"{name}: {value}" for name, value in sorted(parts.items()) if value)

    def require(self, *, answer_model: str) -> None:
        """Refuse another answering model than the one measured.

        Raises:
            ConfigurationError: It differs; a frontier holds for the measured model only.
        """
        measured = self.models.get("answer", "")
        if answer_model != measured:
            raise ConfigurationError(
                f"this frontier was measured with {measured!r}, not {answer_model!r}; "
                "F1 and tokens do not carry over, so calibrate again with the model in use"
            )
