"""The spending report: costs and savings by day, tenant and strategy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ecs_plugins.common.files import write_atomically
from ecs_plugins.common.rendering import rendered
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.reuse import Saving as Saving

COLUMNS = ("day", "tenant", "strategy", "queries", "spent", "full context", "saved", "unknown")


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
    rows = savings(ledger)
    page = rendered(
        "spending.html.j2", "Spent and saved", columns=COLUMNS, rows=rows, totals=list(total(rows))
    )
    return write_atomically(path, page)
