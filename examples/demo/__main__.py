"""``python -m examples.demo``: three engines, each on one screen."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ecs_plugins.errors import EcsPluginsError, ModelNotFoundError, StorageError
from ecs_plugins.ranking.embedder import Embedder
from examples.demo import memory, passages, router
from examples.demo.context import Demo
from examples.demo.data import load_chat
from examples.demo.handbook import load_handbook

DEFAULT_LIMIT = 44
"""Questions of part 1. The demo takes at most 90 s of CPU time with them."""
DEFAULT_POOL = 8
"""Pool of the shaper: a fifth of its default, to save time. It limits the recall of ECS."""

HELP = """Watch a real local model choose, remember and save, on this project's own documentation.

Runs on the bundled model, without a network.

\b
  ecs-plugins model install             # once
  python -m examples.demo
  python -m examples.demo --seed 7      # other questions, another order
  python -m examples.demo --limit 54 --pool 40    # all of them, the shaper's own pool
"""
NEXT = """Where to go next:
  docs/guides/cut-tokens.md         the same in your chain, in five lines
  docs/guides/agent-memory.md       a memory for your agent
  docs/guides/cheapest-context.md   a frontier of your own questions
  docs/measurements/index.md        the same on published data, with bad results too"""


def demo(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the measurements.")] = Path(
        "out/demo"
    ),
    limit: Annotated[int, typer.Option(min=1, help="Questions of part 1.")] = DEFAULT_LIMIT,
    pool: Annotated[
        int, typer.Option(min=1, help="Passages that the model may choose from.")
    ] = DEFAULT_POOL,
    seed: Annotated[int, typer.Option(help="Seed of the drawn questions and of the memory.")] = 0,
    model: Annotated[
        str | None,
        typer.Option(
            help="Name or directory of a model; default: the bundled one.", show_default=False
        ),
    ] = None,
) -> None:
    """Run the demo; `HELP` is the help text."""
    # Tables need some width even where the output is a file or a pipe.
    console = Console(width=None if sys.stdout.isatty() else 120)
    stage = _set_up(console, out, limit, pool, seed, model)
    started = time.process_time()
    _rule(console, "1/3  Context shaping: what the answering model has to read")
    ways = passages.run(stage)
    _rule(console, "2/3  Entropic Memory: a conversation in a fifth of its size")
    memory.run(stage)
    _rule(console, "3/3  The Efficiency Frontier: which way pays")
    router.run(stage, ways)
    seconds = time.process_time() - started
    stage.results["cpu_seconds"] = round(seconds, 1)
    written = out / "demo.json"
    written.write_text(json.dumps(stage.results, indent=1) + "\n", encoding="utf-8")
    stage.say(f"\nDone in {seconds:.0f} s of CPU time after loading. All figures: {written}\n")
    stage.say(NEXT)


def _rule(console: Console, title: str) -> None:
    console.print()
    console.rule(f"[bold]{title}", align="left")


def _set_up(
    console: Console, out: Path, limit: int, pool: int, seed: int, model: str | None
) -> Demo:
    from ecs_plugins.cli import _setup

    handbook = load_handbook().drawn(limit, seed)
    chat = load_chat()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be made ({error.strerror}); give another --out"
        ) from error
    with console.status("loading the model"):
        language_model = _setup.load_model(model)
        embedder = _embedder()
    name = Path(language_model.name).name  # without the directory of a local model
    console.print(f"Scored by {name}, on this machine.", highlight=False)
    results: dict[str, object] = {"model": name, "seed": seed}
    return Demo(console, handbook, chat, language_model, embedder, pool, seed, results)


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
