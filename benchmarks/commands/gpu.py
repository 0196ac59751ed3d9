"""``python -m benchmarks gpu``: check and measure a card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def gpu(
    out: Annotated[Path, typer.Option(help="Folder for gpu.json and gpu.md.")] = Path("out"),
    device: Annotated[str, typer.Option(help="cuda, cuda:N or cpu.")] = "cuda",
    dtype: Annotated[str, typer.Option(help="What speed is measured in.")] = "auto",
    quick: Annotated[bool, typer.Option(help="Small sizes, to see that it works.")] = False,
) -> None:
    """Is the engine right on a card, how fast is it, and does it recover from full memory?"""
    from benchmarks.engine.card import check_card, table
    from benchmarks.engine.card_report import QUICK, Sizes
    from benchmarks.engine.target import Target

    sizes = QUICK if quick else Sizes()
    result = check_card(Target.of(device, dtype), sizes, typer.echo)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    tables = table(result)
    (out / "gpu.md").write_text(tables, "utf-8")
    typer.echo(tables)
    if result["failed"]:
        raise typer.Exit(1)
