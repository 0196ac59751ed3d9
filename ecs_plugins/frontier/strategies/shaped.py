"""Entropic Context Shaping as a strategy: passages that help the answer, after all or notes.

Its stage 2 is paid twice: the small scoring model reads the candidates, and the answering model
reads what is left. The first is booked to the scoring model, whose tokens have their own price.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter

from cachetools import LRUCache, cachedmethod

from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.points import ConfigValue
from ecs_plugins.frontier.strategies.base import (
    BuiltContext,
    Prepared,
    Strategy,
    check_depth,
    prepare_all,
)
from ecs_plugins.frontier.strategies.retrieval import split_sentences
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker
from ecs_plugins.shaping import ContextShaper, ShapedContext, ShapingConfig
from ecs_plugins.tokens import TokenLedger

SIGNAL = "query_likelihood+bm25"
"""The default without an answer, by its name: what was measured with one default is not resumed,
nor routed, with another."""


class SharedScorer:
    """Scores the passages of a context once per question, for all depths that need it.

    Each depth still reports the tokens and the time of the scoring in full, as if it had run
    alone. Signal and ranker are those of a `ShapingConfig`.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        signal: str = SIGNAL,
        ranker: str | Ranker | None = "convex",
    ) -> None:
        config = ShapingConfig(signal=signal, ranker=ranker, on_error="raise")
        self.signal = signal
        self._shaper = ContextShaper(model, config)
        self._known: LRUCache[object, ShapedContext] = LRUCache(512)
        self._lock = threading.Lock()

    @cachedmethod(attrgetter("_known"), lock=attrgetter("_lock"))
    def score(self, question: str, passages: tuple[str, ...]) -> ShapedContext:
        """Every passage with its utility."""
        return self._shaper.shape(question, list(passages))


class ShapedPassages:
    """ECS: the ``depth`` passages of the highest utility, in their original order.

    They are the documents, or the sentences of the notes of the strategy that comes before.
    """

    routable = True

    def __init__(self, scorer: SharedScorer, depth: int, *, after: Strategy | None = None) -> None:
        self._scorer = scorer
        self._depth = check_depth(depth)
        self._after = after
        self.name = "ecs" if after is None else f"{after.name}+ecs"
        own: dict[str, ConfigValue] = {"depth": depth, "signal": scorer.signal}
        self.config: Mapping[str, ConfigValue] = own if after is None else {**after.config, **own}

    def prepare(self, context: Context) -> Prepared:
        """Stage 1 of what comes before, if anything does."""
        return self.prepare_many([context])[0]

    def prepare_many(self, contexts: Sequence[Context]) -> list[Prepared]:
        """Stage 1 of several contexts."""
        if self._after is None:
            return [Prepared(context) for context in contexts]
        return prepare_all(self._after, contexts)

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Score, keep the best, in order."""
        started = time.perf_counter()
        ledger, gap = TokenLedger(), "\n\n"
        passages = [d.titled for d in prepared.context.documents if d.text.strip()]
        if self._after is not None:
            before = self._after.build(prepared, question)
            ledger.add(before.ledger)
            passages, gap = split_sentences(before.text), "\n"
        seconds = time.perf_counter() - started
        if len(passages) > self._depth:
            shaped = self._scorer.score(question, tuple(passages))
            ledger.add(shaped.ledger)
            seconds += shaped.seconds
            best = sorted(verdict.index for verdict in shaped.ranked[: self._depth])
            passages = [passages[index] for index in best]
        return BuiltContext(gap.join(passages), ledger, seconds)
