"""Part 1: which turns each method keeps, at equal k, and what that costs in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.demo import metrics
from examples.demo.context import Demo, shorten
from examples.demo.data import Question, choose

K = 5
"""Turns that every method may keep."""
POOL = 40
"""Turns that the ranker hands to the model, as by default; they bound what ECS can find."""

QUESTION_WIDTH = 40
"""Columns for the question, so that a table fits into 120."""

ECS = "ECS"
POOL_NAME = "hybrid"


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


def run(demo: Demo) -> None:
    """Compare, print, and save the figure."""
    questions = choose(demo.data.questions, demo.limit)
    outcomes = compare(demo, questions)
    methods = list(outcomes[0].orders)
    demo.console.print(_per_question(outcomes, methods))
    for title, outcome in _extremes(outcomes, methods):
        demo.console.print(_close_up(demo, title, outcome))
    demo.console.print(_totals(outcomes, methods))
    before = sum(demo.model.count_tokens([turn.passage for turn in demo.data.turns]))
    after = fmean(outcome.tokens_kept for outcome in outcomes)
    demo.console.print(
        f"Tokens to the answering model: {before:,} before (the whole conversation), "
        f"{after:,.0f} after (mean of {K} turns), {1 - after / before:.1%} less."
    )
    demo.results["evidence"] = _results(outcomes, methods, before, after)
    _figure(demo, outcomes, methods)


def compare(demo: Demo, questions: Sequence[Question]) -> list[Outcome]:
    """Let every method order the turns for every question."""
    from ecs_plugins.ranking.registry import make_ranker
    from ecs_plugins.shaping.config import ShapingConfig
    from ecs_plugins.shaping.shaper import ContextShaper

    names = {"TF-IDF": "tfidf_query", "BM25": "bm25"}
    if demo.embedder is not None:
        names |= {"dense": "dense", POOL_NAME: "hybrid"}
    else:
        demo.console.print(
            "[yellow]No embedder is installed: dense and hybrid are left out, and BM25 makes "
            'the pool. Install it with: pip install "ecs-plugins\\[offline]"[/]'
        )
    rankers = {title: make_ranker(name, demo.embedder) for title, name in names.items()}
    pool_ranker = "bm25" if demo.embedder is None else "hybrid"
    config = ShapingConfig(
        ranker=pool_ranker,
        pool_size=POOL,
        top_k=K,
        redundancy_similarity=None,  # every method may keep k turns, similar or not
        on_error="raise",
    )
    shaper = ContextShaper(demo.model, config, embedder=demo.embedder)
    ids = [turn.id for turn in demo.data.turns]
    passages = [turn.passage for turn in demo.data.turns]
    outcomes: list[Outcome] = []
    with demo.progress("choosing turns", len(questions)) as bar:
        for question in questions:
            orders = {
                title: tuple(ids[i] for i in ranker.rank(question.question, passages).order)
                for title, ranker in rankers.items()
            }
            shaped = shaper.shape(question.question, passages)
            orders[ECS] = tuple(ids[verdict.index] for verdict in shaped.ranked)
            pool = tuple(ids[v.index] for v in shaped.verdicts if v.utility is not None)
            outcomes.append(Outcome(question, orders, pool, shaped.tokens_after))
            bar.advance(bar.task_ids[0])
    return outcomes


def _per_question(outcomes: Sequence[Outcome], methods: Sequence[str]) -> Table:
    table = Table(
        title=f"The first {K} turns of each method, best first: ● is evidence, · is not",
        title_justify="left",
        caption="words: whether the question shares a content word with its evidence; "
        "of: how many turns are evidence",
        caption_justify="left",
    )
    table.add_column("question", no_wrap=True, overflow="ellipsis", max_width=QUESTION_WIDTH)
    table.add_column("category", min_width=15)
    table.add_column("words", min_width=5)
    table.add_column("of", min_width=2, justify="right")
    for method in methods:
        table.add_column(method, min_width=max(K, len(method)))
    for outcome in outcomes:
        question = outcome.question
        marks = [_marks(outcome.orders[method], question) for method in methods]
        table.add_row(
            question.question,
            question.category,
            question.overlap,
            str(len(question.evidence)),
            *marks,
        )
    return table


def _marks(order: Sequence[str], question: Question) -> Text:
    line = Text()
    for turn in order[:K]:
        found = turn in question.evidence
        line.append("●" if found else "·", style="bold green" if found else "dim")
    return line


def _extremes(outcomes: Sequence[Outcome], methods: Sequence[str]) -> list[tuple[str, Outcome]]:
    """Where ECS finds most more, and most less, than the best of the others."""

    def gain(outcome: Outcome) -> float:
        evidence = outcome.question.evidence
        own = metrics.recall(outcome.orders[ECS], evidence, K)
        others = [m for m in methods if m not in (ECS, POOL_NAME)]
        return own - max(metrics.recall(outcome.orders[m], evidence, K) for m in others)

    best, worst = max(outcomes, key=gain), min(outcomes, key=gain)
    out: list[tuple[str, Outcome]] = []
    if gain(best) > 0:
        out.append(("Where ECS gains most", best))
    if gain(worst) < 0:
        out.append(("Where ECS loses most", worst))
    return out


def _close_up(demo: Demo, title: str, outcome: Outcome) -> Panel:
    texts = {turn.id: turn for turn in demo.data.turns}
    table = Table(box=None, pad_edge=False)
    table.add_column("method", min_width=6)
    table.add_column("turn", min_width=6)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    for method, order in outcome.orders.items():
        for position, turn in enumerate(order[:3]):
            style = "green" if turn in outcome.question.evidence else "dim"
            if turn in outcome.question.misleading:
                style = "red"
            table.add_row(
                method if position == 0 else "",
                Text(turn, style=style),
                Text(f"{texts[turn].speaker}: {texts[turn].text}", style=style),
            )
    heading = f"{title}: {outcome.question.question} ({outcome.question.answer})"
    return Panel(table, title=Text(shorten(heading, 100)), title_align="left")


def _totals(outcomes: Sequence[Outcome], methods: Sequence[str]) -> Table:
    table = Table(
        title=f"Mean over {len(outcomes)} questions, {K} turns kept by every method",
        title_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for name in ("precision", "recall [95 %]", "recall, no word shared", "F1 at k = |evidence|"):
        table.add_column(name, justify="right", no_wrap=True)
    for method in methods:
        scores = _scores(outcomes, method)
        low, high = metrics.interval([float(r) for r in scores["recall"]])
        table.add_row(
            method,
            f"{fmean(scores['precision']):.2f}",
            f"{fmean(scores['recall']):.2f} [{low:.2f}, {high:.2f}]",
            f"{fmean(scores['recall_none']):.2f}" if scores["recall_none"] else "",
            f"{fmean(scores['f1']):.2f}",
            style="bold" if method == ECS else "",
        )
    ceiling = fmean(metrics.recall(o.pool, o.question.evidence, len(o.pool)) for o in outcomes)
    table.caption = f"ECS chooses from {POOL} turns; {ceiling:.0%} of the evidence is among them."
    table.caption_justify = "left"
    return table


def _scores(outcomes: Sequence[Outcome], method: str) -> dict[str, list[float]]:
    pairs = [(o.orders[method], o.question) for o in outcomes]
    return {
        "precision": [metrics.precision(order, q.evidence, K) for order, q in pairs],
        "recall": [metrics.recall(order, q.evidence, K) for order, q in pairs],
        "recall_none": [
            metrics.recall(order, q.evidence, K) for order, q in pairs if q.overlap == "none"
        ],
        "recall_some": [
            metrics.recall(order, q.evidence, K) for order, q in pairs if q.overlap == "some"
        ],
        "f1": [metrics.evidence_f1(order, q.evidence) for order, q in pairs],
    }


def _results(
    outcomes: Sequence[Outcome], methods: Sequence[str], before: int, after: float
) -> dict[str, object]:
    return {
        "k": K,
        "pool": POOL,
        "questions": [outcome.question.id for outcome in outcomes],
        "methods": {
            method: {
                name: fmean(values) for name, values in _scores(outcomes, method).items() if values
            }
            for method in methods
        },
        "tokens_before": before,
        "tokens_after": after,
        "kept": {o.question.id: {m: list(o.orders[m][:K]) for m in methods} for o in outcomes},
    }


def _figure(demo: Demo, outcomes: Sequence[Outcome], methods: Sequence[str]) -> None:
    from ecs_plugins.errors import MissingExtraError
    from examples.demo.figure import save_evidence_figure

    depths = range(1, 11)
    curves = {
        method: [
            fmean(metrics.recall(o.orders[method], o.question.evidence, k) for o in outcomes)
            for k in depths
        ]
        for method in methods
    }
    splits = {
        method: {
            title: fmean(scores[key])
            for title, key in (("shares words", "recall_some"), ("shares none", "recall_none"))
            if scores[key]
        }
        for method in methods
        for scores in [_scores(outcomes, method)]
    }
    try:
        path = save_evidence_figure(
            demo.out / "evidence.png", list(depths), curves, splits, k=K, questions=len(outcomes)
        )
    except MissingExtraError as error:
        demo.console.print(f"[yellow]No figure: {error}[/]", markup=True)
    else:
        demo.console.print(f"Figure: {path}")
