"""``python -m benchmarks infinite-room``: bounded memories under noise and drift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ecs_plugins.errors import InvalidInputError

QUICK_STEPS = 1500
QUICK_SEEDS = 2
ABLATED = ("a30", "pool50", "near50", "shift30")
READ = ("a30", "a50")


def infinite_room(
    out: Annotated[Path, typer.Option(help="Folder for runs and tables.")],
    seeds: Annotated[int, typer.Option(min=1, help="Streams per world.")] = 20,
    first_seed: Annotated[
        int, typer.Option(min=0, help="First seed; the defaults were tuned on 0 to 9.")
    ] = 20,
    worlds: Annotated[str, typer.Option(help="Worlds, separated by commas, or 'all'.")] = "all",
    quick: Annotated[bool, typer.Option(help="Two seeds of 1,500 steps, no ablations.")] = False,
    ablations: Annotated[bool, typer.Option(help="Also take the method apart.")] = True,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Compare bounded memories under noise and drift."""
    from benchmarks.infinite_room import simulation, tables
    from benchmarks.infinite_room.suite import run_suite
    from benchmarks.infinite_room.worlds import WORLDS
    from ecs_plugins import __version__

    console = Console()
    keys = list(WORLDS) if worlds == "all" else [key.strip() for key in worlds.split(",")]
    unknown = [key for key in keys if key not in WORLDS]
    if unknown:
        raise InvalidInputError(
            f"Unknown worlds: {', '.join(unknown)}. Choose from {', '.join(WORLDS)}."
        )
    chosen = {key: WORLDS[key] for key in keys}
    if quick:
        seeds, ablations = min(seeds, QUICK_SEEDS), False
        chosen = {key: world.shortened(QUICK_STEPS) for key, world in chosen.items()}
    out.mkdir(parents=True, exist_ok=True)
    parts = list(simulation.ablations()) if ablations else []
    readings = list(simulation.readings())
    special = simulation.ablations() | simulation.readings()
    names = [name for name in simulation.policies() if name not in special]
    extra = {key: [*parts] if key in ABLATED else [] for key in chosen}
    for key in READ:
        extra.setdefault(key, []).extend(readings)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        job = bar.add_task("streams", total=seeds * len(chosen))

        def report_progress(done: int, total: int) -> None:
            bar.update(job, completed=done)
            if not console.is_terminal and done * 10 // total > (done - 1) * 10 // total:
                console.print(f"{done} of {total} streams")

        results = run_suite(
            chosen,
            names,
            range(first_seed, first_seed + seeds),
            extra=extra,
            workers=workers,
            progress=report_progress,
        )
    for key in READ:
        if key in results.runs:
            console.print(tables.paper_table(results, key))
    wide = Console(width=max(console.width, 60 + 15 * len(keys)), soft_wrap=True)
    report = []
    for title, rows in (
        ("Expected survival (share of the 20-slot oracle's)", names),
        ("Other readings of the paper", ["Entropic, paper()", *readings]),
        ("The default with one part exchanged", [tables.OURS, *parts] if parts else []),
    ):
        worlds_run = [key for key in results.runs if rows and rows[-1] in results.runs[key]]
        if worlds_run:
            wide.print(tables.world_table(results, rows, worlds_run, title))
            report.append(f"{title}:\n\n{tables.markdown(results, rows, worlds_run)}")
    wide.print(tables.margin_table(results))
    (out / "tables.md").write_text("\n".join(report), encoding="utf-8")
    record = {"version": __version__, "quick": quick, **results.to_json()}
    (out / "runs.json").write_text(json.dumps(record), encoding="utf-8")
    console.print(f"wrote {out / 'runs.json'} and {out / 'tables.md'}")
