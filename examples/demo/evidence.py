"""Part 1: which turns each method keeps, at equal k, and what that costs in tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.table import Table
from rich.text import Text

from benchmarks.drawing import new_figure
from benchmarks.intervals import interval
from ecs_plugins.errors import MissingExtraError
from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from examples.demo.context import Demo, table
from examples.demo.data import Question, choose

K = 5
"""Turns that every method may keep."""
DEPTHS = range(1, 11)
ECS = "ECS"

# Okabe and Ito's palette, which stays apart for colour-blind readers; ECS stands out.
_COLOURS = {
    "TF-IDF": "#999999",
    "BM25": "#56B4E9",
    "dense": "#009E73",
    "convex": "#E69F00",
    ECS: "#D55E00",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What every method did for one question.

    Attributes:
        question: The question.
        orders: Method -> ids of turns, best first.
        pool: Ids that ECS could choose from.
        tokens_kept: Tokens of the turns that ECS keeps.
    """

    question: Question
    orders: dict[str, tuple[str, ...]]
    pool: tuple[str, ...]
    tokens_kept: int

    def recall(self, method: str, k: int) -> float:
        """Share of the evidence among the first ``k``."""
        return recall(self.orders[method], self.question.evidence, k)


def recall(order: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Share of the evidence that is among the first ``k``."""
    return len(set(order[:k]) & set(evidence)) / len(set(evidence))


def run(demo: Demo) -> None:
    """Compare, print, and save the figure."""
    outcomes = compare(demo, choose(demo.data.questions, demo.limit))
    methods = list(outcomes[0].orders)
    means = {method: _means(outcomes, method) for method in methods}
    demo.console.print(_per_question(outcomes, methods))
    demo.console.print(_totals(outcomes, means))
    before = sum(demo.model.count_tokens([turn.passage for turn in demo.data.turns]))
    after = fmean(outcome.tokens_kept for outcome in outcomes)
    demo.say(
        f"Tokens to the answering model: {before:,} before (the whole conversation), "
        f"{after:,.0f} after (mean of {K} turns), {1 - after / before:.1%} less."
    )
    demo.results["evidence"] = {
        "k": K,
        "pool": demo.pool,
        "questions": [outcome.question.id for outcome in outcomes],
        "methods": means,
        "tokens_before": before,
        "tokens_after": after,
        "kept": {o.question.id: {m: list(o.orders[m][:K]) for m in methods} for o in outcomes},
    }
    curves = {m: [fmean(o.recall(m, k) for o in outcomes) for k in DEPTHS] for m in methods}
    try:
        demo.say(f"Figure: {_draw(demo.out / 'evidence.png', curves, len(outcomes))}")
    except MissingExtraError as error:
        demo.say(f"No figure: {error}")


def compare(demo: Demo, questions: Sequence[Question]) -> list[Outcome]:
    """Let every method order the turns for every question."""
    names = {"TF-IDF": "tfidf_query", "BM25": "bm25"}
    if demo.embedder is not None:
        names |= {"dense": "dense", "convex": "convex"}
    else:
        demo.say(
            "No embedder is installed: dense and convex are left out, and BM25 makes the pool. "
            'Install it with: pip install "ecs-plugins[offline]"'
        )
    rankers = {title: make_ranker(name, demo.embedder) for title, name in names.items()}
    config = ShapingConfig(
        ranker="bm25" if demo.embedder is None else "convex",
        pool_size=demo.pool,
        top_k=K,
        redundancy_similarity=None,  # every method may keep k turns, similar or not
        on_error="raise",
    )
    shaper = ContextShaper(demo.model, config, embedder=demo.embedder)
    ids = [turn.id for turn in demo.data.turns]
    passages = [turn.passage for turn in demo.data.turns]
    outcomes: list[Outcome] = []
    for question in demo.progress("choosing turns", questions):
        orders = {
            title: tuple(ids[i] for i in ranker.rank(question.question, passages).order)
            for title, ranker in rankers.items()
        }
        shaped = shaper.shape(question.question, passages)
        orders[ECS] = tuple(ids[verdict.index] for verdict in shaped.ranked)
        pool = tuple(ids[v.index] for v in shaped.verdicts if v.utility is not None)
        outcomes.append(Outcome(question, orders, pool, shaped.tokens_after))
    return outcomes


def _means(outcomes: Sequence[Outcome], method: str) -> dict[str, float]:
    """Means over questions; recall also over those that share no word with their evidence."""
    apart = [o for o in outcomes if o.question.overlap == "none"]
    sizes = [len(set(o.question.evidence)) for o in outcomes]
    found = [o.recall(method, K) for o in outcomes]
    out = {
        "precision": fmean(r * n / K for r, n in zip(found, sizes, strict=True)),
        "recall": fmean(found),
        "f1": fmean(o.recall(method, n) for o, n in zip(outcomes, sizes, strict=True)),
    }
    return out | ({"recall_none": fmean(o.recall(method, K) for o in apart)} if apart else {})


def _per_question(outcomes: Sequence[Outcome], methods: Sequence[str]) -> Table:
    shown = Table(
        title=f"The first {K} turns of each method, best first: ● is evidence, · is not",
        title_justify="left",
        caption="words: whether the question shares a content word with its evidence; "
        "of: how many turns are evidence",
        caption_justify="left",
    )
    shown.add_column("question", ratio=1)
    for name in ("category", "words", "of", *methods):
        shown.add_column(name, no_wrap=True)
    for outcome in outcomes:
        question = outcome.question
        marks = [
            Text("".join("●" if t in question.evidence else "·" for t in outcome.orders[m][:K]))
            for m in methods
        ]
        of = str(len(question.evidence))
        shown.add_row(question.question, question.category, question.overlap, of, *marks)
    return shown


def _totals(outcomes: Sequence[Outcome], means: Mapping[str, Mapping[str, float]]) -> Table:
    size = max(len(outcome.pool) for outcome in outcomes)
    ceiling = fmean(recall(o.pool, o.question.evidence, len(o.pool)) for o in outcomes)
    shown = table(
        f"Mean over {len(outcomes)} questions, {K} turns kept by every method",
        ["method"],
        ["precision", "recall [95 %]", "recall, no word shared", "F1 at k = |evidence|"],
        f"ECS chooses from {size} turns; {ceiling:.0%} of the evidence is among them.",
    )
    for method, values in means.items():
        low, high = interval(np.mean, [o.recall(method, K) for o in outcomes])
        shown.add_row(
            method,
            f"{values['precision']:.2f}",
            f"{values['recall']:.2f} [{low:.2f}, {high:.2f}]",
            f"{values['recall_none']:.2f}" if "recall_none" in values else "",
            f"{values['f1']:.2f}",
            style="bold" if method == ECS else "",
        )
    return shown


def _draw(path: Path, curves: Mapping[str, Sequence[float]], questions: int) -> Path:
    """Mean recall of each method at each depth, as a PNG; needs no display.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure, axes = new_figure((6, 4))
    for method, values in curves.items():
        width = 2.6 if method == ECS else 1.5
        axes.plot(DEPTHS, values, "o-", color=_COLOURS[method], label=method, linewidth=width)
    axes.axvline(K, color="#cccccc", linewidth=1, zorder=1)
    axes.set(xlabel="turns kept (k)", ylabel="evidence found (recall)", ylim=(0, 1))
    axes.set_xticks(list(DEPTHS))
    axes.set_title(f"Evidence found in a long conversation, {questions} questions", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    return path
