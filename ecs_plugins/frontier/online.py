"""Rent or buy: whether to prepare a context when nobody knows how often it will be asked.

Two strategies of equal quality: renting costs more per query, buying costs a stage 1 once. With
``d`` the difference per query and ``B`` that of stage 1, this is ski rental with ``B / d`` days
to break even. Never paying more than twice what an all-knowing router would have paid is
possible without knowing anything (buy when rent has reached the price; Karlin et al. 1988), and
a random threshold brings the expectation down to e / (e - 1) = 1.582 (Karlin et al. 1990). A
forecast helps when it is right and must not hurt much when it is wrong (Purohit, Svitkina and
Kumar 2018): at trust t it costs at most 1 + 1 / t times the optimum, and 1 + t if it was right.

What both strategies pay alike is left out of these bounds; counting it only lowers the ratio.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.forecast import ReuseForecast
from ecs_plugins.frontier.points import PointKey, StrategyPoint


class OnlinePolicy(StrEnum):
    """How to decide without knowing N."""

    DETERMINISTIC = "deterministic"
    """At most 2 times the optimum, always."""
    RANDOMISED = "randomised"
    """At most e / (e - 1) times the optimum in expectation."""
    FORECAST = "forecast"
    """Follows the forecast as far as it is trusted."""


@dataclass(frozen=True, slots=True)
class RentOrBuy:
    """The choice between a strategy that rents and one that buys, for one context.

    Attributes:
        rent_extra: What renting costs more per query; > 0.
        price: What buying costs once; >= 0.

    Raises:
        InvalidInputError: There is nothing to decide: a value is negative, zero rent or NaN.
    """

    rent_extra: float
    price: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rent_extra) and self.rent_extra > 0):
            raise InvalidInputError(
                f"renting must cost more per query than buying, got {self.rent_extra!r} more"
            )
        if not (math.isfinite(self.price) and self.price >= 0):
            raise InvalidInputError(f"the price must be >= 0, got {self.price!r}")

    @property
    def break_even(self) -> float:
        """The number of queries for which both cost the same."""
        return self.price / self.rent_extra

    def rentals(
        self,
        policy: OnlinePolicy = OnlinePolicy.DETERMINISTIC,
        *,
        draw: float = 0.5,
        forecast: float | None = None,
        trust: float = 0.5,
    ) -> int:
        """How many queries to rent for before buying.

        Args:
            policy: How to decide.
            draw: For `RANDOMISED`: uniform in [0, 1), drawn once per context and kept.
            forecast: For `FORECAST`: expected queries in total.
            trust: For `FORECAST`: in (0, 1]; the smaller, the more the forecast decides.

        Raises:
            ConfigurationError: ``draw`` or ``trust`` is out of range, or no forecast is given.
        """
        if policy == OnlinePolicy.DETERMINISTIC:
            # Buying at query k means k - 1 rentals; k - 1 <= B / d < k keeps the ratio at 2.
            return max(0, math.ceil(self.break_even) - 1)
        if policy == OnlinePolicy.RANDOMISED:
            if not 0 <= draw < 1:
                raise ConfigurationError(f"draw must lie in [0, 1), got {draw!r}")
            # Density e^z / (e - 1) on [0, 1], by inverting its distribution function.
            return math.floor(math.log1p(draw * (math.e - 1)) * self.break_even)
        if forecast is None:
            raise ConfigurationError('the policy "forecast" needs a forecast')
        if not 0 < trust <= 1:
            raise ConfigurationError(f"trust must lie in (0, 1], got {trust!r}")
        factor = trust if forecast >= self.break_even else 1 / trust
        return max(0, math.ceil(factor * self.break_even) - 1)

    def cost(self, queries: int, rentals: int) -> float:
        """What ``queries`` queries cost beyond the shared part if bought after ``rentals``."""
        if queries <= rentals:
            return queries * self.rent_extra
        return rentals * self.rent_extra + self.price

    def optimum(self, queries: int) -> float:
        """What an all-knowing router would have paid."""
        return min(queries * self.rent_extra, self.price)


@dataclass(frozen=True, slots=True)
class OnlineDecision:
    """What to do with this query when N is unknown.

    Attributes:
        point: The strategy to use now.
        buy: Whether that is the one whose stage 1 pays off with reuse.
        rent: The alternative without it.
        owned: The alternative with it.
        seen: Queries to this context, this one included.
        rentals: For how many queries to rent.
        reason: In one sentence.
    """

    point: StrategyPoint
    buy: bool
    rent: StrategyPoint
    owned: StrategyPoint
    seen: int
    rentals: int
    reason: str


def decide_online(
    frontier: EfficiencyFrontier,
    target_f1: float,
    seen: int,
    *,
    context_id: str = "",
    prepared: Iterable[PointKey] = (),
    policy: OnlinePolicy = OnlinePolicy.DETERMINISTIC,
    forecast: ReuseForecast | None = None,
    trust: float = 0.5,
    seed: int = 42,
) -> OnlineDecision:
    """Rent or buy at equal quality, both reaching ``target_f1``.

    Rent is the cheapest for a single query, buy the cheapest without end of reuse.

    Args:
        frontier: What was measured.
        target_f1: What both must reach.
        seen: Queries to this context so far, this one included; >= 1.
        context_id: Fixes the random threshold of a context, with ``seed``.
        prepared: Keys of points whose stage 1 is already paid for this context.
        policy: How to decide.
        forecast: What the ledger expects, for `OnlinePolicy.FORECAST`.
        trust: See `RentOrBuy.rentals`.
        seed: Of the random thresholds.

    Raises:
        InvalidInputError: ``seen`` < 1.
        UnreachableTargetError: Nothing reaches the target.
    """
    if seen < 1:
        raise InvalidInputError(f"seen counts this query and must be at least 1, got {seen}")
    ready = frozenset(prepared)
    rent = frontier.cheapest(target_f1, 1, prepared=ready).point
    owned = frontier.cheapest(target_f1, math.inf, prepared=ready).point
    rent_cost, rent_now = rent.stage2, 0.0 if rent.key in ready else rent.stage1
    buy_now = 0.0 if owned.key in ready else owned.stage1
    extra, price = rent_cost - owned.stage2, buy_now - rent_now
    if extra <= 0 or price <= 0:
        reason = f"{owned.label} is the cheapest from this query on, however many follow"
        return OnlineDecision(owned, True, rent, owned, seen, 0, reason)
    choice = RentOrBuy(extra, price)
    rentals = choice.rentals(
        policy,
        draw=_draw(context_id, seed),
        forecast=None if forecast is None else forecast.seen + forecast.remaining,
        trust=trust,
    )
    buy = seen > rentals
    what = "prepare the context now" if buy else f"rent for {rentals - seen + 1} queries yet"
    reason = (
        f"query {seen} of this context: {what}. Preparing for {owned.label} costs {price:.4g} "
        f"{frontier.unit}, {rent.label} costs {extra:.4g} more per query, so they break even "
        f"after {choice.break_even:.1f} queries ({policy} policy)"
    )
    return OnlineDecision(owned if buy else rent, buy, rent, owned, seen, rentals, reason)


def _draw(context_id: str, seed: int) -> float:
    """Uniform in [0, 1), fixed per context, so that every worker draws the same."""
    digest = hashlib.sha256(f"{seed}:{context_id}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
