"""``ecs-plugins bench engine``: what a log-probability costs, beside the usual ways to get it."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from ecs_plugins.errors import InvalidInputError

HELP = "The scoring engine beside the naive loop, lm-evaluation-harness and minicons."
PARTS = ("compare", "context", "number", "questions", "memory", "callers", "latency")


def engine(
    out: Annotated[Path, typer.Option(help="Folder for engine-bench.json, tables and figures.")],
    part: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(PARTS)}; all by default.")
    ] = None,
    setting: Annotated[
        list[int] | None, typer.Option(help="Number of a headline setting (1 to 4) to compare.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model of all parts but compare.")] = "llama38",
    scorer: Annotated[
        list[str] | None, typer.Option(help="A scorer to compare; all installed by default.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Interleaved repeats.")] = 5,
    quick: Annotated[bool, typer.Option(help="Small settings, to see that it works.")] = False,
) -> None:
    """Measure in process CPU time on one thread; callers and latency in wall time on all.

    Results are added to those in the folder.
    """
    from ecs_plugins.evaluation.engine_bench import figures, report, suite
    from ecs_plugins.evaluation.engine_bench.workload import HEADLINE

    chosen = list(part or PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        raise InvalidInputError(f"no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    numbers = setting or list(range(1, len(HEADLINE) + 1))
    if any(not 1 <= n <= len(HEADLINE) for n in numbers):
        raise InvalidInputError(f"settings are numbered 1 to {len(HEADLINE)}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "engine-bench.json"
    result: dict[str, Any] = {}
    for name in chosen:
        found = suite.run(
            name,
            model=model,
            settings=[HEADLINE[n - 1] for n in numbers],
            names=tuple(scorer or suite.SCORERS),
            repeats=repeats,
            quick=quick,
            log=typer.echo,
        )
        # Read anew: another part may have been measured into the same folder meanwhile.
        result = json.loads(path.read_text("utf-8")) if path.exists() else {}
        result["machine"] = _machine()
        result.setdefault(name, {}).update(found)
        path.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    tables = report.markdown(result)
    (out / "engine-bench.md").write_text(tables, "utf-8")
    typer.echo(tables)
    for figure in figures.growth(result, out):
        typer.echo(f"wrote {figure}")
    typer.echo(f"wrote {path}")


def _machine() -> dict[str, Any]:
    import torch
    import transformers

    from ecs_plugins import __version__

    return {
        "version": __version__,
        "system": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cores": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
