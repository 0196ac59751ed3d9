"""``python -m benchmarks deployment``: routing against always the same strategy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def deployment(
    frontier: Annotated[Path, typer.Argument(help="A frontier that calibrate wrote.")],
    target_f1: Annotated[float, typer.Option("--target-f1", help="What routers must reach.")],
    out: Annotated[Path, typer.Option(help="Folder for deployment.json.")],
    prices: Annotated[
        Path | None, typer.Option(help="Price list; without it, tokens.", show_default=False)
    ] = None,
    contexts: Annotated[int, typer.Option(min=1, help="Contexts per kind of reuse.")] = 1000,
    mean: Annotated[float, typer.Option(min=1, help="Mean queries per context.")] = 10.0,
) -> None:
    """Cost of routing and of always the same strategy, on made-up reuse of several kinds."""
    from rich.console import Console
    from rich.table import Table

    from benchmarks.deployment.simulation import REUSE_KINDS, reuse_counts, simulate_deployment
    from ecs_plugins.common.files import write_atomically
    from ecs_plugins.frontier import EfficiencyFrontier, PriceVector

    measured = EfficiencyFrontier.load(frontier)
    measured = measured if prices is None else measured.priced(PriceVector.read(prices))
    record: dict[str, object] = {"target_f1": target_f1, "unit": measured.unit}
    for kind in REUSE_KINDS:
        counts = reuse_counts(kind, contexts, mean=mean)
        results = simulate_deployment(measured, target_f1, counts)
        record[kind] = [asdict(result) for result in results]
        table = Table(title=f"{kind}: {sum(counts)} queries of {contexts} contexts", box=None)
        for name in ("policy", f"{measured.unit} per query", "over the optimum", "F1"):
            table.add_column(name, justify="left" if name == "policy" else "right")
        for result in results:
            table.add_row(
                result.name,
                f"{result.per_query:.4g}",
                f"{result.over_optimum:.3f}",
                "reached" if result.reaches_target else "below target",
            )
        Console().print(table)
    path = write_atomically(out / "deployment.json", json.dumps(record, indent=2) + "\n")
    typer.echo(f"wrote {path}")
