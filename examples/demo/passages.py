"""Part 1: a retriever, the shaper after it, and a cited answer.

The retriever is the embedding search that an application has already. It hands on 20 passages with
their scores, the shaper keeps four for the answering model, and answers are checked against them.
The bundled model is too small to answer: the two answers shown were written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from examples.demo.corpus import Asked, Corpus

POOL = 20
KEPT = 4
EVERYTHING, EMBEDDINGS, BM25, FUSED, ECS = (
    "full_context",
    "embeddings",
    "BM25",
    "embeddings + BM25",
    "embeddings, then ECS",
)
_CONFIG = ShapingConfig(top_k=KEPT, pool_size=POOL, on_error="raise")


@dataclass(slots=True)
class Way:
    """One way to choose passages, and its tokens.

    Attributes:
        name: Of the method.
        kept: Titles of the passages, for each question.
        sent: Mean tokens that the answering model reads per question.
        once: Tokens that are read on this machine once for all questions.
        each: Mean further tokens that are read on this machine per question.
    """

    name: str
    kept: list[list[str]] = field(default_factory=list)
    sent: float = 0.0
    once: float = 0.0
    each: float = 0.0

    def right(self, questions: Sequence[Asked], first: int = 0) -> int:
        """Return the number of questions for which all needed passages are kept."""
        kept = self.kept[first : first + len(questions)]
        pairs = zip(questions, kept, strict=True)
        return sum(asked.sources <= set(titles) for asked, titles in pairs)


@dataclass(frozen=True, slots=True)
class Chain:
    """One question through the whole chain, with answers as (cited text, check)."""

    question: str
    kept: tuple[str, ...]
    left_out: int
    answers: tuple[tuple[str, str], ...]


def choose(corpus: Corpus, model: LanguageModel, embedder: Embedder) -> list[Way]:
    """Return what each method keeps for every question."""
    titles, texts = list(corpus.passages), list(corpus.passages.values())
    tokens = dict(zip(titles, model.count_tokens(texts), strict=True))
    read = sum(tokens.values())
    rankers = {
        name: make_ranker(kind, embedder)
        for name, kind in ((EMBEDDINGS, "dense"), (BM25, "bm25"), (FUSED, "fused"))
    }
    ways = {name: Way(name, once=0 if name == BM25 else read) for name in rankers}
    shaper = ContextShaper(model, _CONFIG, embedder=embedder)
    ecs = Way(ECS, once=read + shaper.prepare(texts))
    for asked in corpus.questions:
        for name, ranker in rankers.items():
            best = ranker.rank(asked.question, texts)
            ways[name].kept.append([titles[index] for index in best.order[:KEPT]])
        found = rankers[EMBEDDINGS].rank(asked.question, texts)
        pool = found.order[:POOL]
        shaped = shaper.shape(
            asked.question,
            [texts[index] for index in pool],
            scores=[found.scores[index] for index in pool],
        )
        best_first = [verdict.index for verdict in shaped.ranked[:KEPT]]
        ecs.kept.append([titles[pool[index]] for index in best_first])
        ecs.each += shaped.ledger.total() / len(corpus.questions)
    measured = [Way(EVERYTHING, [titles] * len(corpus.questions)), *ways.values(), ecs]
    for way in measured:
        way.sent = fmean(sum(tokens[title] for title in kept) for kept in way.kept)
    return measured


def show_chain(corpus: Corpus, model: LanguageModel, embedder: Embedder) -> Chain:
    """Return one question with its passages, and its answers with citations and checks."""
    texts = list(corpus.passages.values())
    shown = corpus.shown
    found = make_ranker("dense", embedder).rank(shown.question, texts)
    pool = found.order[:POOL]
    shaper = ContextShaper(model, _CONFIG, embedder=embedder)
    shaped = shaper.shape(
        shown.question,
        [texts[index] for index in pool],
        scores=[found.scores[index] for index in pool],
    )
    kept = [verdict.text for verdict in shaped.kept]
    answers = []
    for answer in shown.answers:
        cited = shaper.attribute(shown.question, kept, answer)
        answers.append((cited.marked(), str(cited.check)))
    return Chain(shown.question, tuple(kept), len(texts) - len(kept), tuple(answers))
