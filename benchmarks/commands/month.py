"""``python -m benchmarks month``: cost of routing over a simulated month."""

from __future__ import annotations

from typing import Annotated

import typer


def month(
    contexts: Annotated[int, typer.Option(min=1, help="Contexts per kind of traffic.")] = 600,
) -> None:
    """Cost over the offline optimum of the router, of rent or buy and of always the same."""
    from rich.console import Console
    from rich.table import Table

    from benchmarks.deployment import month as months
    from ecs_plugins.frontier import EfficiencyFrontier

    measured = EfficiencyFrontier(months.PAPER_POINTS)
    found = {}
    queries = {kind: months.month_of(kind, contexts) for kind in months.TRAFFIC}
    for kind, asked in queries.items():
        found[kind] = months.month_costs(measured, 0.78, asked)
    names = list(next(iter(found.values())))
    table = Table("policy", *(f"{k}, {len(q):,} queries" for k, q in queries.items()), box=None)
    for name in names:
        ratios = (costs[name] / costs[names[0]] for costs in found.values())
        table.add_row(name, *(f"{ratio:.3f}" for ratio in ratios))
    Console().print(table)
