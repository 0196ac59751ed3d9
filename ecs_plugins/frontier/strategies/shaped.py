"""Entropic Context Shaping as a strategy: documents that help the answer.

Stage 1: the small scoring model reads every passage once and keeps its states. Stage 2: a question
costs it little more than the question's own tokens, and the answering model reads the best
passages. The tokens of the scoring model have their own price.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from cachetools import LRUCache, cachedmethod

from ecs_plugins.frontier.cost import ConfigValue
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.preparations import ContextCost
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared, check_depth
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker
from ecs_plugins.shaping import ContextShaper, ShapedContext, ShapingConfig
from ecs_plugins.tokens import Role, Stage, TokenLedger

SIGNAL = "query_likelihood+bm25"
"""The default without an answer, by its name: what was measured with one default is not resumed,
nor routed, with another."""


class SharedScorer:
    """Reads the passages of a context and scores them for a question.

    It reports the tokens that the model computed. ``measuring``, it reads and scores once for
    all depths, and each reports tokens and time in full, as if it had run alone: stage 1 by a
    model that has read nothing before, stage 2 by one that has read the passages. Signal and
    ranker are those of a `ShapingConfig`.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        signal: str = SIGNAL,
        ranker: str | Ranker | None = "convex",
        measuring: bool = False,
    ) -> None:
        config = ShapingConfig(signal=signal, ranker=ranker, on_error="raise")
        self.signal = signal
        self.measuring = measuring
        self._model = model
        self._shaper = ContextShaper(model, config)
        self._held: tuple[str, ...] = ()  # what the model is known to have read
        self._known: LRUCache[object, Any] = LRUCache(512 if measuring else 0)
        self._lock = threading.Lock()

    @cachedmethod(attrgetter("_known"), lock=attrgetter("_lock"))
    def read(self, passages: tuple[str, ...]) -> tuple[int, float]:
        """Read passages before any question; return tokens (0 if not cached) and seconds."""
        forget = getattr(self._model, "clear_cache", None)
        if self.measuring and forget is not None:
            forget()
        started = time.perf_counter()
        tokens = self._shaper.prepare(passages)
        self._held = passages
        return tokens, time.perf_counter() - started

    @cachedmethod(attrgetter("_known"), lock=attrgetter("_lock"))
    def score(self, question: str, passages: tuple[str, ...]) -> ShapedContext:
        """Return every passage with its utility."""
        if self.measuring and self._held != passages:
            self._shaper.prepare(passages)
            self._held = passages
        return self._shaper.shape(question, list(passages))


class ShapedPassages:
    """ECS: the ``depth`` documents of the highest utility, in their original order."""

    name = "ecs"
    routable = True

    def __init__(self, scorer: SharedScorer, depth: int) -> None:
        self._scorer = scorer
        self._depth = check_depth(depth)
        self.config: Mapping[str, ConfigValue] = {"depth": depth, "signal": scorer.signal}

    def prepare(self, context: Context) -> Prepared:
        """Run stage 1: read the documents."""
        passages = _passages(context)
        if len(passages) <= self._depth:
            return Prepared(context)
        tokens, seconds = self._scorer.read(passages)
        ledger = TokenLedger()
        ledger.book(Stage.PREPARE, Role.SCORER, tokens)
        return Prepared(context, cost=ContextCost(ledger, seconds=seconds))

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Run stage 2: score the documents and keep the best, in order."""
        passages = _passages(prepared.context)
        if len(passages) <= self._depth:
            return BuiltContext("\n\n".join(passages))
        shaped = self._scorer.score(question, passages)
        best = shaped.ranked[: self._depth]
        places = sorted(verdict.index for verdict in best)
        text = "\n\n".join(passages[place] for place in places)
        return BuiltContext(text, shaped.ledger, shaped.seconds)


def _passages(context: Context) -> tuple[str, ...]:
    return tuple(document.titled for document in context.documents if document.text.strip())
