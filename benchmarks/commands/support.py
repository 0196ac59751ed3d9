"""``python -m benchmarks support``: whether what passages support is told from what they do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.datasets.evidence import read_dataset
from benchmarks.datasets.hub import data_file
from benchmarks.evidence.questions import sample
from benchmarks.evidence.support_cases import support_cases
from benchmarks.evidence.supported import (
    LEARNED_FROM,
    NAMES,
    WORDS,
    ReadCase,
    SupportRow,
    aucs,
    fitted,
    held_out,
    read_case,
    rows_of,
    strategy_quality,
)
from ecs_plugins.common.files import write_atomically

HELP = """How likely statements are called supported that are, and that are not.

\b
  python -m benchmarks support squad=squad.json hotpotqa=hotpot.json locomo=locomo.json

True and false statements are made of questions and answers by rule. The table is measured on
questions that it was not learned from; the last one, of all questions but LoCoMo's, is what the
package ships (--out writes it).
"""
_UNITS = {"squad": "paragraph", "hotpotqa": "paragraph", "musique": "paragraph", "locomo": "turn"}


def support(
    data: Annotated[
        list[str],
        typer.Argument(metavar="NAME=FILE...", help="squad, hotpotqa, musique or locomo."),
    ],
    limit: Annotated[int, typer.Option(min=1, help="Questions of each, a sample.")] = 70,
    out: Annotated[Path | None, typer.Option(help="Where the table is written (JSON).")] = None,
    seed: Annotated[int, typer.Option(help="Of samples, of what is drawn, and of folds.")] = 7,
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.lm import LocalLM

    model = LocalLM.bundled()
    reads: list[ReadCase] = []
    for name, _, file in (each.partition("=") for each in data):
        questions = read_dataset(name, data_file(file), unit=_UNITS[name])
        chosen = sample(questions, limit=limit, seed=seed)
        cases = support_cases(name, questions, chosen, seed)
        reads += [read_case(case, model) for case in cases]
    rows = [row for read in reads for row in rows_of(read)]
    typer.echo("\n".join(report(rows, seed)))
    typer.echo("\n".join(report_of_strategies(reads, rows, seed)))
    fit = fitted([row for row in rows if row.dataset in LEARNED_FROM], NAMES)
    table = {
        "learned_from": "SQuAD and HotpotQA (CC BY-SA 4.0) and MuSiQue (CC BY 4.0)",
        "intercept": round(fit.intercept, 3),
        "weights": {name: round(weight, 3) for name, weight in fit.weights.items()},
    }
    typer.echo(f"fitted to all: {table}")
    if out is not None:
        write_atomically(out, json.dumps(table, indent=1) + "\n")


def report(rows: Sequence[SupportRow], seed: int) -> list[str]:
    """AUC of the fit and of words alone, a row for each set and comparison."""
    ours = aucs(rows, held_out(rows, NAMES, seed))
    words = aucs(rows, held_out(rows, WORDS, seed))
    covered = aucs(rows, np.array([row.features["covered"] for row in rows]))
    lines = [f"{'':40}{'true':>6}{'false':>6}{'fit':>8}{'words':>8}{'overlap':>9}"]
    for key, (value, true, false) in ours.items():
        name = ", ".join(key)
        others = f"{words[key][0]:8.3f}{covered[key][0]:9.3f}"
        lines.append(f"{name:40}{true:6}{false:6}{value:8.3f}{others}")
    return lines


def report_of_strategies(
    reads: Sequence[ReadCase], rows: Sequence[SupportRow], seed: int
) -> list[str]:
    """Mean support beside F1 of strategies, and their rank correlation, by data set."""
    from scipy.stats import spearmanr

    lines: list[str] = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [read for read in reads if read.case.dataset == dataset]
        quality = strategy_quality(own, rows, seed)
        supports, scores = zip(*quality.values(), strict=True)
        correlation = spearmanr(supports, scores).statistic
        told = ", ".join(f"{name} {mine:.2f}/{f1:.2f}" for name, (mine, f1) in quality.items())
        lines.append(f"{dataset}: rank correlation {correlation:.2f} of {len(own)}; {told}")
    return lines
