"""What a router asks of a ledger, and what the ledger tells it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ecs_plugins.common.checks import check_each, check_text, is_utf8, shown
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.cost import PointKey, check_number
from ecs_plugins.frontier.forecast import ReuseModel


class Preparation(NamedTuple):
    """A stage 1 that was paid: what it cost, and how many seconds ago it was last used."""

    cost: float
    age: float


class Count(NamedTuple):
    """How often a context was asked.

    Attributes:
        queries: In all.
        run: Since a gap let an entry of a prompt cache lapse.
        lapses: How many such gaps there were.
        preparations: What is prepared for it.
    """

    queries: int
    run: int
    lapses: int
    preparations: Mapping[PointKey, Preparation]


class Booking(NamedTuple):
    """What one query of a point cost, and what always the same strategy would have cost.

    Attributes:
        key: Of the point.
        unit: What costs are counted in.
        cost: Of both stages.
        baseline: Of always the full context.
        name: The strategy under which it is booked, where that is not the point's.
    """

    key: PointKey
    unit: str
    cost: float
    baseline: float
    name: str = ""

    def as_shadow(self) -> Booking:
        """The same for a query that was answered beside what was chosen: nothing was saved."""
        strategy, _ = self.key
        return self._replace(baseline=0.0, name=f"{strategy} (shadow)")


class Observed(NamedTuple):
    """Values of a point: how many, their mean, and the error of the mean."""

    n: int
    mean: float
    error: float

    def sums(self) -> tuple[int, float, float]:
        """How many, and the sums of the values and of their squares."""
        square = self.mean * self.mean + self.n * self.error * self.error
        return self.n, self.n * self.mean, self.n * square


class DaySpend(NamedTuple):
    """What the queries of a day cost with one point; the day is counted from 1970, in UTC."""

    day: int
    namespace: tuple[str, ...]
    key: PointKey
    unit: str
    queries: int
    cost: float
    baseline: float


@runtime_checkable
class Ledger(Protocol):  # pragma: no mutate block
    """What a router asks of a ledger: what `ReuseLedger` says of each of these, in any store."""

    @property
    def unfitted(self) -> int:
        """Contexts first seen since the model was fitted."""

    def count_query(
        self, context: str, *, game: str = "", life: float | None = None, add: bool = True
    ) -> Count:
        """Count a query, and return how often the context was asked and what is prepared."""

    def finished_runs(self, context: str, game: str = "") -> Mapping[int, int]:
        """How often a run of so many queries has ended."""

    def mark_prepared(self, context: str, key: PointKey, cost: float = 0.0) -> None:
        """Note what is prepared."""

    def begin_preparation(self, context: str, key: PointKey, seconds: float) -> bool:
        """Whether nobody else prepares it now."""

    def end_preparation(self, context: str, key: PointKey) -> None:
        """Let the next prepare it, if this one said that it does."""

    def observe(self, key: PointKey, kind: str, value: float) -> None:
        """Add to what was observed."""

    def observed(self, kind: str) -> dict[PointKey, Observed]:
        """What was observed of each point."""

    def forget_observed(self, kind: str, taken: Mapping[PointKey, Observed]) -> None:
        """Forget these of the values, and keep those that came since."""

    def book(
        self,
        context: str,
        prepared: Mapping[PointKey, float],
        ratio: float | None,
        spent: Booking | None,
    ) -> None:
        """Note at once what a query prepared, how its cost was off, and what it spent."""

    def spent_today(self, unit: str) -> float:
        """What the queries of today cost so far."""

    def latest_model(self, life: float | None = None) -> ReuseModel:
        """The forecast."""


def stored_id(context: str) -> str:
    """An id as every database can keep it.

    Lone surrogates and NUL have no place in UTF-8 or PostgreSQL: such an id is kept as its hash.
    """
    if not isinstance(context, str) or not context:
        raise InvalidInputError(f"a context needs an id, a text, got {shown(context, 60)}")
    if "\0" not in context and (context.isascii() or is_utf8(context)):
        return context
    return hashlib.sha256(context.encode("utf-8", "surrogatepass")).hexdigest()


def stored_key(key: PointKey) -> PointKey:
    """The key of a point, as every database can keep it."""
    parts = check_each("the key of a point", key, str)
    if len(parts) != 2:
        raise InvalidInputError("the key of a point is its strategy and its configuration as JSON")
    strategy, config = parts
    return check_text("strategy", strategy), check_text("config", config)


def check_finite(name: str, value: float) -> float:
    """A number that is neither infinite nor none."""
    number = check_number(name, value)
    if not math.isfinite(number):
        raise InvalidInputError(f"{name} must be finite, got {number!r}")
    return number


def check_settings(namespace: object, idle_seconds: float, expire_seconds: float) -> None:
    """Refuse the settings of a ledger that cannot be.

    Raises:
        ConfigurationError: A time is none, or out of range, or the namespace is no tuple of names.
    """
    if not isinstance(namespace, tuple) or any(not isinstance(name, str) for name in namespace):
        raise ConfigurationError(f"a namespace is a tuple of names, got {shown(namespace, 60)}")
    times = {"idle_seconds": idle_seconds, "expire_seconds": expire_seconds}
    for name, value in times.items():
        try:
            times[name] = check_finite(name, value)
        except InvalidInputError as error:
            raise ConfigurationError(str(error)) from None
    idle, expire = times.values()
    if idle <= 0:
        raise ConfigurationError(f"idle_seconds must be positive, got {idle}")
    if expire < idle:
        raise ConfigurationError(
            f"expire_seconds ({expire}) must not be below idle_seconds ({idle})"
        )


def observed_of(n: int, mean: float, square: float) -> Observed:
    """What was observed, from the means of the values and of their squares."""
    variance = max(0.0, square - mean * mean)
    return Observed(n, mean, math.sqrt(variance / n))


def day_spend(row: tuple[Any, ...]) -> DaySpend:
    """A row of the table of what was spent."""
    namespace, day, strategy, config, unit, queries, cost, baseline = row
    tenant = tuple(json.loads(namespace))
    return DaySpend(day, tenant, (strategy, config), unit, queries, cost, baseline)
