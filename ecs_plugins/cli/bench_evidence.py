"""``ecs-plugins bench locomo`` and its siblings: which units each method puts first.

Every question gets one pool, every method orders it, and the run is a journal that a later run
continues.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    from ecs_plugins.evaluation.evidence.questions import EvidenceQuestion, Part

COUNTERFACTUAL = "counterfactual"
BENCHES: dict[str, str] = {
    "locomo": "Turns of long conversations (LoCoMo).",
    "longmemeval": "Sessions of an assistant's history, or turns within them (LongMemEval).",
    "hotpotqa": "Supporting sentences of two-hop questions (HotpotQA, distractor setting).",
    "musique": "Supporting sentences of questions with two to four hops (MuSiQue).",
    "nq": "The gold passage among 20 (NQ-open).",
    "squad": "The sentence of a whole article that holds the answer (SQuAD v1.1).",
    COUNTERFACTUAL: "The true passage against a copy with a false answer (from SQuAD or NQ-open).",
}
DEFAULT_POOL = 40


def command(bench: str) -> Callable[..., None]:
    """The function behind ``ecs-plugins bench <bench>``."""

    def run(
        data: Annotated[
            Path, typer.Option(help="The published file; see docs/evaluation.md.", exists=True)
        ],
        out: Annotated[Path, typer.Option(help="Folder for journal, JSON, tables and figure.")],
        limit: Annotated[
            int | None,
            typer.Option(
                min=1,
                help="A sample of so many questions. A larger limit later adds to the same sample.",
            ),
        ] = None,
        seed: Annotated[int, typer.Option(help="Of the sample and everything random.")] = 42,
        part: Annotated[
            str, typer.Option(help="all, or tune / report: two halves of the conversations.")
        ] = "all",
        unit: Annotated[
            str | None, typer.Option(help="What is ranked, where there is a choice.")
        ] = None,
        pool_size: Annotated[
            int, typer.Option(min=1, help="Units that stage 1 passes on.")
        ] = DEFAULT_POOL,
        methods: Annotated[
            str, typer.Option(help="Methods, separated by commas, or 'all'.")
        ] = "all",
        model: Annotated[
            str | None, typer.Option(help="Name or directory; the bundled model without it.")
        ] = None,
        dtype: Annotated[
            str, typer.Option(help="auto, float32 or bfloat16 (faster, and a little coarser).")
        ] = "auto",
        resume: Annotated[
            bool, typer.Option(help="Go on with the journal that --out holds.")
        ] = False,
    ) -> None:
        questions = _questions(bench, data, unit, seed)
        settings = {
            "bench": bench,
            "unit": unit or _default_unit(bench),
            "seed": seed,
            "pool_size": pool_size,
            "dtype": dtype,
        }
        _measure(
            out / f"{bench}.jsonl",
            questions,
            settings,
            _listed(methods),
            limit,
            part,
            model,
            resume,
        )

    run.__doc__ = BENCHES[bench]
    return run


def _default_unit(bench: str) -> str:
    from ecs_plugins.evaluation.evidence.readers import UNITS

    return "passage" if bench == COUNTERFACTUAL else UNITS[bench][0]


def _listed(text: str) -> list[str]:
    from ecs_plugins.evaluation.evidence.catalogue import CATALOGUE

    if text.strip() == "all":
        return list(CATALOGUE)
    return [name.strip() for name in text.split(",") if name.strip()]


def _questions(bench: str, data: Path, unit: str | None, seed: int) -> list[EvidenceQuestion]:
    from ecs_plugins.evaluation.evidence.counterfactual import counterfactuals
    from ecs_plugins.evaluation.evidence.readers import read_dataset

    if bench == COUNTERFACTUAL:
        with data.open(encoding="utf-8-sig") as file:
            source = "squad" if file.read(64).lstrip().startswith("{") else "nq"
        return counterfactuals(read_dataset(source, data, seed=seed), seed=seed)
    return read_dataset(bench, data, unit=unit, seed=seed)


def _measure(
    journal: Path,
    questions: list[EvidenceQuestion],
    settings: dict[str, Any],
    methods: list[str],
    limit: int | None,
    part: str,
    model_name: str | None,
    resume: bool,
) -> None:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from ecs_plugins import __version__
    from ecs_plugins.cli import _setup
    from ecs_plugins.embedding import default_embedder
    from ecs_plugins.evaluation.evidence.candidates import CandidateFinder
    from ecs_plugins.evaluation.evidence.catalogue import Tools, choose
    from ecs_plugins.evaluation.evidence.journal import EvidenceJournal
    from ecs_plugins.evaluation.evidence.metrics import evidence_f1
    from ecs_plugins.evaluation.evidence.questions import data_hash, sample
    from ecs_plugins.evaluation.evidence.suite import run_methods

    if part not in ("all", "tune", "report"):
        raise InvalidInputError(f"--part is all, tune or report, got {part!r}")
    chosen_part: Part = part  # type: ignore[assignment]
    asked = sample(questions, limit=limit, seed=settings["seed"], part=chosen_part)
    if journal.exists() and not resume:
        raise InvalidInputError(
            f"{journal} is there already: go on with --resume, or name another --out"
        )
    console = Console()
    model = _setup.load_model(model_name, settings["dtype"])
    embedder = default_embedder()
    tools = Tools.of(embedder, settings["seed"])
    chosen = choose(methods, tools)
    identity = {
        **settings,
        "data_hash": data_hash(questions),
        "model": model.name,
        "embedder": embedder.name,
        "version": __version__,
    }
    with (
        EvidenceJournal(journal, identity) as rows,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        ) as bar,
    ):
        job = bar.add_task("questions", total=len(asked))
        run_methods(
            asked,
            chosen,
            finder=CandidateFinder(tools.hybrid, model, settings["pool_size"]),
            model=model,
            journal=rows,
            seed=settings["seed"],
            progress=lambda done, _total: bar.update(job, completed=done),
        )
        found = [rows.rows[question.id] for question in asked]
    for name in methods:
        measured = [(row, row.methods[name]) for row in found if name in row.methods]
        f1 = fmean(evidence_f1(ordered.order, row.evidence) for row, ordered in measured)
        tokens = fmean(ordered.scored_tokens for _, ordered in measured)
        seconds = fmean(ordered.seconds for _, ordered in measured)
        console.print(f"{name:44} F1 {f1:.3f}, {tokens:.0f} tokens, {seconds:.2f} s")
