"""``python -m benchmarks calibration``: whether 3 of 10 passages that are said to help with .3 do.

On lists that a ranker found, whose passages are much alike, and on drawn ones; of lengths that
retrievers return; each with its evidence and with another passage in place of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.progress import track

from benchmarks.commands.answerable import auc
from benchmarks.datasets.evidence import read_dataset
from benchmarks.datasets.hub import data_file
from benchmarks.evidence.questions import EvidenceQuestion, sample
from benchmarks.scored_once import ScoredOnce
from benchmarks.tables import markdown_table
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.journal import Journal
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker
from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.probability import ProbabilityFit
from ecs_plugins.shaping.statistics import folds

HELP = """Learn the probability that a passage helps, and measure it on questions held out.

\b
  python -m benchmarks calibration hotpotqa=hotpot.json squad=squad.json locomo=locomo.json \\
      --out out/calibration.db

Lists of 3 to 40 passages, which convex found or chance drew, with their evidence and without. The
fit to four fifths of the questions is measured on the others; the last line is the fit to all,
which the package ships. LoCoMo is measured only: its licence does not allow to ship what is learned
from it. Every question is on disk in --out before the next begins; the same command goes on from
there.
"""
SIZES = (3, 5, 10, 20, 40)
"""Lengths of lists."""
SHOWN = (10, 20, 40)
"""Probabilities in the table."""
CUTS = (0.1, 0.15, 0.2, 0.3)
"""Thresholds of the largest probability, below which one abstains."""
MEASURED_ONLY = ("locomo",)
FOUND = "found"
DRAWN = "drawn"

_KIND = ("ecs_plugins.calibration", 1)
_BINS = np.linspace(0.0, 1.0, 11)

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Listed:
    """Passages of one question, with their scores and labels.

    Attributes:
        dataset: Where the question is from.
        question: Its id.
        group: Of the question, such as its article.
        others: Whether the other passages are those that a ranker `FOUND`, or were `DRAWN`.
        size: How many passages there should be; where there are no more others, it is one less.
        parts: Of every passage, what a signal says.
        labels: Which of them are evidence; none where it was taken out.
    """

    dataset: str
    question: str
    group: str
    others: str
    size: int
    parts: Sequence[Mapping[str, float]]
    labels: Sequence[bool]

    @property
    def has_evidence(self) -> bool:
        """Return True if any passage helps."""
        return any(self.labels)


def calibration(
    data: Annotated[list[str], typer.Argument(metavar="NAME=FILE...", help="Evidence data sets.")],
    limit: Annotated[int, typer.Option(min=5, help="Questions of each, a sample.")] = 50,
    dtype: Annotated[str, typer.Option(help="Of the bundled model.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Journal; printed only without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of samples and folds.")] = 42,
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.lm import LocalLM
    from ecs_plugins.ranking.embedder import default_embedder

    model = LocalLM.bundled(dtype=dtype)
    ranker = make_ranker("convex", default_embedder())
    lists: list[Listed] = []
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    with closing(Journal(out, _KIND, {"dtype": dtype, "seed": seed})) as journal:
        known = _known(journal.records)
        for name, _, file in (each.partition("=") for each in data):
            questions = sample(read_dataset(name, data_file(file)), limit=limit, seed=seed)
            for question in track(questions, description=name):
                key = f"{name} {question.id}"
                if key not in known:
                    known[key] = found_lists(model, ranker, question, name, seed=seed)
                    journal.append({"key": key, "lists": [asdict(each) for each in known[key]]})
                lists += known[key]
    typer.echo("\n".join(report(lists, seed=seed)))


def _known(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Listed]]:
    return {each["key"]: [Listed(**listed) for listed in each["lists"]] for each in records}


def found_lists(
    model: LanguageModel,
    ranker: Ranker,
    question: EvidenceQuestion,
    dataset: str,
    *,
    seed: int = 42,
) -> list[Listed]:
    """Lists of `SIZES` of the best of a ranker, if the evidence is among them.

    At most half of a list is evidence.
    """
    order = ranker.rank(question.question, question.units).order[: max(SIZES)]
    evidence = [index for index in order if index in question.evidence]
    best_others = [index for index in order if index not in question.evidence]
    drawn_others = list(best_others)
    random.Random(f"{seed}:{question.id}").shuffle(drawn_others)
    once = ScoredOnce(model)
    lists: list[Listed] = []
    if not evidence:
        return lists
    for others, from_these in ((FOUND, best_others), (DRAWN, drawn_others)):
        for size in SIZES:
            if others == DRAWN and size >= len(order):
                continue  # all of them
            helping = evidence[: max(1, size // 2)]
            with_evidence = [*helping, *from_these[: size - len(helping)]]
            for chosen in (with_evidence, from_these[:size]):
                in_order = sorted(chosen)
                passages = [question.units[index] for index in in_order]
                said = said_of(once, question.question, passages)
                labels = [in_order[place] in evidence for place in said]
                parts = list(said.values())
                lists.append(
                    Listed(dataset, question.id, question.group, others, size, parts, labels)
                )
    return lists


def said_of(
    model: LanguageModel, question: str, passages: Sequence[str]
) -> dict[int, dict[str, float]]:
    """Return the default signal's scores of all distinct passages."""
    config = ShapingConfig(ranker=None, redundancy_similarity=None, on_error="raise")
    shaped = ContextShaper(model, config).shape(question, passages)
    said: dict[int, dict[str, float]] = {}
    for verdict in shaped.verdicts:
        if verdict.utility is not None:
            said[verdict.index] = {**verdict.parts, "utility": verdict.utility}
    return said


def fitted(lists: Sequence[Listed]) -> ProbabilityFit:
    """The fit to all passages of these lists, but of those that are measured only.

    Raises:
        InvalidInputError: There are none, or all are evidence, or none is.
    """
    learned = [each for each in lists if each.dataset not in MEASURED_ONLY]
    parts: list[Mapping[str, float]] = []
    labels: list[bool] = []
    for each in learned:
        parts += each.parts
        labels += each.labels
    found = ProbabilityFit.fitted(parts, labels)
    if found is None:
        raise InvalidInputError(
            "nothing to learn from: name a data set other than " + ", ".join(MEASURED_ONLY)
        )
    return found


def held_out(lists: Sequence[Listed], *, seed: int) -> list[Floats]:
    """The probability of every passage, by a fit that has not seen its question's group."""
    said: list[Floats] = [np.empty(0)] * len(lists)
    _, groups = np.unique([each.group for each in lists], return_inverse=True)
    for inside, outside in folds(groups, seed=seed):
        fit = fitted([lists[number] for number in np.flatnonzero(inside).tolist()])
        for number in np.flatnonzero(outside).tolist():
            parts = lists[number].parts
            said[number] = np.array([fit.of(part) or 0.0 for part in parts])
    return said


def calibration_error(likely: Floats, labels: Labels) -> float:
    """Expected calibration error in ten bins of equal width (Naeini et al. 2015)."""
    at = np.clip(np.digitize(likely, _BINS) - 1, 0, len(_BINS) - 2)
    error = 0.0
    for place in np.unique(at):
        inside = at == place
        away = likely[inside].mean() - labels[inside].mean()
        error += float(inside.mean() * abs(away))
    return error


def report(lists: Sequence[Listed], *, seed: int = 42) -> list[str]:
    """Tables of errors and of abstaining by data set, and the fit to all."""
    said = held_out(lists, seed=seed)
    lines: list[str] = []
    for others in (FOUND, DRAWN):
        lines += [f"the other passages were {others}", ""]
        chosen = [number for number, each in enumerate(lists) if each.others == others]
        lines += [_table([lists[n] for n in chosen], [said[n] for n in chosen]), ""]
    lines.append(f"fitted to all: {fitted(lists)}")
    return lines


def _table(lists: Sequence[Listed], said: Sequence[Floats]) -> str:
    """Calibration error by length, in brackets of lists with evidence alone; abstaining."""
    rows: list[list[str]] = []
    for dataset in dict.fromkeys(each.dataset for each in lists):
        here = [number for number, each in enumerate(lists) if each.dataset == dataset]
        questions = {lists[number].question for number in here}
        row = [f"{dataset} ({len(questions)})"]
        for size in SHOWN:
            of_size = [number for number in here if lists[number].size == size]
            helped = [number for number in of_size if lists[number].has_evidence]
            row.append(f"{_error(lists, said, of_size):.3f} ({_error(lists, said, helped):.3f})")
        there = np.array([said[n].max() for n in here if lists[n].has_evidence])
        removed = np.array([said[n].max() for n in here if not lists[n].has_evidence])
        row.append(f"{auc(there, removed):.3f}")
        row += [f"{(removed < cut).mean():.2f}, {(there < cut).mean():.2f}" for cut in CUTS]
        rows.append(row)
    return markdown_table(["", *map(str, SHOWN), "AUC", *(f"below {cut:g}" for cut in CUTS)], rows)


def _error(lists: Sequence[Listed], said: Sequence[Floats], numbers: Sequence[int]) -> float:
    if not numbers:
        return float("nan")
    likely = np.concatenate([said[number] for number in numbers])
    labels = np.concatenate([lists[number].labels for number in numbers])
    return calibration_error(likely, labels.astype(bool))
