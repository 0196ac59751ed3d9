"""The spending report: costs and savings by day, tenant and strategy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ecs_plugins.common.files import write_atomically
from ecs_plugins.frontier.cost import amount

if TYPE_CHECKING:
    from ecs_plugins.frontier.reuse import ReuseLedger

COLUMNS = ("day", "tenant", "strategy", "queries", "spent", "full context", "saved", "unknown")


class Saving(NamedTuple):
    """Costs of the queries of one day, tenant and strategy.

    Attributes:
        day: In UTC.
        queries: All of them.
        unknown: Those whose tokens nobody reported; they are in no other number.
        cost: Of the others.
        compared: Cost of those whose whole context was counted.
        baseline: Cost of the same queries with the whole context.
    """

    day: str
    tenant: str
    strategy: str
    queries: int
    unknown: int
    cost: float
    compared: float
    baseline: float
    unit: str

    @property
    def saved(self) -> float | None:
        """Return the share of the baseline that was not spent; None without a baseline."""
        return 1 - self.compared / self.baseline if self.baseline else None

    def cells(self) -> list[str]:
        """Return the cells of `COLUMNS`."""
        saved = self.saved
        return [
            self.day,
            self.tenant,
            self.strategy,
            f"{self.queries:,}",
            amount(self.cost, self.unit),
            "unknown" if saved is None else amount(self.baseline, self.unit),
            "unknown" if saved is None else f"{saved:.1%}",
            f"{self.unknown:,}",
        ]


def savings(ledger: ReuseLedger) -> list[Saving]:
    """Return costs and savings by day, tenant and strategy, oldest first.

    They are those of the tenants that the role of the ledger may see.

    Raises:
        StorageError: The ledger cannot be read.
    """
    return sorted(ledger.spent_by_tenants())


def total(rows: Iterable[Saving]) -> Iterator[Saving]:
    """Return the sum of some savings, one for each unit."""
    rows = list(rows)
    for unit in dict.fromkeys(row.unit for row in rows):
        own = [row for row in rows if row.unit == unit]
        sums: Iterable[Any] = map(sum, zip(*(row[3:8] for row in own), strict=True))
        yield Saving._make(["all", "", "", *sums, unit])


def write_spending(ledger: ReuseLedger, path: str | os.PathLike[str]) -> Path:
    """Write the spending report as a page.

    Raises:
        StorageError: The ledger cannot be read, or the page not be written.
    """
    from ecs_plugins.common.rendering import rendered

    rows = savings(ledger)
    page = rendered(
        "spending.html.j2", "Spent and saved", columns=COLUMNS, rows=rows, totals=list(total(rows))
    )
    return write_atomically(path, page)
