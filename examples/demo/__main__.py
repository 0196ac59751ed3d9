"""``python -m examples.demo``.

The demo is a list of parts. A part is a module with a function ``run(demo)``, which prints,
saves what it draws under ``demo.out`` and adds what it measured to ``demo.results``.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ecs_plugins.errors import (
    EcsPluginsError,
    InvalidInputError,
    MissingExtraError,
    ModelNotFoundError,
    StorageError,
)
from ecs_plugins.ranking.embedder import Embedder
from examples.demo.context import Demo
from examples.demo.data import load_data

DEFAULT_LIMIT = 5
"""One question of each category, which keeps the demo under a minute of CPU time."""
DEFAULT_POOL = 20
"""Half of the shaper's own, for the same reason; these turns bound what ECS can find."""

PARTS = {
    "evidence": "Context shaping: which turns of a long conversation are kept",
    "verdicts": "Context shaping: what hurts and what is redundant",
    "frameworks": "Context shaping: the same through LangChain and LlamaIndex",
    "memory": "Entropic Memory: a conversation in a fifth of its room",
    "router": "The Efficiency Frontier: which chain pays, once, ten times, a hundred times",
}
"""Modules of the parts, and their titles."""

HELP = """Watch a real local model pick the evidence out of a long conversation.

Runs on the bundled model and on example data, without a network. Five questions show how it
works and measure little; --limit 45 asks all. Figures and measurements go to the --out folder.

\b
  ecs-plugins model install             # once
  python -m examples.demo
  python -m examples.demo --limit 45 --pool 40    # all questions; takes minutes
  python -m examples.demo --part verdicts
"""


def demo(
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for figures and measurements.")
    ] = Path("out/demo"),
    limit: Annotated[
        int, typer.Option(min=1, help="Questions to ask in each part.")
    ] = DEFAULT_LIMIT,
    pool: Annotated[
        int, typer.Option(min=1, help="Turns that the model may choose from.")
    ] = DEFAULT_POOL,
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only this part; repeatable: {', '.join(PARTS)}.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model's name or directory; the bundled one without it.", show_default=False
        ),
    ] = None,
) -> None:
    """See `HELP`, which the command line shows."""
    for name in part or ():
        if name not in PARTS:
            raise InvalidInputError(f"no part is called {name!r}; there are {', '.join(PARTS)}")
    chosen = [name for name in PARTS if not part or name in part]
    # Tables need some width even where the output is a file or a pipe.
    console = Console(width=None if sys.stdout.isatty() else 120)
    stage = _set_up(console, out, limit, pool, model)
    started = time.process_time()
    for number, name in enumerate(chosen, start=1):
        console.print()
        console.rule(f"[bold]{number}/{len(chosen)}  {PARTS[name]}", align="left")
        try:
            importlib.import_module(f"examples.demo.{name}").run(stage)
        except MissingExtraError as error:
            console.print(f"Left out: {error}", style="yellow", markup=False)
    seconds = time.process_time() - started
    stage.results["cpu_seconds"] = round(seconds, 1)
    written = out / "demo.json"
    written.write_text(json.dumps(stage.results, indent=1) + "\n", encoding="utf-8")
    console.print()
    console.print(
        f"Done in {seconds:.0f} s of CPU time after loading, with at most {limit} questions in a "
        f"part: a look, not a measurement. All figures: {written}",
        markup=False,
        highlight=False,
    )


def _set_up(console: Console, out: Path, limit: int, pool: int, model: str | None) -> Demo:
    from ecs_plugins.cli import _setup

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
    name = Path(language_model.name).name  # without the directory of a local model
    console.print(
        f"{len(data.turns)} turns in {data.sessions} sessions, "
        f"{sum(language_model.count_tokens(passages)):,} tokens. "
        f"Scored by {name}, on this machine.",
        highlight=False,
    )
    return Demo(console, data, language_model, embedder, out, limit, pool, {"model": name})


def _embedder() -> Embedder | None:
    from ecs_plugins.ranking.embedder import default_embedder

    try:
        return default_embedder()
    except ModelNotFoundError:
        return None


app = typer.Typer(pretty_exceptions_enable=False)
app.command("demo", help=HELP)(demo)


def main() -> None:
    """Run the demo; an expected error is one line on stderr and exit status 1."""
    try:
        app()
    except EcsPluginsError as error:
        typer.echo(f"demo: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
