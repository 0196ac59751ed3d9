"""Part 1: passages for the answering model, chosen by ECS and by other rankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from rich.text import Text

from benchmarks.intervals import interval
from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from examples.demo.context import Demo, shorten, table
from examples.demo.handbook import Asked

DEPTHS = (1, 2, 3)
SHOWN = 2
"""Number of passages in the shown question and in the conclusion."""
ECS = "ECS"


@dataclass(frozen=True, slots=True)
class Ways:
    """Orders of passages by every method, and their costs.

    Attributes:
        questions: The questions.
        orders: Method -> for each question the indices of passages, best first.
        tokens: Tokens of each passage.
        read: Tokens that ECS computes once for all passages.
        scored: Mean further tokens that ECS computes per question.
    """

    questions: tuple[Asked, ...]
    orders: dict[str, list[list[int]]]
    tokens: tuple[int, ...]
    read: int
    scored: float

    def kept(self, method: str, depth: int, passages: Sequence[str]) -> list[bool]:
        """Return for each question if its answer is in the first passages."""
        found = []
        for asked, order in zip(self.questions, self.orders[method], strict=True):
            found.append(any(asked.answered_by(passages[index]) for index in order[:depth]))
        return found

    def sent(self, method: str, depth: int) -> float:
        """Return the mean tokens of the first passages."""
        orders = self.orders[method]
        return fmean(sum(self.tokens[index] for index in order[:depth]) for order in orders)


def run(demo: Demo) -> Ways:
    """Choose by every method; print one question, the table and a conclusion."""
    handbook = demo.handbook
    demo.say(
        f"{len(handbook.questions)} questions of newcomers over {len(handbook.passages)} "
        "paragraphs of this project's documentation. Which paragraphs does the answering model "
        "have to read?\n"
    )
    ways = choose(demo)
    _show_one(demo, ways)
    _show_all(demo, ways)
    conclusion = concluded(ways, handbook.passages)
    demo.say(conclusion)
    demo.results["passages"] = {
        "questions": len(ways.questions),
        "passages": len(handbook.passages),
        "tokens": sum(ways.tokens),
        "kept": {
            method: [fmean(ways.kept(method, depth, handbook.passages)) for depth in DEPTHS]
            for method in ways.orders
        },
        "conclusion": conclusion,
    }
    return ways


def choose(demo: Demo) -> Ways:
    """Let every method order the passages for every question."""
    passages = demo.handbook.passages
    names = {"BM25": "bm25"}
    if demo.embedder is not None:
        names |= {"embeddings": "dense", "both (convex)": "convex"}
    rankers = {title: make_ranker(name, demo.embedder) for title, name in names.items()}
    ranker = "convex" if demo.embedder is not None else "bm25"
    config = ShapingConfig(ranker=ranker, pool_size=demo.pool, on_error="raise")
    shaper = ContextShaper(demo.model, config, embedder=demo.embedder)
    read = shaper.prepare(passages)
    orders: dict[str, list[list[int]]] = {title: [] for title in (*rankers, ECS)}
    scored = []
    for asked in demo.progress("choosing", demo.handbook.questions):
        for title, each in rankers.items():
            orders[title].append(list(each.rank(asked.question, passages).order))
        shaped = shaper.shape(asked.question, passages)
        orders[ECS].append([verdict.index for verdict in shaped.ranked])
        scored.append(shaped.ledger.total())
    counts = tuple(demo.model.count_tokens(passages))
    return Ways(demo.handbook.questions, orders, counts, read, fmean(scored))


def _show_one(demo: Demo, ways: Ways) -> None:
    """Show the first question that ECS answers: passages sent, left out, and the cited answer."""
    passages = demo.handbook.passages
    number = (
        ways.kept(ECS, SHOWN, passages).index(True) if any(ways.kept(ECS, SHOWN, passages)) else 0
    )
    asked, order = ways.questions[number], ways.orders[ECS][number]
    sent = [passages[index] for index in order[:SHOWN]]
    demo.say(f"Asked: {asked.question}")
    for text in sent:
        demo.console.print(Text("  sent      " + shorten(text, 100), style="green"))
    for index in order[SHOWN : SHOWN + 2]:
        demo.console.print(Text("  left out  " + shorten(passages[index], 100), style="red"))
    demo.say(f"  left out  {len(passages) - SHOWN - 2} more")
    try:
        cited = ContextShaper(demo.model).attribute(asked.question, sent, statement_of(asked, sent))
    except EcsPluginsError as error:
        demo.say(f"  not cited: {error}\n")
    else:
        demo.say(f"  answer    {cited.marked()}\n")


def statement_of(asked: Asked, sent: Sequence[str]) -> str:
    """Return the sentence with the answer."""
    text = next((each for each in sent if asked.answered_by(each)), sent[0])
    body = text.partition(": ")[2]
    sentences = body.replace(". ", ".\n").splitlines()
    return next((each for each in sentences if asked.answered_by(each)), asked.answer)


def _show_all(demo: Demo, ways: Ways) -> None:
    passages = demo.handbook.passages
    columns = [f"{depth} kept" for depth in DEPTHS]
    shown = table(["answer among the passages sent"], [*columns, f"tokens of {SHOWN}"])
    for method in ways.orders:
        cells = []
        for depth in DEPTHS:
            found = ways.kept(method, depth, passages)
            low, high = interval(np.mean, found)
            cells.append(f"{fmean(found):.2f} [{low:.2f}, {high:.2f}]")
        style = "bold" if method == ECS else ""
        shown.add_row(method, *cells, f"{ways.sent(method, SHOWN):,.0f}", style=style)
    shown.add_row("everything", *["1.00"] * len(DEPTHS), f"{sum(ways.tokens):,}")
    demo.console.print(shown)


def concluded(ways: Ways, passages: Sequence[str]) -> str:
    """Return the conclusion: ECS against each other method, with paired intervals."""
    own = np.asarray(ways.kept(ECS, SHOWN, passages), float)
    saved = 1 - ways.sent(ECS, SHOWN) / sum(ways.tokens)
    parts = []
    for method in ways.orders:
        if method == ECS:
            continue
        difference = own - np.asarray(ways.kept(method, SHOWN, passages), float)
        low, high = interval(np.mean, difference)
        word = "level with"
        if low > 0:
            word = "above"
        elif high < 0:
            word = "BELOW"
        mean = difference.mean()
        parts.append(f"{word} {method} ({mean:+.2f} [{low:+.2f}, {high:+.2f}])")
    return (
        f"So {SHOWN} of {len(passages)} passages hold {own.mean():.0%} of the answers with "
        f"{saved:.0%} fewer tokens; at this size ECS is {', '.join(parts)}."
    )
