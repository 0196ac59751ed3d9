"""``python -m benchmarks calibration``: whether 3 of 10 passages that are said to help with .3 do.

On lists that a ranker found, whose passages are much alike, and of lengths that retrievers return.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from tqdm import tqdm

from benchmarks.commands.answerable import SIZES, Asked, ask, auc
from benchmarks.datasets.evidence import read_dataset
from benchmarks.datasets.hub import data_file
from benchmarks.drawing import markdown_table
from benchmarks.evidence.questions import EvidenceQuestion, sample
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker, make_ranker
from ecs_plugins.shaping import LabelledExample
from ecs_plugins.shaping.deadline import ScoredOnce
from ecs_plugins.shaping.probability import SHIPPED, ProbabilityFit
from ecs_plugins.shaping.statistics import folds

HELP = """Calibration of the shipped probability on lists of 3 to 40 sentences that convex found.

\b
  python -m benchmarks calibration hotpotqa=hotpot.json squad=squad.json locomo=locomo.json

The weight of `crowd`, with which a longer list lowers the probability of all, is fitted to four
fifths of the questions, with the other weights held, and measured on the others. LoCoMo is measured
only: its licence does not allow to ship what is learned from it. The last line is the weight
fitted to all questions, which the package ships.
"""
SHOWN = (10, 20, 40)
"""Lengths of lists in the table."""
MEASURED_ONLY = ("locomo",)

_BINS = np.linspace(0.0, 1.0, 11)
_WEIGHTS = np.arange(-3.0, 0.01, 0.05)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FoundList:
    """A list of passages of one question, what is said of them, and which help."""

    question: int
    passages: int
    asked: Asked

    @property
    def labels(self) -> npt.NDArray[np.bool_]:
        """Which are evidence, ``[passages]``."""
        return np.array(self.asked.labels)

    @property
    def dataset(self) -> str:
        """Where the question is from."""
        return self.asked.dataset


def calibration(
    data: Annotated[list[str], typer.Argument(metavar="NAME=FILE...", help="Evidence data sets.")],
    limit: Annotated[int, typer.Option(min=5, help="Questions of each, a sample.")] = 50,
    dtype: Annotated[str, typer.Option(help="Of the bundled model.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of samples and folds.")] = 42,
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.lm import LocalLM
    from ecs_plugins.ranking.embedder import default_embedder

    model = LocalLM.bundled(dtype=dtype)
    ranker = make_ranker("convex", default_embedder())
    lists: list[FoundList] = []
    for name, _, file in (each.partition("=") for each in data):
        questions = sample(read_dataset(name, data_file(file)), limit=limit, seed=seed)
        for question in tqdm(questions, desc=name):
            lists += found_lists(model, ranker, question, number=len(lists), dataset=name)
    shipped = SHIPPED[model.name, "query_likelihood+bm25"]
    typer.echo(table(lists, shipped, seed=seed))
    weight = crowd_weight([each for each in lists if each.dataset not in MEASURED_ONLY], shipped)
    typer.echo(f"weight of crowd, fitted to all: {weight:.2f}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        rows = [asdict(each) for each in lists]
        out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def found_lists(
    model: LanguageModel, ranker: Ranker, question: EvidenceQuestion, number: int, dataset: str
) -> list[FoundList]:
    """Lists of `SIZES` with the evidence among the best of a ranker, where it is among them."""
    order = ranker.rank(question.question, question.units).order[: max(SIZES)]
    evidence = [index for index in order if index in question.evidence]
    others = [index for index in order if index not in question.evidence]
    if not evidence:
        return []
    once = ScoredOnce(model)
    lists: list[FoundList] = []
    for size in SIZES:
        helping = evidence[: max(1, size // 2)]
        chosen = sorted([*helping, *others[: size - len(helping)]])
        labels = [place for place, index in enumerate(chosen) if index in evidence]
        passages = tuple(question.units[index] for index in chosen)
        if len(passages) == len(labels):
            continue
        example = LabelledExample(question.question, passages, tuple(labels))
        lists.append(FoundList(number, size, ask(once, example, dataset, "auto")))
    return lists


def with_crowd(fit: ProbabilityFit, weight: float) -> ProbabilityFit:
    """The same fit with another weight of ``crowd``."""
    return ProbabilityFit(fit.intercept, {**fit.weights, "crowd": weight})


def crowd_weight(lists: Sequence[FoundList], fit: ProbabilityFit) -> float:
    """The most likely weight of ``crowd``, the others held, to 1/20."""
    labels = np.concatenate([each.labels for each in lists])
    losses: list[float] = []
    for weight in _WEIGHTS:
        likely = _likely(lists, with_crowd(fit, float(weight)))
        right = np.where(labels, likely, 1.0 - likely)
        losses.append(-float(np.log(np.maximum(right, 1e-12)).sum()))
    return float(_WEIGHTS[int(np.argmin(losses))])


def _likely(lists: Sequence[FoundList], fit: ProbabilityFit) -> Floats:
    return np.array([fit.of(part) or 0.0 for each in lists for part in each.asked.with_evidence])


def calibration_error(likely: Floats, labels: npt.NDArray[np.bool_]) -> float:
    """Expected calibration error in ten bins of equal width (Naeini et al. 2015)."""
    at = np.clip(np.digitize(likely, _BINS) - 1, 0, len(_BINS) - 2)
    error = 0.0
    for place in np.unique(at):
        inside = at == place
        away = likely[inside].mean() - labels[inside].mean()
        error += float(inside.mean() * abs(away))
    return error


def table(lists: Sequence[FoundList], shipped: ProbabilityFit, *, seed: int) -> str:
    """Markdown: calibration error by length and AUC of `answerable`; without crowd in brackets."""
    held = _held_out(lists, shipped, seed)
    plain = [with_crowd(shipped, 0.0)] * len(lists)
    rows: list[list[str]] = []
    for dataset in dict.fromkeys(each.dataset for each in lists):
        questions = {each.question for each in lists if each.dataset == dataset}
        row = [f"{dataset} ({len(questions)})"]
        for size in SHOWN:
            numbers = [
                number
                for number, each in enumerate(lists)
                if each.dataset == dataset and each.passages == size
            ]
            row.append(f"{_error(lists, held, numbers):.3f} ({_error(lists, plain, numbers):.3f})")
        numbers = [number for number, each in enumerate(lists) if each.dataset == dataset]
        row.append(f"{_told(lists, held, numbers):.3f} ({_told(lists, plain, numbers):.3f})")
        rows.append(row)
    return markdown_table(["", *map(str, SHOWN), "AUC"], rows)


def _held_out(
    lists: Sequence[FoundList], shipped: ProbabilityFit, seed: int
) -> list[ProbabilityFit]:
    """For each list a fit that has not seen its question."""
    questions = sorted({each.question for each in lists})
    fits = [shipped] * len(lists)
    for inside, _ in folds(np.arange(len(questions)), seed=seed):
        seen = {questions[place] for place in np.flatnonzero(inside).tolist()}
        learned = [
            each for each in lists if each.question in seen and each.dataset not in MEASURED_ONLY
        ]
        fit = with_crowd(shipped, crowd_weight(learned, shipped)) if learned else shipped
        for number, each in enumerate(lists):
            if each.question not in seen:
                fits[number] = fit
    return fits


def _error(
    lists: Sequence[FoundList], fits: Sequence[ProbabilityFit], numbers: Sequence[int]
) -> float:
    if not numbers:
        return float("nan")
    likely = np.concatenate([_likely([lists[number]], fits[number]) for number in numbers])
    labels = np.concatenate([lists[number].labels for number in numbers])
    return calibration_error(likely, labels)


def _told(
    lists: Sequence[FoundList], fits: Sequence[ProbabilityFit], numbers: Sequence[int]
) -> float:
    """AUC of the largest probability, of lists with their evidence against those without."""
    there = [_likely([lists[number]], fits[number]).max() for number in numbers]
    removed = [
        max(fits[number].of(part) or 0.0 for part in lists[number].asked.without)
        for number in numbers
    ]
    return float(auc(there, removed))
