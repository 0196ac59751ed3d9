"""``python -m benchmarks answerable``: how well a probability tells that nothing here answers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from benchmarks.datasets.contexts import read_contexts
from benchmarks.datasets.evidence import read_dataset
from benchmarks.datasets.hub import data_file
from benchmarks.evidence.questions import sample
from benchmarks.intervals import interval
from benchmarks.scored_once import ScoredOnce
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping import ContextShaper, LabelledExample, ShapedContext, ShapingConfig
from ecs_plugins.shaping.probability import ProbabilityFit
from ecs_plugins.shaping.statistics import folds

HELP = """How well the default tells questions from the same ones without their evidence.

\b
  python -m benchmarks answerable hotpotqa=hotpot.json squad=squad.json --out out/answerable.json

Of SQuAD, sentences of the article; of HotpotQA and MuSiQue, paragraphs: 3, 5, 10, 20 or 40 of them
by question, or as many as there are. The probability is fitted to four fifths of all questions,
each with its evidence and without, and measured on the others.
"""
SIZES = (3, 5, 10, 20, 40)
"""Interval over lists of passages, drawn by question."""
CUTOFFS = (0.2, 0.3, 0.4, 0.5)
"""Thresholds of the largest probability, below which one abstains."""

Parts = tuple[Mapping[str, float], ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """Question with the signal's probabilities, with and without its evidence."""

    dataset: str
    labels: tuple[bool, ...]
    with_evidence: Parts
    without: Parts


def answerable(
    data: Annotated[
        list[str], typer.Argument(metavar="NAME=FILE...", help="hotpotqa, musique or squad.")
    ],
    limit: Annotated[int, typer.Option(min=1, help="Questions of each, a sample.")] = 50,
    signal: Annotated[str, typer.Option(help="Of those that need no answer.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the bundled model.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of samples and folds.")] = 42,
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.lm import LocalLM

    model = LocalLM.bundled(dtype=dtype)
    asked: list[Asked] = []
    for name, _, file in (each.partition("=") for each in data):
        examples = read(name, data_file(file), limit, seed)
        asked += [ask(model, example, name, signal) for example in examples]
    typer.echo("\n".join(report(asked, seed=seed)))
    fit = fitted(asked)
    typer.echo(f"fitted to all: {fit}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        found: dict[str, Any] = {"fit": asdict(fit), "asked": [asdict(each) for each in asked]}
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read(name: str, file: Path, limit: int, seed: int) -> list[LabelledExample]:
    """A sample of questions, each with its evidence among other passages of its own context."""
    found: list[tuple[str, Sequence[str], Sequence[int]]]
    if name == "squad":
        drawn = sample(read_dataset(name, file), limit=limit, seed=seed)
        found = [(each.question, each.units, each.evidence) for each in drawn]
    elif name in ("hotpotqa", "musique"):
        contexts = read_contexts(name, file)
        random.Random(seed).shuffle(contexts)
        found = [
            (
                each.question,
                [f"{one.title}\n{one.text.strip()}" for one in each.context.documents],
                each.supporting,
            )
            for each in contexts[:limit]
        ]
    else:
        raise InvalidInputError(f"unknown data set {name!r}: use hotpotqa, musique or squad")
    examples = []
    for question, units, evidence in found:
        others = [n for n in range(len(units)) if n not in evidence]
        draw = random.Random(f"{seed}:{question}")
        size = min(len(others), max(1, draw.choice(SIZES) - len(evidence)))
        chosen = sorted([*evidence, *draw.sample(others, size)])
        labels = [n for n, unit in enumerate(chosen) if unit in evidence]
        examples.append(LabelledExample(question, tuple(units[n] for n in chosen), tuple(labels)))
    return examples


def ask(model: LanguageModel, example: LabelledExample, dataset: str, signal: str) -> Asked:
    """Shape the passages of one question, and those that are no evidence alone."""
    config = ShapingConfig(
        signal=signal,
        ranker=None,
        redundancy_similarity=None,
        on_error="raise",
    )
    shaper = ContextShaper(ScoredOnce(model), config)
    others = [
        text for text, label in zip(example.passages, example.labels, strict=True) if not label
    ]
    shaped = shaper.shape(example.question, example.passages, read_as=example.passages)
    scored = [n for n, verdict in enumerate(shaped.verdicts) if verdict.utility is not None]
    return Asked(
        dataset,
        tuple(example.labels[n] for n in scored),
        _parts(shaped),
        _parts(shaper.shape(example.question, others)),
    )


def _parts(shaped: ShapedContext) -> Parts:
    return tuple(
        {**verdict.parts, "utility": verdict.utility}
        for verdict in shaped.verdicts
        if verdict.utility is not None
    )


def fitted(asked: Sequence[Asked]) -> ProbabilityFit:
    """The fit to all passages of these questions, with the evidence and without."""
    parts: list[Mapping[str, float]] = []
    labels: list[bool] = []
    for each in asked:
        parts += [*each.with_evidence, *each.without]
        labels += [*each.labels, *[False] * len(each.without)]
    found = ProbabilityFit.fitted(parts, labels)
    if found is None:
        raise InvalidInputError("these questions have no evidence, or nothing else")
    return found


def report(asked: Sequence[Asked], *, seed: int = 42) -> list[str]:
    """One line per figure and data set, all of them on questions that were held out."""
    held: dict[int, tuple[list[float], float]] = {}
    for inside, outside in folds(np.arange(len(asked)), seed=seed):
        fit = fitted([asked[n] for n in np.flatnonzero(inside).tolist()])
        for n in np.flatnonzero(outside).tolist():
            found = [fit.of(part) or 0.0 for part in asked[n].with_evidence]
            held[n] = found, max(fit.of(part) or 0.0 for part in asked[n].without)
    lines: list[str] = []
    for dataset in dict.fromkeys(each.dataset for each in asked):
        numbers = [n for n, each in enumerate(asked) if each.dataset == dataset]
        there = np.array([max(held[n][0]) for n in numbers])
        removed = np.array([held[n][1] for n in numbers])
        low, high = interval(auc, there, removed)
        lines.append(
            f"{dataset}, {len(numbers)} questions: AUC {auc(there, removed):.3f} "
            f"[{low:.3f}, {high:.3f}]"
        )
        for cutoff in CUTOFFS:
            right, wrong = int((removed < cutoff).sum()), int((there < cutoff).sum())
            lines.append(
                f"  abstaining below {cutoff}: precision {right / max(1, right + wrong):.2f}, "
                f"recall {right / len(numbers):.2f}"
            )
        likely = np.concatenate([held[n][0] for n in numbers])
        labels = np.concatenate([asked[n].labels for n in numbers])
        lines.append(f"  Brier score of passages {np.mean((likely - labels) ** 2):.4f}")
        for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.7), (0.7, 1.01)):
            at = (likely >= low) & (likely < high)
            if at.any():
                lines.append(
                    f"  said {likely[at].mean():.2f}, evidence {labels[at].mean():.2f} ({at.sum()})"
                )
    return lines


def auc(there: npt.ArrayLike, removed: npt.ArrayLike, axis: int = -1) -> Any:
    """Probability that a question has more with its evidence than another one without."""
    from scipy.stats import mannwhitneyu  # takes long to import

    pairs = np.shape(there)[axis] * np.shape(removed)[axis]
    return mannwhitneyu(there, removed, axis=axis).statistic / pairs
