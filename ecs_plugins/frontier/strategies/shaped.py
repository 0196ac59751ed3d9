"""Entropic Context Shaping as a strategy: passages that help the answer, after all or notes.

Its stage 2 is paid twice: the small scoring model reads the candidates, and the answering model
reads what is left. The first is booked to the scoring model, whose tokens have their own price.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.points import ConfigValue
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared, Strategy, prepare_all
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.text import sentence_spans
from ecs_plugins.shaping.config import ShapingConfig, resolve_signal
from ecs_plugins.shaping.result import ShapedContext
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.tokens import TokenLedger


class PassageScorer:
    """Scores the passages of a context once per question, for all depths that need it.

    Each depth still reports the tokens and the time of the scoring in full, as if it had run
    alone.

    Args:
        model: The small local model.
        config: How to score; what it says about selection is not used.
        embedder: For the ranker, where that needs one.
        capacity: How many results are kept.
    """

    def __init__(
        self,
        model: LanguageModel,
        config: ShapingConfig | None = None,
        *,
        embedder: Embedder | None = None,
        capacity: int = 512,
    ) -> None:
        base = config or ShapingConfig()
        self.config = base.replace(top_k=None, max_tokens=None, on_error="raise")
        self.model_name = model.name
        self._shaper = ContextShaper(model, self.config, embedder=embedder)
        self._capacity = capacity
        self._known: OrderedDict[tuple[str, tuple[str, ...]], ShapedContext] = OrderedDict()

    def score(self, question: str, passages: Sequence[str]) -> ShapedContext:
        """Every passage with its utility."""
        key = (question, tuple(passages))
        if key not in self._known:
            self._known[key] = self._shaper.shape(question, list(passages))
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)
        return self._known[key]


class ShapedPassages:
    """ECS: the ``depth`` passages of the highest utility, in their original order.

    Args:
        scorer: Shared by all depths.
        depth: How many passages are kept.
        after: The strategy whose result is shaped; None for the documents themselves. After a
            compression, the passages are the sentences of its notes.

    Raises:
        ConfigurationError: ``depth`` < 1.
    """

    routable = True

    def __init__(self, scorer: PassageScorer, depth: int, *, after: Strategy | None = None) -> None:
        if depth < 1:
            raise ConfigurationError(f"depth must be at least 1, got {depth}")
        self._scorer = scorer
        self._depth = depth
        self._after = after
        self.name = "ecs" if after is None else f"{after.name}+ecs"

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """``{"depth": passages}``, the signal, and what comes before.

        The signal is named, also where it is the default one: what was measured with one default
        is not resumed, nor routed, with another.
        """
        config: dict[str, ConfigValue] = {} if self._after is None else dict(self._after.config)
        signal = resolve_signal(self._scorer.config.signal, has_answer=False)
        return config | {"depth": self._depth, "signal": signal.name}

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
        ledger = TokenLedger()
        if self._after is None:
            passages = [d.titled for d in prepared.context.documents if d.text.strip()]
            gap = "\n\n"
        else:
            before = self._after.build(prepared, question)
            ledger.add(before.ledger)
            spans = sentence_spans(before.text)
            passages = [before.text[start:end].strip() for start, end in spans]
            passages = [passage for passage in passages if passage]
            gap = "\n"
        seconds = time.perf_counter() - started
        if len(passages) > self._depth:
            shaped = self._scorer.score(question, passages)
            ledger.add(shaped.ledger)
            seconds += shaped.seconds
            best = sorted(verdict.index for verdict in shaped.ranked[: self._depth])
            passages = [passages[index] for index in best]
        return BuiltContext(gap.join(passages), ledger, seconds)
