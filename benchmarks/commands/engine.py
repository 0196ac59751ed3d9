"""``python -m benchmarks engine``: cost of a log-probability."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    from benchmarks.engine.target import Target

HELP = """Cost of a log-probability, compared with a naive loop, a careful one and padded batches.

\b
  python -m benchmarks engine --out DIR --quick
  python -m benchmarks engine --out DIR --part compare --setting 1
  python -m benchmarks engine --out DIR --device cuda:1 --dtype float32 --part compare

On a CPU: process CPU time on one thread; callers in wall time on all. On a GPU: wall time until the
card has finished, and a model of random weights that is made on the card (llama8b: 15 GiB in 16
bits). Results are added to those in the folder.
"""
PARTS = ("compare", "cross-encoder", "callers")


def engine(
    out: Annotated[Path, typer.Option(help="Folder for engine-bench.json and tables.")],
    part: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(PARTS)}; all by default.")
    ] = None,
    setting: Annotated[
        list[int] | None, typer.Option(help="Number of a headline setting (1 to 5) to compare.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="llama38, llama135, wide4, llama8b or bundled, for callers, on a GPU for compare "
            "too. Default: llama38, on a GPU llama8b."
        ),
    ] = None,
    scorer: Annotated[
        list[str] | None, typer.Option(help="A scorer to compare; all by default.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Interleaved repeats.")] = 5,
    quick: Annotated[bool, typer.Option(help="Small settings, to see that it works.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16 or float16; auto is 16 bits on a GPU.")
    ] = "auto",
) -> None:
    """Measure the cost of a log-probability."""
    from benchmarks.engine import report, suite
    from benchmarks.engine.target import Target
    from benchmarks.engine.workload import HEADLINE

    chosen = list(part or PARTS)
    if unknown := [name for name in chosen if name not in PARTS]:
        raise InvalidInputError(f"no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    numbers = setting or list(range(1, len(HEADLINE) + 1))
    if any(not 1 <= n <= len(HEADLINE) for n in numbers):
        raise InvalidInputError(f"settings are numbered 1 to {len(HEADLINE)}")
    target = Target.of(device, dtype)
    settings = [HEADLINE[n - 1] for n in numbers]
    if target.on_card:
        model = model or "llama8b"
        settings = [replace(s, model=model) for s in settings]
    out.mkdir(parents=True, exist_ok=True)
    path = out / "engine-bench.json"
    result: dict[str, Any] = {}
    for name in chosen:
        found = suite.run(
            name,
            model=model or "llama38",
            settings=settings,
            names=tuple(scorer or suite.SCORERS),
            repeats=repeats,
            quick=quick,
            log=typer.echo,
            target=target,
        )
        # Read anew: another part may have been measured into the same folder meanwhile.
        result = json.loads(path.read_text("utf-8")) if path.exists() else {}
        result["machine"] = result.get("machine", {}) | _machine(target)
        result.setdefault(name, {}).update(found)
        path.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    tables = report.markdown(result)
    (out / "engine-bench.md").write_text(tables, "utf-8")
    typer.echo(tables)
    typer.echo(f"wrote {path}")


def _machine(target: Target) -> dict[str, Any]:
    import torch
    import transformers

    from ecs_plugins import __version__

    card = {}
    if target.on_card:
        found = torch.cuda.get_device_properties(target.device)
        card = {
            f"card {target.device}": f"{found.name}, {found.total_memory / 2**30:.0f} GiB, "
            f"compute capability {found.major}.{found.minor}",
            "cuda": torch.version.cuda or torch.version.hip,
        }
    return {
        "version": __version__,
        "system": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cores": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        **card,
    }
