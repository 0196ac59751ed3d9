"""What a strategy costs and what it is worth: Eq. 1 and 2 of The Efficiency Frontier.

``EffectiveTokens = T_stage2 + T_stage1 / N`` (Eq. 1) and
``EfficiencyScore(w) = w * F1 - (1 - w) * ln(EffectiveTokens)`` (Eq. 2), natural logarithm.
Two strategies score alike where ``w / (1 - w) = ln(T_a / T_b) / (F1_a - F1_b)``; solved for N
instead, ``N* = (T1_a - r T1_b) / (r T2_b - T2_a)`` with ``r = exp(w / (1 - w) (F1_a - F1_b))``.
So both crossovers are closed forms, and nothing here needs a grid.

Any positive cost can take the place of tokens. `PriceVector` turns counted tokens and seconds
into money, seconds or joules and keeps the form of Eq. 1: a provider's prompt cache, which the
paper leaves out, charges a context that every question shares in full once and at the cached
price N - 1 times, and so only moves cost from stage 2 to stage 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.tokens import Role, Stage

_MILLION = 1_000_000


def check_reuse(reuse: float) -> float:
    """Return ``reuse`` if it is a valid N; ``math.inf`` stands for stage 1 being free.

    Raises:
        InvalidInputError: N is NaN or below 1.
    """
    if not reuse >= 1:
        raise InvalidInputError(
            f"reuse N must be at least 1 (this query counts), got {reuse!r}; "
            "pass the number of queries that will share one prepared context"
        )
    return float(reuse)


def check_weight(weight: float) -> float:
    """Return ``weight`` if it lies in [0, 1].

    Raises:
        InvalidInputError: It does not.
    """
    if not 0 <= weight <= 1:
        raise InvalidInputError(
            f"the performance weight w must lie in [0, 1], got {weight!r}; "
            "0 looks at cost alone, 1 at quality alone"
        )
    return float(weight)


def effective_tokens(stage1: float, stage2: float, reuse: float) -> float:
    """Tokens per query when ``reuse`` queries share stage 1 (Eq. 1).

    Args:
        stage1: Tokens to prepare the context, paid once; >= 0.
        stage2: Tokens of every query; > 0.
        reuse: N, >= 1; need not be whole, as it may be an expectation.

    Raises:
        InvalidInputError: N < 1, or tokens that are negative, zero in sum, or not finite.
    """
    check_reuse(reuse)
    if not (math.isfinite(stage1) and math.isfinite(stage2) and stage1 >= 0 and stage2 >= 0):
        raise InvalidInputError(
            f"stage 1 and stage 2 must be finite and not negative, got {stage1!r} and {stage2!r}"
        )
    total = stage2 + stage1 / reuse
    if total <= 0:
        raise InvalidInputError(
            "a strategy that costs nothing has no efficiency score (ln 0); "
            "count the tokens of the prompt and of the answer"
        )
    return total


def efficiency_score(f1: float, effective: float, weight: float) -> float:
    """``w * F1 - (1 - w) * ln(effective)`` (Eq. 2).

    Args:
        f1: Quality in [0, 1].
        effective: `effective_tokens`, or another cost; > 0.
        weight: w in [0, 1].

    Raises:
        InvalidInputError: An argument is out of range.
    """
    check_weight(weight)
    if not 0 <= f1 <= 1:
        raise InvalidInputError(f"F1 must lie in [0, 1], got {f1!r}; divide percentages by 100")
    if not (effective > 0 and math.isfinite(effective)):
        raise InvalidInputError(f"the cost must be positive and finite, got {effective!r}")
    return weight * f1 - (1 - weight) * math.log(effective)


def exchange_rate(weight: float, gain: float = 0.01) -> float:
    """What w means: the relative rise in cost that ``gain`` more F1 is worth at most.

    ``exp(w / (1 - w) * gain) - 1``; at w = 0.7 one point of F1 is worth 2.4 % more tokens and
    ten points 26 %. Infinite at w = 1.
    """
    check_weight(weight)
    if weight == 1:
        return math.inf
    exponent = weight / (1 - weight) * gain
    return math.expm1(exponent) if exponent < 700 else math.inf


def weight_crossover(f1_a: float, cost_a: float, f1_b: float, cost_b: float) -> float | None:
    """The w at which a and b score alike; above it the one with the higher F1 wins.

    Returns:
        w in [0, 1), or None when no w makes them equal: equal F1, or one is both better and
        cheaper.
    """
    if f1_a == f1_b:
        return None
    odds = math.log(cost_a / cost_b) / (f1_a - f1_b)
    if odds < 0:
        return None
    return odds / (1 + odds)


def reuse_crossover(
    a: tuple[float, float, float], b: tuple[float, float, float], weight: float | None = None
) -> float | None:
    """The N at which a and b are equally good.

    Args:
        a: ``(f1, stage1, stage2)``.
        b: The same of the other.
        weight: w at which their scores are compared; None compares their costs alone, as for
            two strategies that both reach a target.

    Returns:
        N* >= 1, or None when the same one wins for every N >= 1.
    """
    (f1_a, one_a, two_a), (f1_b, one_b, two_b) = a, b
    gap = 0.0
    if weight is not None:
        if check_weight(weight) == 1:
            return None
        gap = weight / (1 - weight) * (f1_a - f1_b)
    # r = exp(gap), written so that nothing overflows: only the smaller side is scaled.
    scale_a, scale_b = math.exp(-max(gap, 0.0)), math.exp(min(gap, 0.0))
    numerator = scale_a * one_a - scale_b * one_b
    denominator = scale_b * two_b - scale_a * two_a
    if denominator == 0:
        return None
    crossing = numerator / denominator
    return crossing if crossing >= 1 else None


@dataclass(frozen=True, slots=True)
class Usage:
    """Mean tokens and seconds of one configuration, kept apart so that prices can differ.

    Attributes:
        tokens: (stage, role) -> tokens per context (stage 1) or per query (stage 2).
        shared_input: Of the answering model's prompt, the tokens that are the same for every
            question about a context, which a provider's prompt cache can serve.
        prepare_seconds: Wall time of stage 1 per context.
        query_seconds: Wall time of stage 2 per query.
    """

    tokens: Mapping[tuple[Stage, Role], float] = field(default_factory=dict)
    shared_input: float = 0.0
    prepare_seconds: float = 0.0
    query_seconds: float = 0.0

    def stage(self, stage: Stage) -> float:
        """All tokens of one stage."""
        return sum(count for (of_stage, _), count in self.tokens.items() if of_stage == stage)


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Price per token of one model.

    Attributes:
        input: Per prompt token.
        output: Per written token.
        cached_input: Per prompt token that a prompt cache serves; None for no cache.
    """

    input: float = 1.0
    output: float = 1.0
    cached_input: float | None = None

    def __post_init__(self) -> None:
        cached = 0.0 if self.cached_input is None else self.cached_input
        for name, price in (("input", self.input), ("output", self.output), ("cached", cached)):
            if not (math.isfinite(price) and price >= 0):
                raise ConfigurationError(f"the {name} price must be >= 0, got {price!r}")

    @classmethod
    def per_million(
        cls, input: float, output: float, cached_input: float | None = None
    ) -> ModelPrice:
        """From prices per million tokens, as providers quote them."""
        cached = None if cached_input is None else cached_input / _MILLION
        return cls(input / _MILLION, output / _MILLION, cached)


@dataclass(frozen=True, slots=True)
class PriceVector:
    """What each token and second costs; by default each token of any model costs one token.

    Attributes:
        unit: What costs are called: "tokens", "USD", "s", "J".
        answer: The big model that answers.
        compressor: The model that compresses contexts; None for the answering one.
        scorer: Per token of the small scoring model.
        prepare_factor: Multiplies stage-1 token prices: 0.5 for a batch interface at half price.
        per_second: Per second of wall time: rent of the machine, or its power in watts.
    """

    unit: str = "tokens"
    answer: ModelPrice = ModelPrice()
    compressor: ModelPrice | None = None
    scorer: float = 1.0
    prepare_factor: float = 1.0
    per_second: float = 0.0

    def __post_init__(self) -> None:
        for name in ("scorer", "prepare_factor", "per_second"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigurationError(f"PriceVector.{name} must be >= 0, got {value!r}")
        if not self.unit:
            raise ConfigurationError("PriceVector.unit must name what is counted")

    @classmethod
    def seconds(cls) -> PriceVector:
        """Cost is wall time."""
        return cls("s", ModelPrice(0.0, 0.0), scorer=0.0, per_second=1.0)

    @classmethod
    def joules(cls, watts: float) -> PriceVector:
        """Cost is energy at a constant power draw."""
        return cls("J", ModelPrice(0.0, 0.0), scorer=0.0, per_second=watts)

    def of(self, role: Role) -> float:
        """Price of one uncached token of ``role``."""
        compressor = self.compressor or self.answer
        prices = {
            Role.SCORER: self.scorer,
            Role.ANSWER_INPUT: self.answer.input,
            Role.ANSWER_OUTPUT: self.answer.output,
            Role.COMPRESS_INPUT: compressor.input,
            Role.COMPRESS_OUTPUT: compressor.output,
        }
        return prices[role]

    @property
    def cache_saving(self) -> float:
        """What a cached prompt token of the answering model costs less than an uncached one."""
        cached = self.answer.cached_input
        return 0.0 if cached is None else self.answer.input - cached

    def stages(self, usage: Usage) -> tuple[float, float]:
        """Cost of stage 1 and of stage 2, such that Eq. 1 holds for every N.

        With a prompt cache, c shared tokens cost ``c * input`` once and ``c * cached`` N - 1
        times: ``c * cached`` per query in stage 2 and ``c * (input - cached)`` in stage 1.
        """
        one = self.per_second * usage.prepare_seconds
        two = self.per_second * usage.query_seconds
        for (stage, role), tokens in usage.tokens.items():
            if stage == Stage.PREPARE:
                one += self.prepare_factor * self.of(role) * tokens
            else:
                two += self.of(role) * tokens
        moved = self.cache_saving * usage.shared_input
        return one + moved, two - moved
