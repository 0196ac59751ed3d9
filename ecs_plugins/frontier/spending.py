"""What routing has spent and saved: caps per tenant and day, and a page of what a ledger holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.common.files import write_atomically
from ecs_plugins.common.rendering import rendered
from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.frontier.decision import amount
from ecs_plugins.frontier.ledger import DaySpend, Ledger
from ecs_plugins.frontier.reuse import ReuseLedger

COLUMNS = ("day", "tenant", "strategy", "queries", "spent", "full context", "saved")


class SpendCap(Config):
    """How much the queries of a tenant may cost in a day (UTC), and what happens then.

    Attributes:
        per_day: In the unit of the frontier, for each namespace of a ledger.
        then: ``"cheapest"`` answers with what costs the least, whatever was asked for;
            ``"refuse"`` raises `SpendCapError`.
    """

    per_day: float = Field(gt=0)
    then: Literal["cheapest", "refuse"] = "cheapest"


class SpendCapError(EcsPluginsError):
    """The queries of a tenant have cost what they may cost in a day."""


def is_capped(cap: SpendCap | None, ledger: Ledger, unit: str) -> bool:
    """Whether the cap of the day is reached.

    Raises:
        SpendCapError: It is, and says to refuse.
    """
    if cap is None:
        return False
    spent = ledger.spent_today(unit)
    if spent < cap.per_day:
        return False
    if cap.then == "refuse":
        raise SpendCapError(
            f"today's queries have cost {amount(spent, unit)} of {amount(cap.per_day, unit)}; "
            "ask again tomorrow (UTC), or raise SpendCap(per_day=...)"
        )
    return True


@dataclass(frozen=True, slots=True)
class Saving:
    """What the queries of one day, tenant and strategy cost, and always full context would have."""

    day: str
    tenant: str
    strategy: str
    queries: int
    cost: float
    baseline: float
    unit: str

    @property
    def saved(self) -> float:
        """The share of the cost of always full context that was not spent."""
        return 1 - self.cost / self.baseline if self.baseline else 0.0

    def cells(self) -> list[str]:
        """The cells of `COLUMNS`."""
        return [
            self.day,
            self.tenant,
            self.strategy,
            f"{self.queries:,}",
            amount(self.cost, self.unit),
            amount(self.baseline, self.unit),
            f"{self.saved:.1%}",
        ]


def savings(ledger: ReuseLedger) -> list[Saving]:
    """What was spent and saved by day, tenant and strategy, oldest first.

    Of the tenants that the ledger's role may see.

    Raises:
        StorageError: The ledger cannot be read.
    """
    return [_saving(spend) for spend in sorted(ledger.spent_by_tenants())]


def total(rows: Iterable[Saving]) -> Iterator[Saving]:
    """The sum of some savings, one for each unit."""
    rows = list(rows)
    for unit in dict.fromkeys(row.unit for row in rows):
        own = [row for row in rows if row.unit == unit]
        yield Saving(
            "all",
            "",
            "",
            sum(row.queries for row in own),
            sum(row.cost for row in own),
            sum(row.baseline for row in own),
            unit,
        )


def _saving(spend: DaySpend) -> Saving:
    day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=spend.day)
    return Saving(
        day=day.date().isoformat(),
        tenant="/".join(spend.namespace) or "-",
        strategy=spend.key[0],
        queries=spend.queries,
        cost=spend.cost,
        baseline=spend.baseline,
        unit=spend.unit,
    )


def write_spending(ledger: ReuseLedger, path: str | os.PathLike[str]) -> Path:
    """Write a page of what was spent and saved.

    Raises:
        StorageError: The ledger cannot be read, or the page not be written.
    """
    rows = savings(ledger)
    page = rendered(
        "spending.html.j2", "Spent and saved", columns=COLUMNS, rows=rows, totals=list(total(rows))
    )
    return write_atomically(path, page)
