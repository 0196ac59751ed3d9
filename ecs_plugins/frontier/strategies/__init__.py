"""The strategies by name: the registry, and what makes and keeps them.

A strategy of your own is one entry of `STRATEGIES`:

    STRATEGIES["first"] = lambda own, config: FirstDocuments(config["depth"])
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import AnswerModel, as_answer_model
from ecs_plugins.frontier.cost import ConfigValue, config_json
from ecs_plugins.frontier.data import CalibrationQuestion
from ecs_plugins.frontier.strategies.base import BuiltContext as BuiltContext
from ecs_plugins.frontier.strategies.base import Prepared as Prepared
from ecs_plugins.frontier.strategies.base import Strategy as Strategy
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from ecs_plugins.frontier.strategies.retrieval import FullContext, Oracle, Retrieval
from ecs_plugins.frontier.strategies.shaped import SIGNAL, ShapedPassages, SharedScorer
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker, make_ranker
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import ConvexRanker, DenseRanker
from ecs_plugins.ranking.embedder import Embedder

StrategyMaker = Callable[["StrategySet", Mapping[str, Any]], Strategy]
"""Makes a strategy of its configuration; the set holds the models, and other strategies."""


class StrategySet:
    """Strategies by name and configuration, each made once. Thread-safe.

    All share their models: documents are embedded once. The arguments are those of
    `default_strategies`; ``embedder`` and ``scorer`` may be what loads them when they are needed.
    ``measuring`` is as in `SharedScorer`; ``own`` are of the user's own making.
    """

    def __init__(
        self,
        model: AnswerModel | None = None,
        *,
        embedder: Embedder | Callable[[], Embedder] | None = None,
        scorer: LanguageModel | Callable[[], LanguageModel] | None = None,
        cache_dir: str | Path | None = None,
        questions: Sequence[CalibrationQuestion] = (),
        measuring: bool = False,
        own: Sequence[Strategy] = (),
    ) -> None:
        self._measuring = measuring
        self.cache_dir = cache_dir
        self.questions = questions
        self._model = model
        self._embedder = embedder
        self._dense: DenseRanker | None = None
        self._scoring_model: Any = scorer
        self._scorers: dict[str, SharedScorer] = {}
        self._made = {(each.name, config_json(each.config)): each for each in own}
        self._lock = threading.RLock()

    @property
    def model(self) -> AnswerModel:
        """What writes compressions."""
        if self._model is None:
            raise ConfigurationError("it needs a model")
        return self._model

    @property
    def dense(self) -> DenseRanker:
        """The dense ranker, which keeps what it has embedded."""
        if self._dense is None:
            if self._embedder is None:
                raise ConfigurationError("it needs an embedder")
            given: Any = self._embedder
            self._dense = DenseRanker(given if hasattr(given, "embed_query") else given())
        return self._dense

    def scorer(self, signal: str) -> SharedScorer:
        """What scores passages by a signal."""
        if signal not in self._scorers:
            given = self._scoring_model
            if given is None:
                raise ConfigurationError("it needs a scorer")
            model = given if isinstance(given, LanguageModel) else given()
            ranker: Ranker | str = "convex"
            if self._embedder is not None:
                ranker = ConvexRanker(CoverageRanker(), self.dense)
            self._scorers[signal] = SharedScorer(
                model, signal=signal, ranker=ranker, measuring=self._measuring
            )
        return self._scorers[signal]

    def get(self, name: str, config: Mapping[str, ConfigValue]) -> Strategy:
        """The strategy of a name and configuration.

        Raises:
            ConfigurationError: There is none of that name, it lacks the model, embedder or
                scorer that it needs, or its configuration is another.
        """
        key = (name, config_json(config))
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(name, config)
            return self._made[key]

    def _make(self, name: str, config: Mapping[str, ConfigValue]) -> Strategy:
        asked = f"strategy {name} {dict(config)}"
        if name not in STRATEGIES:
            raise ConfigurationError(
                f"there is no {asked}: known are {', '.join(STRATEGIES)}. Add yours to STRATEGIES, "
                "pass it with strategies=[...], or say what runs it"
            )
        try:
            made = STRATEGIES[name](self, config)
        except ConfigurationError as error:
            raise ConfigurationError(f"{asked}: {error}") from error
        except (KeyError, TypeError) as error:
            raise ConfigurationError(f"{asked} lacks a setting: {error}") from error
        if made.name != name or config_json(made.config) != config_json(config):
            raise ConfigurationError(
                f"there is no {asked}: it would be {made.name} {dict(made.config)}"
            )
        return made


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

    def configurations(self) -> Iterator[tuple[str, dict[str, ConfigValue]]]:
        """Strategy and configuration, from cheap to dear."""
        yield "full_context", {}
        for depth in self.sentences:
            for name in ("tfidf", "tfidf_query", "bm25"):
                yield name, {"depth": depth}
        for depth in self.documents:
            yield "dense", {"depth": depth}
        for ratio in self.ratios:
            yield "memory_compression", {"ratio": ratio}
        for depth in self.shaped:
            yield "ecs", {"depth": depth, "signal": SIGNAL}
        for depth in self.shaped_notes if self.ratios else ():
            yield (
                "memory_compression+ecs",
                {"ratio": self.ratios[-1], "depth": depth, "signal": SIGNAL},
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
    """Every strategy that what is given allows, to be measured.

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
    out = [
        own.get(name, config)
        for name, config in (grid or Grid()).configurations()
        if (embedder is not None or name != "dense")
        and (scorer is not None or "signal" not in config)
    ]
    if any(question.supporting for question in questions):
        out.append(own.get("oracle", {}))
    return out


def _ranked(ranker: str, config: Mapping[str, Any], **how: Any) -> Strategy:
    return Retrieval(make_ranker(ranker), config["depth"], **how)


def _shaped(own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    after = None
    if "ratio" in config:
        after = own.get("memory_compression", {"ratio": config["ratio"]})
    return ShapedPassages(own.scorer(str(config["signal"])), config["depth"], after=after)


STRATEGIES: dict[str, StrategyMaker] = {
    "full_context": lambda *_: FullContext(),
    "tfidf": lambda _, config: _ranked("tfidf", config, uses_question=False),
    "tfidf_query": lambda _, config: _ranked("tfidf_query", config),
    "bm25": lambda _, config: _ranked("bm25", config),
    "dense": lambda own, config: Retrieval(own.dense, config["depth"], by_document=True),
    "memory_compression": lambda own, config: MemoryCompression(
        own.model, config["ratio"], cache_dir=own.cache_dir
    ),
    "ecs": _shaped,
    "memory_compression+ecs": _shaped,
    "oracle": lambda own, _: Oracle(own.questions),
}
"""Name -> maker. Vanilla TF-IDF ranks by corpus statistics alone, whatever is asked."""
