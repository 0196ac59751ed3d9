"""The protocol between a router and a ledger, and the records that they exchange."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ecs_plugins.common.checks import check_each, check_text, is_utf8, shown
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.cost import PointKey, check_number


class Preparation(NamedTuple):
    """A stage 1 that was paid.

    Attributes:
        cost: Of the preparation.
        age: Seconds since it was last used.
        life: Seconds that its entry of a prompt cache lives; 0 where nobody said.
    """

    cost: float
    age: float
    life: float = 0.0


class Count(NamedTuple):
    """Queries of a context, this one included.

    Attributes:
        queries: In all.
        run: Since a gap let an entry of a prompt cache lapse.
        preparations: Of the context, by point.
        usual: Geometric mean of the queries of all contexts so far, recent ones first.
        usual_run: The same of runs.
    """

    queries: int
    run: int
    preparations: Mapping[PointKey, Preparation]
    usual: float = 1.0
    usual_run: float = 1.0


class Lease(StrEnum):
    """Outcome of asking for the lease of a preparation."""

    NEW = "new"
    """Nobody else prepares it, and now this process does."""
    OWN = "own"
    """This process prepares it already."""
    TAKEN = "taken"
    """Another process prepares it."""


class Booking(NamedTuple):
    """The cost of one query under one point.

    Attributes:
        key: Of the point.
        unit: Of the costs.
        cost: Of both stages; None where nobody reported the tokens.
        baseline: Cost of the same query with the whole context; None where it is unknown.
        queries: 0 for a part of a query that another booking counts.
    """

    key: PointKey
    unit: str
    cost: float | None
    baseline: float | None
    queries: int = 1


class DaySpend(NamedTuple):
    """Sums of the bookings of one day and point; the day is counted from 1970, in UTC.

    Attributes:
        queries: All of them.
        unknown: Those whose tokens nobody reported; they are in no sum.
        cost: Of the others.
        compared: Cost of those that have a baseline.
        baseline: Of those.
    """

    day: int
    namespace: tuple[str, ...]
    key: PointKey
    unit: str
    queries: int
    unknown: int
    cost: float
    compared: float
    baseline: float


@runtime_checkable
class Ledger(Protocol):  # pragma: no mutate block
    """The methods of `ReuseLedger` that a router calls, for a store of your own."""

    def within(self, namespace: tuple[str, ...]) -> Ledger:
        """Return the ledger of a tenant."""

    def count_query(
        self, context: str, *, game: str = "", life: float | None = None, add: bool = True
    ) -> Count:
        """Count a query, and return the count with the preparations of its context."""

    def mark_prepared(
        self, context: str, key: PointKey, cost: float = 0.0, life: float = 0.0
    ) -> None:
        """Note a preparation."""

    def begin_preparation(self, context: str, key: PointKey, seconds: float) -> Lease:
        """Lease a preparation for some seconds."""

    def end_preparation(self, context: str, key: PointKey) -> None:
        """Give the lease back."""

    def book(
        self, context: str, prepared: Mapping[PointKey, Preparation], spent: Iterable[Booking]
    ) -> None:
        """Note the preparations and costs of a query, all or none."""


def stored_id(context: str) -> str:
    """Return an id as every database can keep it.

    Lone surrogates and NUL have no place in UTF-8 or PostgreSQL: such an id is kept as its hash.
    """
    if not isinstance(context, str) or not context:
        raise InvalidInputError(f"a context needs an id, a text, got {shown(context, 60)}")
    if "\0" not in context and (context.isascii() or is_utf8(context)):
        return context
    return hashlib.sha256(context.encode("utf-8", "surrogatepass")).hexdigest()


def stored_key(key: PointKey) -> PointKey:
    """Return the key of a point as every database can keep it."""
    parts = check_each("the key of a point", key, str)
    if len(parts) != 2:
        raise InvalidInputError("the key of a point is its strategy and its configuration as JSON")
    strategy, config = parts
    return check_text("strategy", strategy), check_text("config", config)


def check_finite(name: str, value: float) -> float:
    """Return a finite number, or refuse it."""
    number = check_number(name, value)
    if not math.isfinite(number):
        raise InvalidInputError(f"{name} must be finite, got {number!r}")
    return number


def check_namespace(namespace: object) -> tuple[str, ...]:
    """Return a namespace, a tuple of names, or refuse it."""
    given = tuple(namespace) if isinstance(namespace, list) else namespace
    if not isinstance(given, tuple) or any(not isinstance(name, str) for name in given):
        raise ConfigurationError(f"a namespace is a tuple of names, got {shown(namespace, 60)}")
    return given


def day_spend(row: tuple[Any, ...]) -> DaySpend:
    """Return a row of the table of costs."""
    namespace, day, strategy, config, *rest = row
    tenant = tuple(json.loads(namespace))
    return DaySpend(day, tenant, (strategy, config), *rest)
