"""Strategies by name, and the set that builds and caches them.

A strategy of your own is one entry of `STRATEGIES`:

    STRATEGIES["first"] = lambda own, config: FirstDocuments(config["depth"])
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import AnswerModel
from ecs_plugins.frontier.cost import ConfigValue, PointKey, config_json
from ecs_plugins.frontier.data import CalibrationQuestion
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from ecs_plugins.frontier.strategies.retrieval import FullContext, Oracle, Retrieval
from ecs_plugins.frontier.strategies.shaped import ShapedPassages, SharedScorer
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import ConvexRanker, DenseRanker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.registry import make_ranker

StrategyMaker = Callable[["StrategySet", Mapping[str, Any]], Strategy]
"""Makes a strategy of its configuration; the set holds the models, and other strategies."""


class LacksModelError(ConfigurationError):
    """A strategy needs a model that nobody gave."""


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
        self.cache_dir = cache_dir
        self.questions = questions
        self._measuring = measuring
        self._model = model
        self._embedder = embedder
        self._dense: DenseRanker | None = None
        self._scoring_model = scorer
        self._scorers: dict[str, SharedScorer] = {}
        self._made: dict[PointKey, Strategy] = {}
        for strategy in own:
            self._made[strategy.name, config_json(strategy.config)] = strategy
        self._lock = threading.RLock()

    @property
    def model(self) -> AnswerModel:
        """Return the model that writes compressions."""
        if self._model is None:
            raise LacksModelError("it needs a model")
        return self._model

    @property
    def dense(self) -> DenseRanker:
        """Return the dense ranker with its cached embeddings."""
        if self._dense is None:
            if self._embedder is None:
                raise LacksModelError("it needs an embedder")
            given: Any = self._embedder
            embedder = given
            if not hasattr(given, "embed_query"):
                embedder = given()
            self._dense = DenseRanker(embedder)
        return self._dense

    def scorer(self, signal: str) -> SharedScorer:
        """Return the shaper that scores passages by a signal."""
        if signal not in self._scorers:
            given: Any = self._scoring_model
            if given is None:
                raise LacksModelError("it needs a scorer")
            model = given
            if not isinstance(given, LanguageModel):
                model = given()
            ranker: Ranker | str = "convex"
            if self._embedder is not None:
                ranker = ConvexRanker(CoverageRanker(), self.dense)
            self._scorers[signal] = SharedScorer(
                model, signal=signal, ranker=ranker, measuring=self._measuring
            )
        return self._scorers[signal]

    def get(self, name: str, config: Mapping[str, ConfigValue]) -> Strategy:
        """Return the strategy of a name and configuration.

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
        wanted = f"strategy {name} {dict(config)}"
        if name not in STRATEGIES:
            raise ConfigurationError(
                f"there is no {wanted}: known are {', '.join(STRATEGIES)}. Add yours to "
                "STRATEGIES, pass it with strategies=[...], or say what runs it"
            )
        try:
            made = STRATEGIES[name](self, config)
        except ConfigurationError as error:
            raise type(error)(f"{wanted}: {error}") from error
        except (KeyError, TypeError) as error:
            raise ConfigurationError(f"{wanted} lacks a setting: {error}") from error
        made_key = (made.name, config_json(made.config))
        if made_key != (name, config_json(config)):
            raise ConfigurationError(
                f"there is no {wanted}: it would be {made.name} {dict(made.config)}"
            )
        return made


def _full_context(_own: StrategySet, _config: Mapping[str, Any]) -> Strategy:
    return FullContext()


def _tfidf(_own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    """Ranker by corpus statistics alone, independent of the question."""
    return Retrieval(make_ranker("tfidf"), config["depth"], uses_question=False)


def _tfidf_query(_own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    return Retrieval(make_ranker("tfidf_query"), config["depth"])


def _bm25(_own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    return Retrieval(make_ranker("bm25"), config["depth"])


def _dense(own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    return Retrieval(own.dense, config["depth"], by_document=True)


def _compression(own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    return MemoryCompression(own.model, config["ratio"], cache_dir=own.cache_dir)


def _ecs(own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    return ShapedPassages(own.scorer(str(config["signal"])), config["depth"])


def _ecs_after_compression(own: StrategySet, config: Mapping[str, Any]) -> Strategy:
    notes = own.get(MemoryCompression.name, {"ratio": config["ratio"]})
    return ShapedPassages(own.scorer(str(config["signal"])), config["depth"], after=notes)


def _oracle(own: StrategySet, _config: Mapping[str, Any]) -> Strategy:
    return Oracle(own.questions)


STRATEGIES: dict[str, StrategyMaker] = {
    "full_context": _full_context,
    "tfidf": _tfidf,
    "tfidf_query": _tfidf_query,
    "bm25": _bm25,
    "dense": _dense,
    "memory_compression": _compression,
    "ecs": _ecs,
    "memory_compression+ecs": _ecs_after_compression,
    "oracle": _oracle,
}
"""Name -> maker."""
