"""Strategies by name, and the set that builds and caches them.

A strategy of your own is one entry of `STRATEGIES`:

    STRATEGIES["first"] = lambda own, config: FirstDocuments(config["depth"])
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import AnswerModel, as_answer_model
from ecs_plugins.frontier.cost import ConfigValue, config_json, label_of
from ecs_plugins.frontier.data import CalibrationQuestion
from ecs_plugins.frontier.preparations import PreparationStore
from ecs_plugins.frontier.strategies.base import Strategy
from ecs_plugins.frontier.strategies.compression import MemoryCompression
from ecs_plugins.frontier.strategies.retrieval import FullContext, Oracle, Retrieval
from ecs_plugins.frontier.strategies.shaped import SIGNAL, ShapedPassages, SharedScorer
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import ConvexRanker, DenseRanker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.registry import make_ranker

T = TypeVar("T")
StrategyMaker = Callable[["StrategySet", Mapping[str, Any]], Strategy]
"""Makes a strategy of its configuration; the set holds the models, and other strategies."""


_BY_SENTENCE = ("tfidf", "tfidf_query", "bm25")


class LacksModelError(ConfigurationError):
    """A strategy needs a model that nobody gave."""


class StrategySet:
    """Strategies by name and configuration, each made once. Thread-safe.

    All share their models: documents are embedded once. The arguments are those of
    `default_strategies`, but for these:

    Args:
        embedder: An embedder, or a function that loads it when it is needed; likewise ``scorer``.
        store: Keeps compressions.
        measuring: As in `SharedScorer`.
        own: Strategies of the user's own.
    """

    def __init__(
        self,
        model: AnswerModel | None = None,
        *,
        embedder: Embedder | Callable[[], Embedder] | None = None,
        scorer: LanguageModel | Callable[[], LanguageModel] | None = None,
        store: PreparationStore | None = None,
        questions: Sequence[CalibrationQuestion] = (),
        measuring: bool = False,
        own: Sequence[Strategy] = (),
    ) -> None:
        self.store = store
        self.questions = questions
        self._measuring = measuring
        self._model = model
        self._embedder = embedder
        self._scoring_model = scorer
        self._scorers: dict[str, SharedScorer] = {}
        self._made = {(each.name, config_json(each.config)): each for each in own}
        self._lock = threading.RLock()

    @property
    def model(self) -> AnswerModel:
        """Return the model that writes compressions."""
        return _needed(self._model, "a model")

    @cached_property
    def dense(self) -> DenseRanker:
        """Return the dense ranker with its cached embeddings."""
        given: Any = _needed(self._embedder, "an embedder")
        return DenseRanker(given if hasattr(given, "embed_query") else given())

    def scorer(self, signal: str) -> SharedScorer:
        """Return the shaper that scores passages by a signal."""
        if signal not in self._scorers:
            model: Any = _needed(self._scoring_model, "a scorer")
            if not isinstance(model, LanguageModel):
                model = model()
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
                made = self._make(name, config)
                if (made.name, config_json(made.config)) != key:
                    raise ConfigurationError(
                        f"there is no strategy {label_of(name, config)}: it would be "
                        f"{label_of(made.name, made.config)}"
                    )
                self._made[key] = made
            return self._made[key]

    def _make(self, name: str, config: Mapping[str, ConfigValue]) -> Strategy:
        wanted = f"strategy {label_of(name, config)}"
        if name not in STRATEGIES:
            raise ConfigurationError(
                f"there is no {wanted}: known are {', '.join(STRATEGIES)}. Add yours to "
                "STRATEGIES, pass it with strategies=[...], or say what runs it"
            )
        try:
            return STRATEGIES[name](self, config)
        except ConfigurationError as error:
            raise type(error)(f"{wanted}: {error}") from error
        except (KeyError, TypeError) as error:
            raise ConfigurationError(f"{wanted} lacks a setting: {error}") from error


def _needed(component: T | None, name: str) -> T:
    if component is None:
        raise LacksModelError(f"it needs {name}")
    return component


STRATEGIES: dict[str, StrategyMaker] = {
    "full_context": lambda _own, _config: FullContext(),
    # By corpus statistics alone, independent of the question.
    "tfidf": lambda _own, config: Retrieval(
        make_ranker("tfidf"), config["depth"], uses_question=False
    ),
    "tfidf_query": lambda _own, config: Retrieval(make_ranker("tfidf_query"), config["depth"]),
    "bm25": lambda _own, config: Retrieval(make_ranker("bm25"), config["depth"]),
    "dense": lambda own, config: Retrieval(own.dense, config["depth"], by_document=True),
    "memory_compression": lambda own, config: MemoryCompression(
        own.model, config["ratio"], store=own.store
    ),
    "ecs": lambda own, config: ShapedPassages(own.scorer(str(config["signal"])), config["depth"]),
    "oracle": lambda own, _config: Oracle(own.questions),
}
"""Name -> maker."""

Configuration = tuple[str, Mapping[str, ConfigValue]]
DEFAULT: tuple[Configuration, ...] = (
    ("full_context", {}),
    *((name, {"depth": depth}) for depth in (2, 4, 8, 16) for name in _BY_SENTENCE),
    *(("dense", {"depth": depth}) for depth in (1, 2, 4)),
    *(("memory_compression", {"ratio": ratio}) for ratio in (0.1, 0.25, 0.5)),
    *(("ecs", {"depth": depth, "signal": SIGNAL}) for depth in (1, 2, 4)),
)
"""The configurations that are measured by default, from cheap to dear; depths of `dense` and
`ecs` are documents, the others sentences."""


def configurations(only: Collection[str] = ()) -> list[Configuration]:
    """Return the configurations of `DEFAULT` with some names or labels; all without any.

    Raises:
        ConfigurationError: A name is none of them.
    """
    unknown = set(only)
    chosen = []
    for name, config in DEFAULT:
        names = {name, label_of(name, config)}
        unknown -= names
        if not only or not names.isdisjoint(only):
            chosen.append((name, config))
    if unknown:
        labels = ", ".join(label_of(name, config) for name, config in DEFAULT)
        raise ConfigurationError(f"{', '.join(sorted(unknown))} is none of {labels}")
    return chosen


def default_strategies(
    answer_model: object,
    *,
    questions: Sequence[CalibrationQuestion] = (),
    only: Collection[str] = (),
    embedder: Embedder | None = None,
    scorer: LanguageModel | None = None,
    cache_dir: str | Path | None = None,
) -> list[Strategy]:
    """Return every strategy of `DEFAULT` that the given components allow.

    Args:
        answer_model: Writes compressions; any model of `as_answer_model`.
        questions: For the oracle, where they know their supporting documents.
        only: Names or labels (``"bm25"``, ``"bm25(depth=4)"``); empty for all.
        embedder: For dense retrieval; without one there is none.
        scorer: The small local model of ECS; without one there is none.
        cache_dir: Where compressions are kept.

    Raises:
        ConfigurationError: A name of ``only`` is none of them.
    """
    own = StrategySet(
        as_answer_model(answer_model),
        embedder=embedder,
        scorer=scorer,
        store=PreparationStore(cache_dir),
        questions=questions,
        measuring=True,
    )
    strategies = []
    for name, config in configurations(only):
        # What can be measured with the models at hand.
        with contextlib.suppress(LacksModelError):
            strategies.append(own.get(name, config))
    if any(question.supporting for question in questions):
        strategies.append(own.get("oracle", {}))
    return strategies
