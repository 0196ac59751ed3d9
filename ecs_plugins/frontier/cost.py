"""What a strategy costs and what it is worth: Eq. 1 and 2 of The Efficiency Frontier.

``EffectiveTokens = T_stage2 + T_stage1 / N`` (Eq. 1) and
``EfficiencyScore(w) = w * F1 - (1 - w) * ln(EffectiveTokens)`` (Eq. 2), natural logarithm.
Two strategies score alike where ``w / (1 - w) = ln(T_a / T_b) / (F1_a - F1_b)``, a closed form.

Any positive cost can take the place of tokens. `PriceVector` turns counted tokens and seconds
into money, seconds or joules and keeps the form of Eq. 1: a provider's prompt cache, which the
paper leaves out, only moves cost from stage 2 to stage 1. A measured point holds the cost and the
quality of one configuration.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from ecs_plugins.common.config import Config
from ecs_plugins.common.files import read_text
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.tokens import Account, Role, Stage, flat, nested

_MILLION = 1_000_000
_PER_TOKEN = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
}
"""Prices of a model, and their names in LiteLLM's map."""


def check_reuse(reuse: float) -> float:
    """Return N, or refuse it below 1 or NaN; ``math.inf`` stands for stage 1 being free."""
    if not reuse >= 1:
        raise InvalidInputError(
            f"reuse N must be at least 1 (this query counts), got {reuse!r}; "
            "pass the number of queries that will share one prepared context"
        )
    return float(bounded(reuse))


def bounded(value: float) -> float:
    """A number that a float can hold; whole numbers beyond that are infinite."""
    try:
        float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return value


def check_weight(weight: float) -> float:
    """Return w, or refuse it outside [0, 1]."""
    if not 0 <= weight <= 1:
        raise InvalidInputError(
            f"the performance weight w must lie in [0, 1], got {weight!r}; "
            "0 looks at cost alone, 1 at quality alone"
        )
    return float(weight)


def efficiency_score(f1: float, cost: float, weight: float) -> float:
    """``w * F1 - (1 - w) * ln(cost)`` (Eq. 2)."""
    return weight * f1 - (1 - weight) * math.log(cost)


def exchange_rate(weight: float, gain: float = 0.01) -> float:
    """The rise in cost that ``gain`` more F1 is worth: ``exp(w / (1 - w) * gain) - 1``.

    At w = 0.7 one point of F1 is worth 2.4 % more tokens. Infinite at w = 1.
    """
    check_weight(weight)
    if weight == 1:
        return math.inf
    exponent = weight / (1 - weight) * gain
    return math.expm1(exponent) if exponent < 700 else math.inf


def weight_crossover(f1_a: float, cost_a: float, f1_b: float, cost_b: float) -> float | None:
    """The w in [0, 1) at which a and b score alike; above it the one with the higher F1 wins.

    None where F1 is equal, or one is both better and cheaper.
    """
    odds = math.log(cost_a / cost_b) / (f1_a - f1_b) if f1_a != f1_b else -1.0
    return odds / (1 + odds) if odds >= 0 else None


@dataclass(frozen=True, slots=True)
class Usage:
    """Mean tokens and seconds of one configuration, kept apart so that prices can differ.

    They are per context in stage 1 and per query in stage 2. A provider's prompt cache can serve
    the tokens of ``shared_input``, which are the same for every question about a context.
    """

    tokens: Annotated[Mapping[Account, float], BeforeValidator(flat), PlainSerializer(nested)] = (
        field(default_factory=dict)
    )
    shared_input: float = 0.0
    prepare_seconds: float = 0.0
    query_seconds: float = 0.0


class ModelPrice(Config):
    """Price per token of one model.

    Attributes:
        input: Per prompt token.
        output: Per written token.
        cached_input: Per prompt token that a prompt cache serves; None for no cache.
        cache_write: Per prompt token that is written to the cache; None for ``input``.
        cache_write_1h: The same for an entry that lives an hour.
        cache_seconds: How long an entry lives after it was last read.
        cache_least: Shorter shared prompts are not cached.
        hit_rate: The share of queries that find the entry while it lives.
    """

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    cache_write_1h: float | None = Field(default=None, ge=0)
    cache_seconds: float = Field(default=300.0, gt=0)
    cache_least: int = Field(default=0, ge=0)
    hit_rate: float = Field(default=1.0, ge=0, le=1)

    def per_token(self) -> ModelPrice:
        """These prices, if they are per million tokens."""
        return self.replace(**{k: v / _MILLION for k, v in self if k in _PER_TOKEN and v})

    def cache_extra(self, cached: float, written: float, written_1h: float) -> float:
        """What prompt tokens cost beyond ``input`` that were read from the cache or written."""
        base, write = self.input, self.cache_write
        read = base if self.cached_input is None else self.cached_input
        short = base if write is None else write
        long = short if self.cache_write_1h is None else self.cache_write_1h
        return cached * (read - base) + written * (short - base) + written_1h * (long - base)


class PriceVector(Config):
    """What each token and second costs; by default each token of any model costs one token.

    Attributes:
        unit: What costs are called: "tokens", "USD", "s", "J".
        answer: The big model that answers.
        compressor: The model that compresses contexts; None for the answering one.
        scorer: Per token of the small scoring model.
        prepare_factor: Multiplies the compressor's prices in stage 1: 0.5 for a batch interface
            at half price.
        per_second: Per second of wall time: rent of the machine, or its power in watts.
    """

    unit: str = Field(default="tokens", min_length=1)
    answer: ModelPrice = ModelPrice(input=1.0, output=1.0)
    compressor: ModelPrice | None = None
    scorer: float = Field(default=1.0, ge=0)
    prepare_factor: float = Field(default=1.0, ge=0)
    per_second: float = Field(default=0.0, ge=0)

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], models: Mapping[str, str] | None = None
    ) -> PriceVector:
        """Read a price list: JSON with prices per million tokens, as providers quote them.

            {"unit": "USD", "answer": {"input": 0.75, "cached_input": 0.075, "output": 4.5},
             "compressor": {"input": 0.1, "output": 0.4}, "scorer": 0.0,
             "prepare_factor": 0.5, "per_second": 0.0}

        Only ``unit`` and ``answer`` are needed. The compressor costs what the answering model
        costs and the local scorer nothing, unless the list says otherwise.

        LiteLLM's public price map is read, too (``model_prices_and_context_window.json``), with
        the names in ``models["answer"]`` and ``models["compressor"]``.

        Raises:
            StorageError: The file cannot be read.
            ConfigurationError: It is no price list; says what is wrong.
        """
        try:
            listed = json.loads(read_text(path, "the price list"))
            if isinstance(listed, dict) and not {"unit", "answer"} & listed.keys():
                return cls._from_map(listed, models or {})
            quoted = cls.from_json({"unit": None, "answer": None, "scorer": 0.0, **listed})
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigurationError(f"{path} is no price list: {error}") from error
        priced: dict[str, Any] = {
            name: price and price.per_token()
            for name, price in (("answer", quoted.answer), ("compressor", quoted.compressor))
        }
        return quoted.replace(scorer=quoted.scorer / _MILLION, **priced)

    @classmethod
    def _from_map(cls, listed: Mapping[str, Any], models: Mapping[str, str]) -> PriceVector:
        prices: dict[str, Any] = {}
        for role in {"answer"} | models.keys() & {"compressor"}:
            name = models.get(role, "")
            # LiteLLM puts the provider before many names.
            found = [v for k, v in listed.items() if k == name or k.endswith(f"/{name}")]
            if not name or not found:
                raise ValueError(f"it has no price of {name!r}, the model of the role {role}")
            given = {kind: found[0].get(key) for kind, key in _PER_TOKEN.items()}
            prices[role] = ModelPrice(**{k: v for k, v in given.items() if v is not None})
        return cls(unit="USD", scorer=0.0, **prices)

    @classmethod
    def seconds(cls) -> PriceVector:
        """Cost is wall time."""
        free = ModelPrice(input=0.0, output=0.0)
        return cls(unit="s", answer=free, scorer=0.0, per_second=1.0)

    @classmethod
    def joules(cls, watts: float) -> PriceVector:
        """Cost is energy at a constant power draw."""
        return cls.seconds().replace(unit="J", per_second=watts)

    def of(self, role: Role) -> float:
        """Price of one uncached token of ``role``."""
        if role == Role.SCORER:
            return self.scorer
        answers = role in (Role.ANSWER_INPUT, Role.ANSWER_OUTPUT)
        model = self.answer if answers else self.compressor or self.answer
        return model.input if role.endswith("_input") else model.output

    @property
    def caches(self) -> bool:
        """Whether a prompt cache makes the answering model cheaper."""
        cached = self.answer.cached_input
        return cached is not None and cached < self.answer.input and self.answer.hit_rate > 0

    def stages(self, usage: Any) -> tuple[Any, Any]:
        """Cost of stage 1 and of stage 2, such that Eq. 1 holds for every N.

        Of a `Usage` in numbers; of anything with its attributes as arrays, in arrays.

        With a prompt cache, c shared tokens cost ``c * write`` once and ``c * cached`` N - 1
        times: ``c * cached`` per query in stage 2 and ``c * (write - cached)`` in stage 1. Queries
        that miss the entry write it again.
        """
        one = self.per_second * usage.prepare_seconds
        two = self.per_second * usage.query_seconds
        for (stage, role), tokens in usage.tokens.items():
            if stage == Stage.PREPARE:
                one += (1 if role == Role.SCORER else self.prepare_factor) * self.of(role) * tokens
            else:
                two += self.of(role) * tokens
        if not self.caches:
            return one, two
        shared = usage.shared_input * (usage.shared_input >= self.answer.cache_least)
        hits = self.answer.hit_rate * shared
        write, read = self.answer.cache_extra(0, 1, 0), self.answer.cache_extra(1, 0, 0)
        return one + hits * (write - read), two + hits * read + (shared - hits) * write


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
