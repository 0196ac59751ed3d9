"""Entropic Context Shaping as a strategy: passages that help the answer, after all or notes.

The small scoring model reads every passage once and keeps what it has computed: stage 1. A
question then costs it little more than the question's own tokens, and the answering model reads
what is left: stage 2. The tokens of the scoring model have their own price.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from cachetools import LRUCache, cachedmethod

from ecs_plugins.frontier.cost import ConfigValue
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.strategies.base import (
    BuiltContext,
    Prepared,
    Strategy,
    check_depth,
    prepare_all,
    writes_notes,
)
from ecs_plugins.frontier.strategies.retrieval import split_sentences
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker
from ecs_plugins.shaping import ContextShaper, ShapedContext, ShapingConfig
from ecs_plugins.tokens import Role, Stage, TokenLedger

SIGNAL = "query_likelihood+bm25"
"""The default without an answer, by its name: what was measured with one default is not resumed,
nor routed, with another."""


class SharedScorer:
    """Reads the passages of a context and scores them for a question.

    What it reports is what the model really computed. ``measuring``, it reads and scores once for
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
        """Tokens and seconds of reading passages before anybody asks; 0 where it keeps nothing."""
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
    """ECS: the ``depth`` passages of the highest utility, in their original order.

    They are the documents, or the sentences of the compression that comes ``after``.
    """

    routable = True

    def __init__(self, scorer: SharedScorer, depth: int, *, after: Strategy | None = None) -> None:
        self._scorer = scorer
        self._depth = check_depth(depth)
        self._after = after
        self.writes_notes = False
        self.name = "ecs"
        self.config: Mapping[str, ConfigValue] = {"depth": depth, "signal": scorer.signal}
        if after is not None:
            self.writes_notes = writes_notes(after)
            self.name = f"{after.name}+ecs"
            self.config = {**after.config, **self.config}

    def prepare(self, context: Context) -> Prepared:
        """Run stage 1 of the previous strategy, if there is one."""
        return self.prepare_many([context])[0]

    def prepare_many(self, contexts: Sequence[Context]) -> list[Prepared]:
        """Run stage 1 of several contexts: the previous strategy, and reading the passages."""
        before = [Prepared(context) for context in contexts]
        if self._after is not None:
            before = prepare_all(self._after, contexts)
        return [self._read(each) for each in before]

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Score, keep the best, in order."""
        gap = "\n\n" if self._after is None else "\n"
        passages = self._passages(prepared)
        if len(passages) <= self._depth:
            return BuiltContext(gap.join(passages))
        shaped = self._scorer.score(question, passages)
        best = shaped.ranked[: self._depth]
        places = sorted(verdict.index for verdict in best)
        text = gap.join(passages[place] for place in places)
        return BuiltContext(text, shaped.ledger, shaped.seconds)

    def _passages(self, prepared: Prepared) -> tuple[str, ...]:
        if self._after is not None:
            return tuple(split_sentences(prepared.text))
        documents = prepared.context.documents
        return tuple(document.titled for document in documents if document.text.strip())

    def _read(self, before: Prepared) -> Prepared:
        passages = self._passages(before)
        if len(passages) <= self._depth:
            return before
        tokens, seconds = self._scorer.read(passages)
        ledger = TokenLedger()
        ledger.book(Stage.PREPARE, Role.SCORER, tokens)
        # Notes that were there are not paid again; reading them is.
        if self._scorer.measuring or not before.reused:
            ledger.add(before.ledger)
            seconds += before.seconds
        return Prepared(before.context, before.text, ledger, seconds, calls=before.calls)
