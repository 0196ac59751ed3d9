"""Which configurations of the strategies are measured by default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.frontier.answering import as_answer_model
from ecs_plugins.frontier.cost import ConfigValue
from ecs_plugins.frontier.data import CalibrationQuestion
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.frontier.strategies.catalogue import LacksModelError, StrategySet
from ecs_plugins.frontier.strategies.shaped import SIGNAL
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder


class Configuration(NamedTuple):
    """A strategy's name and its settings."""

    strategy: str
    config: dict[str, ConfigValue]


class Grid(Config):
    """Which configurations of the strategies are measured.

    Attributes:
        sentences: Depths of TF-IDF (both) and BM25.
        documents: Depths of dense retrieval.
        ratios: Of memory compression.
        shaped: Depths of ECS over documents.
        shaped_notes: Depths, in sentences, of ECS after the compression with the last ratio.
    """

    sentences: tuple[Annotated[int, Field(ge=1)], ...] = (2, 4, 8, 16)
    documents: tuple[Annotated[int, Field(ge=1)], ...] = (1, 2, 4)
    ratios: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.1, 0.25, 0.5)
    shaped: tuple[Annotated[int, Field(ge=1)], ...] = (1, 2, 4)
    shaped_notes: tuple[Annotated[int, Field(ge=1)], ...] = (4,)

    def configurations(self) -> Iterator[Configuration]:
        """From cheap to dear."""
        yield Configuration("full_context", {})
        for depth in self.sentences:
            for name in ("tfidf", "tfidf_query", "bm25"):
                yield Configuration(name, {"depth": depth})
        for depth in self.documents:
            yield Configuration("dense", {"depth": depth})
        for ratio in self.ratios:
            yield Configuration("memory_compression", {"ratio": ratio})
        for depth in self.shaped:
            yield Configuration("ecs", {"depth": depth, "signal": SIGNAL})
        if not self.ratios:
            return
        ratio = self.ratios[-1]
        for depth in self.shaped_notes:
            yield Configuration(
                "memory_compression+ecs", {"ratio": ratio, "depth": depth, "signal": SIGNAL}
            )


def default_strategies(
    answer_model: object,
    *,
    questions: Sequence[CalibrationQuestion] = (),
    grid: Grid | None = None,
    embedder: Embedder | None = None,
    scorer: LanguageModel | None = None,
    cache_dir: str | Path | None = None,
) -> list[Strategy]:
    """Return every strategy that the given components allow.

    Args:
        answer_model: Writes compressions; what `as_answer_model` takes.
        questions: For the oracle, where they know their supporting documents.
        grid: Which configurations.
        embedder: For dense retrieval; without one there is none.
        scorer: The small local model of ECS; without one there is none.
        cache_dir: Where compressions are kept.
    """
    own = StrategySet(
        as_answer_model(answer_model),
        embedder=embedder,
        scorer=scorer,
        cache_dir=cache_dir,
        questions=questions,
        measuring=True,
    )
    strategies = []
    for name, config in (grid or Grid()).configurations():
        try:
            strategies.append(own.get(name, config))
        except LacksModelError:
            continue  # the grid is what can be measured with the models at hand
    if any(question.supporting for question in questions):
        strategies.append(own.get("oracle", {}))
    return strategies
