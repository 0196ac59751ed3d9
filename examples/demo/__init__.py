"""``python -m examples.demo``: the engines at work on the example data, with a real local model.

The demo is a list of parts. A part is a module with a function ``run(demo)``, which prints,
saves what it draws under ``demo.out`` and adds what it measured to ``demo.results``.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.errors import (
    InvalidInputError,
    MissingExtraError,
    ModelNotFoundError,
    StorageError,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ecs_plugins.ranking.embedder import Embedder
    from examples.demo.context import Demo

DEFAULT_LIMIT = 15
"""Questions that keep the demo well under two minutes on two cores."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the demo; its module has a function ``run(demo)``."""

    name: str
    title: str
    module: str


PARTS = (
    Part(
        "evidence",
        "Context shaping: which turns of a long conversation are kept",
        "examples.demo.evidence",
    ),
    Part(
        "verdicts",
        "Context shaping: what hurts and what is redundant",
        "examples.demo.verdicts",
    ),
    Part(
        "frameworks",
        "Context shaping: the same through LangChain and LlamaIndex",
        "examples.demo.frameworks",
    ),
    Part(
        "memory",
        "Entropic Memory: a conversation in a tenth of its room",
        "examples.demo.memory",
    ),
    Part(
        "router",
        "The Efficiency Frontier: which chain pays, once, ten times, a hundred times",
        "examples.demo.router",
    ),
)

HELP = """Watch a real local model pick the evidence out of a long conversation.

Runs on the bundled model and on example data, without a network. Figures and
measurements are saved in the --out folder.

\b
  ecs-plugins model install        # once
  python -m examples.demo
  python -m examples.demo --limit 45      # all questions; takes longer
  python -m examples.demo --part verdicts
"""


def demo(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for figures and measurements.")
    ] = Path("out/demo"),
    limit: Annotated[
        int, typer.Option(min=1, help="Questions to ask in each part.")
    ] = DEFAULT_LIMIT,
    part: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this part; repeatable: {', '.join(p.name for p in PARTS)}."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model's name or directory; the bundled model without it.", show_default=False
        ),
    ] = None,
) -> None:
    """See `HELP`, which the command line shows."""
    from rich.console import Console

    parts = _chosen(part)
    started = time.perf_counter()
    # Tables need some width even where the output is a file or a pipe.
    console = Console(width=None if sys.stdout.isatty() else 120)
    stage = _set_up(console, out, limit, model)
    for number, chosen in enumerate(parts, start=1):
        console.print()
        console.rule(f"[bold]{number}/{len(parts)}  {chosen.title}", align="left")
        try:
            importlib.import_module(chosen.module).run(stage)
        except MissingExtraError as error:
            console.print(f"Left out: {error}", style="yellow", markup=False)
    seconds = time.perf_counter() - started
    stage.results["seconds"] = round(seconds, 1)
    written = out / "demo.json"
    written.write_text(json.dumps(stage.results, indent=1) + "\n", encoding="utf-8")
    console.print()
    console.print(f"Done in {seconds:.0f} s. All measurements: {written}", markup=False)


def _chosen(names: list[str] | None) -> list[Part]:
    known = {part.name: part for part in PARTS}
    for name in names or ():
        if name not in known:
            raise InvalidInputError(f"no part is called {name!r}; there are {', '.join(known)}")
    return [part for part in PARTS if not names or part.name in names]


def _set_up(console: Console, out: Path, limit: int, model: str | None) -> Demo:
    from ecs_plugins.cli import _setup
    from examples.demo.context import Demo
    from examples.demo.data import load_data

    data = load_data()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be made ({error.strerror}); give another --out"
        ) from error
    with console.status("loading the model"):
        language_model = _setup.load_model(model)
        embedder = _embedder()
        passages = [turn.passage for turn in data.turns]
        if embedder is not None:
            embedder.embed_documents(passages)
    name = Path(language_model.name).name  # without the directory of a local model
    console.print(
        f"{len(data.turns)} turns in {data.sessions} sessions, "
        f"{sum(language_model.count_tokens(passages)):,} tokens. "
        f"Scored by {name}, on this machine.",
        highlight=False,
    )
    results: dict[str, object] = {"model": name}
    return Demo(console, data, language_model, embedder, out, limit, results)


def _embedder() -> Embedder | None:
    from ecs_plugins.ranking.embedder import default_embedder
    from examples.demo.context import RememberingEmbedder

    try:
        return RememberingEmbedder(default_embedder())
    except ModelNotFoundError:
        return None
