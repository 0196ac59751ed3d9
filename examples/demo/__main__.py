"""``python -m examples.demo``: three engines on the papers of a tool library, and one page."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, select_autoescape
from rich.console import Console
from rich.table import Table

from ecs_plugins.common.files import write_atomically
from ecs_plugins.errors import EcsPluginsError, StorageError
from ecs_plugins.frontier.reuse import SPENDING_COLUMNS
from examples.demo import memory, passages, router
from examples.demo.corpus import Corpus, load_corpus

HELP = """Watch a real local model choose, remember and save, next to what you would do without it.

Runs on the bundled model, without a network, in at most a minute of CPU time.

\b
  ecs-plugins model install             # once
  python -m examples.demo
  python -m examples.demo --seed 7      # passages in another order: the same result
"""


def demo(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for page and figures.")] = Path(
        "out/demo"
    ),
    seed: Annotated[int, typer.Option(help="Order of the passages; seed of the memory.")] = 0,
    model: Annotated[
        str | None,
        typer.Option(help="Name or directory of a model; default: the bundled one."),
    ] = None,
) -> None:
    """Run the demo; `HELP` is the help text."""
    from ecs_plugins.cli.model import load_model
    from ecs_plugins.ranking.embedder import default_embedder

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{out} cannot be made; give another --out: {error}") from error
    corpus = load_corpus(seed)
    language_model = load_model(model)
    embedder = default_embedder()
    began = cpu_seconds()
    ways = passages.choose(corpus, language_model, embedder)
    chain = passages.show_chain(corpus, language_model, embedder)
    stores, recalls = memory.compare(corpus, embedder, seed)
    routed = router.run(corpus, ways)
    tables = [shaping_table(corpus, ways), memory_table(len(recalls), stores), choice_table(routed)]
    tables.append(cost_table(routed))
    console = Console(width=None if sys.stdout.isatty() else 110)
    for table in tables:
        console.print(as_rich(table))
        console.print(table["conclusion"], highlight=False, markup=False)
    seconds = cpu_seconds() - began
    page = write_atomically(
        out / "demo.html",
        rendered(
            tables=tables,
            chain=chain,
            recalls=recalls,
            spending=routed.spending,
            columns=SPENDING_COLUMNS,
            seconds=seconds,
        ),
    )
    figures = {"seed": seed, "tables": tables, "chain": asdict(chain)}
    write_atomically(out / "demo.json", json.dumps(figures, indent=1) + "\n")
    console.print(f"\n{seconds:.0f} s of CPU time after loading. All of it on one page: {page}")


def cpu_seconds() -> float:
    """Return the CPU time of this process, all threads together."""
    times = os.times()
    return times.user + times.system


# Tables.


def shaping_table(corpus: Corpus, ways: list[passages.Way]) -> dict[str, Any]:
    """Return the ways to choose passages, and who wins."""
    ordinary, multi_hop = len(corpus.ordinary), len(corpus.multi_hop)
    rows = []
    for way in ways:
        simple = way.right(corpus.ordinary)
        double = way.right(corpus.multi_hop, ordinary)
        rows.append([way.name, str(simple), str(double), f"{way.sent:,.0f}", f"{way.each:,.0f}"])
    asked = corpus.questions
    right = {way.name: way.right(asked) for way in ways if way.name != passages.EVERYTHING}
    return {
        "title": f"1. Questions for which all that is needed is among {passages.KEPT} of "
        f"{len(corpus.passages)} passages",
        "columns": [
            "",
            f"ordinary (of {ordinary})",
            f"two passages needed (of {multi_hop})",
            "tokens sent",
            "tokens read here",
        ],
        "rows": rows,
        "conclusion": f"{compared(right, passages.ECS, len(asked))} Embeddings are enough where a "
        "passage answers one question in a few sentences, as here. Use the shaper where a "
        "retriever finds by keywords, where you need probabilities and citations, and where your "
        "own questions say so.",
    }


def memory_table(asked: int, stores: list[memory.Store]) -> dict[str, Any]:
    """Return the stores, and who wins among those of one size."""
    size = memory.HOT + memory.COLD
    rows = [[each.name, *map(str, (len(each.texts), each.kept, each.found))] for each in stores]
    small = {each.name: each.found for each in stores if len(each.texts) <= size}
    return {
        "title": f"2. {asked} questions about a chat of eight weeks, in {size} items",
        "columns": ["", "items", "answer kept", f"among {memory.RECALLED} recalled"],
        "rows": rows,
        "conclusion": f"{compared(small, stores[0].name, asked)} Where facts are the long turns "
        "and small talk is short, ten lines that keep the longest do. While a whole chat fits, "
        "search all of it. The memory adds what a list lacks: a file that survives a kill, "
        "erasure with a receipt, and a reason for everything that it let go.",
    }


def choice_table(routed: router.Routed) -> dict[str, Any]:
    """Return the choices of the router by target and N."""
    rows = [
        [f"{each.value:.2f}", f"{each.reuse:g}", each.label, f"{each.effective:,.0f}"]
        for each in routed.choices
    ]
    return {
        "title": "3. The cheapest way that is good enough",
        "columns": ["share of answers", "questions (N)", "choice", "tokens each"],
        "rows": rows,
        "conclusion": f"A token that this machine reads counts {router.LOCAL:g}, one that a prompt "
        f"cache serves {router.CACHED:g}.",
    }


def cost_table(routed: router.Routed) -> dict[str, Any]:
    """Return the cost of the router next to always the same way."""
    rows = [[each.name, f"{each.cost:,.0f}", str(each.missed)] for each in routed.totals]
    own, full, *_ = routed.totals
    best = routed.totals[-1]
    return {
        "title": f"{sum(router.TEXTS)} questions about {len(router.TEXTS)} texts, N unknown",
        "columns": ["", "tokens", "questions below their target"],
        "rows": rows,
        "conclusion": f"The router saves {1 - own.cost / full.cost:.0%} of {full.name} and costs "
        f"{own.cost / best.cost:.2f} times what is possible. Where all questions ask for the same, "
        "you need no router: send always what the table above names.",
    }


def compared(right: dict[str, int], own: str, asked: int) -> str:
    """Return a sentence that compares the own way with the best other one."""
    best = max((name for name in right if name != own), key=lambda name: right[name])
    word = "is level with"
    if right[own] != right[best]:
        word = "is better than" if right[own] > right[best] else "LOSES to"
    return f"{own} ({right[own]} of {asked}) {word} {best} ({right[best]})."


def as_rich(table: dict[str, Any]) -> Table:
    """Return a table for the terminal."""
    made = Table(title=table["title"], title_justify="left")
    for name in table["columns"]:
        made.add_column(name, justify="left" if not name or name == "choice" else "right")
    for row in table["rows"]:
        made.add_row(*row)
    return made


def rendered(**values: Any) -> str:
    """Return the page."""
    loaders = [FileSystemLoader(Path(__file__).parent), PackageLoader("ecs_plugins.common")]
    pages = Environment(loader=ChoiceLoader(loaders), autoescape=select_autoescape(["html.j2"]))
    return pages.get_template("demo.html.j2").render(title="Three engines at work", **values)


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
