"""``python -m benchmarks signals``: evidence that the papers' signals find, next to rankers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import typer

from benchmarks.datasets.evidence import read_dataset
from benchmarks.datasets.hub import data_file
from benchmarks.evidence.metrics import auc, evidence_f1
from benchmarks.evidence.questions import EvidenceQuestion, sample
from benchmarks.evidence.signals import LongLLMLinguaRule
from benchmarks.tables import markdown_table
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel
    from ecs_plugins.ranking.embedder import Embedder
    from ecs_plugins.shaping.signals.base import Signal

HELP = """Evidence F1 and AUC of each signal of the papers, next to embeddings and BM25.

\b
  python -m benchmarks signals hotpotqa=hotpot.json locomo=locomo.json --limit 30

Each method orders the 20 units that the default ranker puts first. Signals that need the answer
get the published one; rankers are shown with and without it.
"""
_POOL: Final = 20
_SIGNALS: Final[tuple[str | Signal, ...]] = (
    LongLLMLinguaRule(),
    "query_likelihood",
    "distribution_shift",
    "trajectory_shift",
    "drafted_joint_shift",
    "judge",
    "auto",
)
_ANSWERED: Final[tuple[str | Signal, ...]] = ("answer_shift", "joint_shift", "joint_shift+bm25")

Order = Callable[[str, Sequence[str], str | None], Sequence[int]]
"""Function from question, units and answer to the places of units, best first."""


def signals(
    data: Annotated[
        list[str],
        typer.Argument(metavar="NAME=FILE...", help="squad, hotpotqa, musique or locomo."),
    ],
    limit: Annotated[int, typer.Option(min=1, help="Questions of each, a sample.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 42,
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.lm import LocalLM
    from ecs_plugins.ranking.embedder import default_embedder

    model, embedder = LocalLM.bundled(), default_embedder()
    questions = {
        name: sample(read_dataset(name, data_file(file)), limit=limit, seed=seed)
        for name, _, file in (each.partition("=") for each in data)
    }
    typer.echo(table(questions, orders_of(model, embedder), make_ranker("fused", embedder)))


def orders_of(model: LanguageModel, embedder: Embedder) -> dict[tuple[str, bool], Order]:
    """Return the methods by name and by their need of the answer."""
    rankers: dict[str, Ranker] = {
        "embeddings": make_ranker("dense", embedder),
        "BM25": BM25Ranker(),
    }
    found = {(name, False): _ranked(ranker) for name, ranker in rankers.items()}
    found |= {(_name(each), False): _scored(each, model, embedder) for each in _SIGNALS}
    found |= {(name, True): _ranked(ranker) for name, ranker in rankers.items()}
    return found | {(_name(each), True): _scored(each, model, embedder) for each in _ANSWERED}


def _name(signal: str | Signal) -> str:
    if signal == "auto":
        return "default"
    return signal if isinstance(signal, str) else signal.name


def _ranked(ranker: Ranker) -> Order:
    return lambda question, units, answer: (
        ranker.rank(f"{question} {answer or ''}".strip(), units).order
    )


def _scored(signal: str | Signal, model: LanguageModel, embedder: Embedder) -> Order:
    config = ShapingConfig(
        signal=signal, pool_size=_POOL, redundancy_similarity=None, on_error="raise"
    )
    shaper = ContextShaper(model, config, embedder=embedder)

    def order(question: str, units: Sequence[str], answer: str | None) -> Sequence[int]:
        shaped = shaper.shape(question, list(units), answer=answer)
        return [verdict.index for verdict in shaped.ranked]

    return order


def table(
    questions: Mapping[str, Sequence[EvidenceQuestion]],
    orders: Mapping[tuple[str, bool], Order],
    first_stage: Ranker,
) -> str:
    """Return a Markdown table with F1 and AUC of each method on each data set."""
    rows = [[name, "yes" if answered else "no"] for name, answered in orders]
    for own in questions.values():
        pools = [sorted(first_stage.rank(each.question, each.units).order[:_POOL]) for each in own]
        for row, ((_, answered), order) in zip(rows, orders.items(), strict=True):
            f1: list[float] = []
            areas: list[float] = []
            for each, pool in zip(own, pools, strict=True):
                answer = each.answers[0] if answered else None
                places = order(each.question, [each.units[index] for index in pool], answer)
                ordered = [pool[place] for place in places]
                f1.append(evidence_f1(ordered, each.evidence))
                area = auc(ordered, each.evidence)
                areas += [] if area is None else [area]
            row += [f"{np.mean(f1):.2f}", f"{np.mean(areas):.2f}" if areas else ""]
    heads = [
        f"{name} ({len(own)}) {kind}" for name, own in questions.items() for kind in ("F1", "AUC")
    ]
    return markdown_table(["method", "given the answer", *heads], rows)
