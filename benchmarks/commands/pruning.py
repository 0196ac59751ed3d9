"""``python -m benchmarks pruning``: what is lost when sentences are left out of kept passages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.commands import DataFile
from benchmarks.intervals import interval
from ecs_plugins.frontier import CalibrationQuestion
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.shaping import ContextShaper, ShapedContext, ShapingConfig, Verdict

HELP = """How often the answer's text survives when only sentences that help are kept.

\b
  python -m benchmarks pruning squad --data squad.json --out out/pruning-squad.json

Of SQuAD, HotpotQA or MuSiQue: the passages with the answer among others of the same article or
question. Compared with keeping whole passages, best first, in as many characters. Of the sample,
questions that are answered by yes or no are left out: these words stand anywhere.
"""
_POLAR = frozenset({"yes", "no"})


@dataclass(frozen=True, slots=True)
class Pruned:
    """One question.

    Attributes:
        question: As asked.
        given: Characters of all passages.
        whole: Characters of the kept passages.
        pruned: Characters of what stays of them.
        in_whole: Whether an answer stands in the kept passages.
        in_pruned: Whether one stands in what stays of them.
        in_budget: Whether one stands in the best whole passages that take no more characters.
    """

    question: str
    given: int
    whole: int
    pruned: int
    in_whole: bool
    in_pruned: bool
    in_budget: bool


def pruning(
    dataset: Annotated[str, typer.Argument(help="squad, hotpotqa or musique.")],
    data: DataFile,
    limit: Annotated[int, typer.Option(min=1, help="A sample of so many questions.")] = 50,
    skip: Annotated[int, typer.Option(min=0, help="Leave out the first of the sample.")] = 0,
    passages: Annotated[int, typer.Option(min=2, help="Passages per question.")] = 10,
    top_k: Annotated[int | None, typer.Option(min=1, help="Kept before they are pruned.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the bundled model.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample and the other passages.")] = 42,
) -> None:
    """See `HELP`, which the command line shows."""
    from benchmarks.datasets.contexts import read_contexts
    from ecs_plugins.lm import LocalLM

    found = [q for q in read_contexts(dataset, data) if any(a in q.context.text for a in q.answers)]
    random.Random(seed).shuffle(found)
    model = LocalLM.bundled(dtype=dtype)
    chosen = [q for q in found[skip : skip + limit] if not _POLAR.issuperset(q.answers)]
    rows = measure(model, chosen, passages, top_k=top_k, seed=seed)
    typer.echo("\n".join(summary(rows)))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def measure(
    model: LanguageModel,
    questions: Sequence[CalibrationQuestion],
    passages: int,
    *,
    top_k: int | None = None,
    embedder: Embedder | None = None,
    seed: int = 42,
) -> list[Pruned]:
    """Shape the passages of every question by sentences."""
    shaper = ContextShaper(model, ShapingConfig(unit="sentence", top_k=top_k), embedder=embedder)
    return [
        _compared(shaper.shape(q.question, shown(q, passages, seed)), q.answers) for q in questions
    ]


def shown(question: CalibrationQuestion, passages: int, seed: int) -> list[str]:
    """Those that support the answer and some others, each behind its title, in their order."""
    documents = question.context.documents
    draw = random.Random(f"{seed}:{question.question}")
    others = [n for n in range(len(documents)) if n not in question.supporting]
    size = max(0, passages - len(question.supporting))
    chosen = sorted({*question.supporting, *draw.sample(others, min(size, len(others)))})
    return [f"{documents[n].title}\n{documents[n].text.strip()}" for n in chosen]


def _compared(shaped: ShapedContext, answers: Sequence[str]) -> Pruned:
    # One that has lost every sentence is no longer kept, but was selected.
    selected = [v for v in shaped.ranked if v.verdict is Verdict.SELECTED]
    best: list[str] = []
    for verdict in selected:
        if sum(map(len, best)) + len(verdict.text) <= len(shaped.text):
            best.append(verdict.text)
    whole = "\n\n".join(verdict.text for verdict in selected)
    return Pruned(
        question=shaped.query,
        given=sum(len(verdict.text) for verdict in shaped.verdicts),
        whole=len(whole),
        pruned=len(shaped.text),
        in_whole=_holds(whole, answers),
        in_pruned=_holds(shaped.text, answers),
        in_budget=_holds("\n".join(best), answers),
    )


def _holds(text: str, answers: Sequence[str]) -> bool:
    return any(answer.casefold() in text.casefold() for answer in answers)


def summary(rows: Sequence[Pruned]) -> list[str]:
    """One line per figure."""
    asked = [row for row in rows if row.in_whole]
    lines = [
        f"{len(rows)} questions; the kept passages hold the answer of {len(asked)}, and take "
        f"{_share(rows, 'whole', 'given'):.1%} of the characters that were given",
        f"fewer characters by sentences: {1 - _share(rows, 'pruned', 'whole'):.1%}",
    ]
    for name, what in (
        ("in_pruned", "the answer stays, by sentences"),
        ("in_budget", "the answer stays, whole passages in as many characters"),
    ):
        values = [float(getattr(row, name)) for row in asked]
        low, high = interval(np.mean, values) if values else (0.0, 0.0)
        lines.append(f"{what}: {sum(values) / max(1, len(asked)):.1%} [{low:.1%}, {high:.1%}]")
    return lines


def _share(rows: Sequence[Pruned], part: str, whole: str) -> float:
    total = sum(getattr(row, whole) for row in rows)
    return float(sum(getattr(row, part) for row in rows) / max(1, total))
