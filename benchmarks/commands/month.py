"""``python -m benchmarks month``: cost of routing over a simulated month."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def month(
    frontier: Annotated[
        Path | None,
        typer.Option(help="A frontier; without it, points as in the paper.", show_default=False),
    ] = None,
    target_f1: Annotated[float, typer.Option("--target-f1", help="What is to be reached.")] = 0.78,
    contexts: Annotated[int, typer.Option(min=1, help="Contexts per kind of traffic.")] = 600,
) -> None:
    """Cost over the offline optimum of the router, of rent or buy and of always the same."""
    from rich.console import Console
    from rich.table import Table

    from benchmarks.deployment import month as months
    from ecs_plugins.frontier import EfficiencyFrontier

    measured = EfficiencyFrontier(months.PAPER_POINTS)
    if frontier is not None:
        measured = EfficiencyFrontier.load(frontier)
    found = {}
    queries = {kind: months.month_of(kind, contexts) for kind in months.TRAFFIC}
    for kind, asked in queries.items():
        found[kind] = months.month_costs(measured, target_f1, asked)
    names = list(next(iter(found.values())))
    table = Table("policy", *(f"{k}, {len(q):,} queries" for k, q in queries.items()), box=None)
    for name in names:
        ratios = (costs[name] / costs[names[0]] for costs in found.values())
        table.add_row(name, *(f"{ratio:.3f}" for ratio in ratios))
    Console().print(table)
