"""``python -m benchmarks locomo`` and its siblings: which units each method puts first.

Every question gets one pool, every method orders it, and the run is a journal that a later run
continues. Tables and figures are made from the JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from benchmarks.commands import DataFile
from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from benchmarks.evidence.benchmark import Progress, Protocol, Selection
    from benchmarks.evidence.candidates import Known
    from benchmarks.evidence.questions import EvidenceQuestion, Part
    from ecs_plugins.shaping.signals.base import Signal

_Choice = TypeVar("_Choice", bound=str)
_PARTS: tuple[Part, ...] = ("all", "tune", "report")
_KNOWN: tuple[Known, ...] = ("metadata", "neighbours")
_ABOUT: dict[str, str] = {
    "locomo": "Turns of long conversations that hold the answer (LoCoMo).",
    "longmemeval": "Sessions of an assistant's history, or --unit turn (LongMemEval).",
    "hotpotqa": "Supporting sentences of two-hop questions (HotpotQA, distractor setting).",
    "musique": "Sentences, or --unit paragraph, of questions with two to four hops (MuSiQue).",
    "nq": "The gold passage among 20 (NQ-open).",
    "squad": "The sentence of a whole article that holds the answer (SQuAD v1.1).",
    "counterfactual": "The true passage against a copy with a false answer (SQuAD or NQ-open).",
}
_MORE = """

\b
  python -m benchmarks {name} --data FILE --out DIR --limit 50
  python -m benchmarks {name} --data FILE --out DIR --limit 200 --resume
  python -m benchmarks {name} --data FILE --out DIR --tables-only

Every question gets one pool of units (query coverage and cosine of
embeddings), and every method orders it. DIR/{name}.db grows with every
question: a killed run goes on with --resume, a larger --limit extends the same
sample, and methods that are named later join the questions that are there.
--tables-only reads it, also while it is being written.

Chance and the pool's ceiling, rankers, selectors of other packages, rules of
other papers with the same model, and this package's signals with and without
the answer: 'python -m benchmarks evidence-methods' lists them.
"""
BENCHES = tuple(_ABOUT)
"""Names of the commands."""
REPORT_HELP = """Make one set of tables of several evidence benchmarks.

\b
  python -m benchmarks evidence-report out/locomo out/hotpotqa --out tables.md

Takes folders, or the JSON files in them, and prints Markdown: quality with 95 % intervals, what
it costs, the differences from the best peers, and answers where a reader ran.
"""


METHODS_HELP = """List the methods that the evidence benchmarks know.

\b
  python -m benchmarks locomo --data FILE --out DIR --methods bm25,query_likelihood
"""


def help_of(bench: str) -> str:
    """Return the text of ``--help``."""
    return _ABOUT[bench] + _MORE.format(name=bench)


def command(bench: str) -> Callable[..., None]:
    """The function behind ``python -m benchmarks <bench>``."""

    def run(
        data: DataFile,
        out: Annotated[Path, typer.Option(help="Folder for journal, JSON, tables and figures.")],
        limit: Annotated[
            int | None, typer.Option(min=1, help="A sample of so many questions.")
        ] = None,
        seed: Annotated[int, typer.Option(help="Of the sample and everything random.")] = 42,
        part: Annotated[
            str,
            typer.Option(help="all, or tune / report: two halves of the conversations, articles."),
        ] = "all",
        unit: Annotated[
            str | None, typer.Option(help="What is ranked, where there is a choice.")
        ] = None,
        pool_size: Annotated[int, typer.Option(min=1, help="Units in the pool.")] = 40,
        retrieved: Annotated[
            str | None,
            typer.Option(
                help="The pool is what a retriever finds of turns as they are; 'metadata' tells "
                "which of them follow each other, or 'neighbours' tells every turn before one."
            ),
        ] = None,
        methods: Annotated[
            str | None,
            typer.Option(
                help="Names separated by commas, or 'all'; by default all but the judge; with "
                "--tables-only those that were measured on most questions."
            ),
        ] = None,
        cross_encoder: Annotated[
            list[Path] | None, typer.Option(help="Directory of a reranker of yours; repeatable.")
        ] = None,
        signal: Annotated[
            list[str] | None,
            typer.Option(help="A Signal of yours, as package.module:attribute; repeatable."),
        ] = None,
        read: Annotated[
            str,
            typer.Option(
                help="Also answer from what is kept: budgets separated by commas, in tokens, topN "
                "units, 'all' or 'none'."
            ),
        ] = "",
        model: Annotated[
            str | None, typer.Option(help="Name or directory; the bundled model without it.")
        ] = None,
        dtype: Annotated[
            str, typer.Option(help="auto, float32 or bfloat16 (faster, a little coarser).")
        ] = "auto",
        resume: Annotated[
            bool, typer.Option(help="Go on with the journal that --out holds.")
        ] = False,
        tables_only: Annotated[
            bool, typer.Option(help="Measure nothing; make JSON, tables and figures again.")
        ] = False,
    ) -> None:
        from benchmarks.evidence.benchmark import Protocol, Selection, result_of

        known = None if retrieved is None else _choice("--retrieved", retrieved, _KNOWN)
        protocol = Protocol(bench, unit, seed, pool_size, known)
        selection = Selection(
            _methods(methods, tables_only),
            limit,
            _choice("--part", part, _PARTS),
            (*_own_signals(signal or []), *(cross_encoder or ())),
            tuple(_listed(read)),
        )
        journal = out / f"{bench}.db"
        if journal.exists() and not (resume or tables_only):
            raise InvalidInputError(
                f"{journal} is there already: go on with --resume, or name another --out"
            )
        questions = protocol.read(data)
        left_out: dict[str, str] = {}
        if not tables_only:
            left_out = _measure(protocol, selection, questions, journal, model, dtype)
        _write(result_of(protocol, selection, questions, journal, left_out), out, bench)

    run.__doc__ = _ABOUT[bench]
    return run


def report(
    results: Annotated[list[Path], typer.Argument(help="Folders or JSON files.", exists=True)],
    out: Annotated[Path | None, typer.Option(help="Markdown file; printed without it.")] = None,
) -> None:
    """See `REPORT_HELP`, which the command line shows."""
    from benchmarks.evidence.report import find_results, load, markdown
    from ecs_plugins.common.files import write_atomically

    text = markdown([load(path) for path in find_results(results)])
    if out is None:
        typer.echo(text)
    else:
        typer.echo(f"wrote {write_atomically(out, text)}")


def methods() -> None:
    """See `METHODS_HELP`, which the command line shows."""
    from benchmarks.evidence.catalogue import CATALOGUE
    from benchmarks.tables import markdown_table

    rows = [
        [name, entry.kind, "yes" if entry.uses_answer else "no", entry.about]
        for name, entry in CATALOGUE.items()
    ]
    typer.echo(markdown_table(["method", "whose", "sees the answer", "what it is"], rows))


def _own_signals(places: list[str]) -> list[Signal]:
    from benchmarks.evidence.catalogue import load_signal

    if places:  # a script that is installed does not look here by itself
        sys.path.insert(0, str(Path.cwd()))
    return [load_signal(place) for place in places]


def _measure(
    protocol: Protocol,
    selection: Selection,
    questions: Sequence[EvidenceQuestion],
    journal: Path,
    model_name: str | None,
    dtype: str,
) -> dict[str, str]:
    from benchmarks.evidence.benchmark import measure
    from ecs_plugins import __version__
    from ecs_plugins.cli import model as models
    from ecs_plugins.ranking.embedder import default_embedder

    with _progress() as progress:
        return measure(
            protocol,
            selection,
            questions,
            model=models.load_model(model_name, dtype=dtype),
            dtype=dtype,
            embedder=default_embedder(),
            journal=journal,
            version=__version__,
            progress=progress,
        )


@contextmanager
def _progress() -> Iterator[Progress]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn()) as bars:
        jobs: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in jobs:
                jobs[what] = bars.add_task(what, total=total)
            bars.update(jobs[what], completed=done)

        yield show


def _write(result: dict[str, Any], out: Path, bench: str) -> None:
    from benchmarks.evidence.report import markdown
    from ecs_plugins.common.files import write_atomically

    text = markdown([result])
    typer.echo(text)
    written = [
        write_atomically(out / f"{bench}.json", json.dumps(result, indent=1) + "\n"),
        write_atomically(out / f"{bench}.md", text),
    ]
    typer.echo("wrote " + ", ".join(map(str, written)))


def _methods(text: str | None, tables_only: bool) -> tuple[str, ...]:
    """Names of methods; none stands for all that a journal holds."""
    from benchmarks.evidence.catalogue import CATALOGUE

    if text is None:
        judged = (name for name in CATALOGUE if name != "judge")
        return () if tables_only else tuple(judged)
    return tuple(CATALOGUE) if text.strip() == "all" else tuple(_listed(text))


def _choice(option: str, text: str, choices: Sequence[_Choice]) -> _Choice:
    for choice in choices:
        if text == choice:
            return choice
    raise InvalidInputError(f"{option} is one of {', '.join(choices)}, got {text!r}")


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
