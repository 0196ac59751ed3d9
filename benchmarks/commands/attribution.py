"""``python -m benchmarks attribution``: citations of gold answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.datasets.evidence import read_dataset
from benchmarks.datasets.hub import data_file
from benchmarks.evidence.citations import (
    CITED,
    OF_ONE,
    WAYS,
    CitedStatement,
    cited_alone,
    cited_statements,
    evidence_found,
    fitted,
)
from benchmarks.evidence.questions import sample
from benchmarks.intervals import interval

HELP = """How much of the evidence of gold answers is cited, beside counting words.

\b
  python -m benchmarks attribution squad=squad.json hotpotqa=hotpot.json musique=musique.json

Units are sentences, or turns of a conversation. Fits are measured on questions that they were not
learned from; the last one, of all questions but LoCoMo's, is what the package ships.
"""
LEARNED_FROM = ("squad", "hotpotqa", "musique")
"""Data sets with licences for shipped numbers. LoCoMo has none, so it is only measured."""


def attribution(
    data: Annotated[
        list[str],
        typer.Argument(metavar="NAME=FILE...", help="squad, hotpotqa, musique or locomo."),
    ],
    limit: Annotated[int, typer.Option(min=1, help="Questions of each, a sample.")] = 70,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of samples and folds.")] = 7,
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.lm import LocalLM
    from ecs_plugins.ranking.registry import make_ranker

    model = LocalLM.bundled()
    ranker = make_ranker("convex", None)
    statements: list[CitedStatement] = []
    for name, _, file in (each.partition("=") for each in data):
        unit = "turn" if name == "locomo" else "sentence"
        questions = read_dataset(name, data_file(file), unit=unit)
        chosen = sample(questions, limit=limit, seed=seed)
        statements += cited_statements(name, chosen, model, ranker)
    typer.echo("\n".join(report(statements, seed)))
    known = [each for each in statements if each.dataset in LEARNED_FROM]
    fit = fitted(known)
    fit_of_one = fitted(known, OF_ONE)
    typer.echo(f"fitted to all: {fit}")
    typer.echo(f"fitted to units one by one: {fit_of_one}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        fits = {"fit": asdict(fit), "fit_of_one": asdict(fit_of_one)}
        written = {**fits, "statements": [asdict(each) for each in statements]}
        out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def report(statements: Sequence[CitedStatement], seed: int) -> list[str]:
    """A row for each set and kind of statement, and the fit's lead over counting words."""
    shares = evidence_found(statements, LEARNED_FROM, seed)
    columns = (*WAYS, *CITED)
    lines = [f"{'':22}{'n':>4}" + "".join(f"{column:>9}" for column in columns)]
    for (dataset, kind), row in shares.items():
        means = "".join(f"{np.nanmean(row[column]):9.3f}" for column in columns)
        lines.append(f"{dataset + ', ' + kind:22}{len(row['fitted']):4}{means}")
    for way in ("words", "bm25"):
        lead = np.concatenate([row["fitted"] - row[way] for row in shares.values()])
        low, high = interval(np.mean, lead, seed=seed)
        lines.append(f"fitted - {way}: {lead.mean():+.3f} [{low:+.3f}, {high:+.3f}]")
    rightly, wrongly = cited_alone(statements, LEARNED_FROM, seed)
    lines.append(f"one by one, cited: {rightly:.3f} of the evidence, {wrongly:.3f} of the rest")
    return lines
