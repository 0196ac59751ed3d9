"""The default set of strategies and configurations, from few to many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ecs_plugins.frontier.answering import AnswerModel
from ecs_plugins.frontier.data import CalibrationQuestion
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from ecs_plugins.frontier.strategies.plain import FullContext, Oracle
from ecs_plugins.frontier.strategies.retrieval import (
    RememberingEmbedder,
    bm25,
    dense,
    tfidf,
    tfidf_query,
)
from ecs_plugins.frontier.strategies.shaped import PassageScorer, ShapedPassages
from ecs_plugins.ranking.embedder import Embedder


@dataclass(frozen=True, slots=True)
class Grid:
    """Which configurations of the strategies are measured.

    Attributes:
        sentences: Depths of TF-IDF (both) and BM25.
        documents: Depths of dense retrieval.
        ratios: Of memory compression.
        shaped: Depths of ECS over documents.
        shaped_notes: Depths, in sentences, of ECS after the compression with the largest ratio.
    """

    sentences: Sequence[int] = (2, 4, 8, 16)
    documents: Sequence[int] = (1, 2, 4)
    ratios: Sequence[float] = (0.1, 0.25, 0.5)
    shaped: Sequence[int] = (1, 2, 4)
    shaped_notes: Sequence[int] = (4,)


def default_strategies(
    answer_model: AnswerModel,
    *,
    questions: Sequence[CalibrationQuestion] = (),
    grid: Grid | None = None,
    embedder: Embedder | None = None,
    scorer: PassageScorer | None = None,
    cache_dir: str | Path | None = None,
) -> list[Strategy]:
    """Every strategy that what is given allows.

    Args:
        answer_model: Answers, and writes compressions.
        questions: For the oracle, where they know their supporting documents.
        grid: Which configurations.
        embedder: For dense retrieval; without one there is none.
        scorer: For ECS; without one there is none.
        cache_dir: Where compressions are kept.
    """
    grid = grid or Grid()
    out: list[Strategy] = [FullContext()]
    for depth in grid.sentences:
        out += [tfidf(depth), tfidf_query(depth), bm25(depth)]
    if embedder is not None:
        remembering = RememberingEmbedder(embedder)
        out += [dense(depth, remembering) for depth in grid.documents]
    compressions = [
        MemoryCompression(answer_model, ratio, cache_dir=cache_dir) for ratio in grid.ratios
    ]
    out += compressions
    if scorer is not None:
        out += [ShapedPassages(scorer, depth) for depth in grid.shaped]
        if compressions:
            out += [
                ShapedPassages(scorer, depth, after=compressions[-1]) for depth in grid.shaped_notes
            ]
    if any(question.supporting for question in questions):
        out.append(Oracle(questions))
    return out
