"""What the routers of both frameworks run and book: contexts by strategy, tokens by run.

A strategy of `ecs_plugins.frontier` builds its context with stage 1 paid once per context, and
the tokens of a run are collected until they are settled against what was expected.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.frontier.answering import AnswerModel
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.points import ConfigValue, PointKey, StrategyPoint, config_json
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import Router, Settlement
from ecs_plugins.frontier.strategies.base import Prepared, Strategy
from ecs_plugins.frontier.strategies.grid import Grid, default_strategies
from ecs_plugins.frontier.strategies.shaped import PassageScorer
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.tokens import Role, Stage, TokenLedger

TokenCounter = Callable[[Sequence[str]], Sequence[int]]

_log = logging.getLogger(__name__)


# What a strategy needs to run.


def strategy_of(
    name: str,
    config: Mapping[str, ConfigValue],
    *,
    model: AnswerModel,
    embedder: Embedder | None = None,
    scorer: LanguageModel | None = None,
    cache_dir: str | None = None,
) -> Strategy:
    """The package's own strategy behind a measured point.

    Args:
        name: The point's strategy.
        config: Its configuration.
        model: Writes compressions.
        embedder: For dense retrieval.
        scorer: For ECS.
        cache_dir: Where compressions are kept.

    Raises:
        ConfigurationError: There is no such strategy, or it lacks the embedder or the scorer.
    """
    depth, ratio, signal = (config.get(key) for key in ("depth", "ratio", "signal"))
    depths = [depth] if isinstance(depth, int) else []
    shaped = "ecs" in name.split("+")
    scoring = None
    if shaped and scorer is not None:
        chosen = ShapingConfig(signal=signal) if isinstance(signal, str) else ShapingConfig()
        scoring = PassageScorer(scorer, chosen, embedder=embedder)
    grid = Grid(
        sentences=() if shaped else depths,
        documents=() if shaped else depths,
        ratios=[ratio] if isinstance(ratio, float) else [],
        shaped=depths,
        shaped_notes=depths,
    )
    known = default_strategies(
        model, grid=grid, embedder=embedder, scorer=scoring, cache_dir=cache_dir
    )
    wanted = (name, config_json(config))
    for strategy in known:
        if (strategy.name, config_json(strategy.config)) == wanted:
            return strategy
    hint = ""
    if name == "dense" and embedder is None:
        hint = "; it needs an embedder"
    elif shaped and scorer is None:
        hint = "; it needs a scorer"
    raise ConfigurationError(
        f"there is no strategy {name} {dict(config)} in this package{hint}. Pass your own with "
        "strategies=[...], or say what runs it"
    )


class _Unused:
    """Stands for a model or an embedder where a strategy is made only to see whether it can be."""

    name = "unused"
    dimension = 1

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def check_strategy(point: StrategyPoint) -> None:
    """Refuse a point that this package has no strategy for, before any query needs it.

    Raises:
        ConfigurationError: It has none.
    """
    unused: Any = _Unused()
    strategy_of(point.strategy, point.config, model=unused, embedder=unused, scorer=unused)


@dataclass(frozen=True, slots=True)
class PaidContext:
    """A context for one question, and what it cost.

    Attributes:
        text: What the answering model reads.
        ledger: Tokens of both stages; those of stage 1 only if this query paid for it.
        prepare_seconds: Wall time of a stage 1 that this query paid for.
    """

    text: str
    ledger: TokenLedger
    prepare_seconds: float


class PreparedContexts:
    """What stage 1 made, per strategy and context, so that a process pays for it once.

    Concurrent queries about a new context wait for the first of them. Copies share it; a pickle
    begins empty.

    Args:
        capacity: How many are kept.
    """

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._busy: dict[tuple[PointKey, str], threading.Lock] = {}
        self._known: OrderedDict[tuple[PointKey, str], Prepared] = OrderedDict()

    def build(self, strategy: Strategy, context: Context, question: str) -> PaidContext:
        """Both stages, and what this query paid for them.

        Raises:
            EcsPluginsError: Whatever the strategy raises.
        """
        prepared, paid = self._prepare(strategy, context)
        built = strategy.build(prepared, question)
        ledger = TokenLedger()
        if paid:
            ledger.add(prepared.ledger)
        ledger.add(built.ledger)
        return PaidContext(built.text, ledger, prepared.seconds if paid else 0.0)

    def _prepare(self, strategy: Strategy, context: Context) -> tuple[Prepared, bool]:
        key = ((strategy.name, config_json(strategy.config)), context.id)
        with self._lock:
            turn = self._busy.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                known = self._known.get(key)
                if known is not None:
                    self._known.move_to_end(key)
                    return known, False
            made = strategy.prepare(context)
            with self._lock:
                self._known[key] = made
                while len(self._known) > self._capacity:
                    old, _ = self._known.popitem(last=False)
                    self._busy.pop(old, None)
            return made, not made.reused

    def __deepcopy__(self, memo: dict[int, object]) -> PreparedContexts:
        return self

    def __reduce__(self) -> tuple[type[PreparedContexts], tuple[int]]:
        return (PreparedContexts, (self._capacity,))


# What a run really cost.


@dataclass(slots=True)
class Books:
    """The tokens of one run, filled while it runs; thread-safe.

    Attributes:
        count_tokens: For models that do not report what they used.
        ledger: What is known.
        uncounted: Calls of a model that neither reported nor could be counted.
        prepare_seconds: Wall time of stage 1.
        started: When the run began.
    """

    count_tokens: TokenCounter | None = None
    ledger: TokenLedger = field(default_factory=TokenLedger)
    uncounted: int = 0
    prepare_seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def model_call(
        self, prompt: str, reply: str, read: int | None = None, written: int | None = None
    ) -> None:
        """Book one call of the answering model; what it does not report is counted."""
        if read is None or written is None:
            if self.count_tokens is None:
                self.uncounted += 1
            else:
                counts = self.count_tokens([prompt, reply])
                read = int(counts[0]) if read is None else read
                written = int(counts[1]) if written is None else written
        self.ledger.book(Stage.QUERY, Role.ANSWER_INPUT, read or 0)
        self.ledger.book(Stage.QUERY, Role.ANSWER_OUTPUT, written or 0)


def settle(
    router: Router,
    decision: RoutingDecision,
    books: Books,
    *,
    context_id: str | None,
    error: BaseException | None = None,
) -> dict[str, object]:
    """Book what a run cost; expected against actual, as plain values.

    A ledger that cannot be written is reported and does not cost the answer.
    """
    seconds = max(0.0, time.perf_counter() - books.started - books.prepare_seconds)
    problem = None
    settled: Settlement | None = None
    try:
        settled = router.settle(decision, books.ledger, context_id=context_id, seconds=seconds)
    except StorageError as failure:
        problem = str(failure)
        _log.warning("what a routed query prepared could not be noted: %s", failure)
    out: dict[str, object] = {
        "expected": {"stage1": decision.stage1, "stage2": decision.stage2},
        "actual": None,
        "ratio": None,
        "unit": decision.unit,
        "tokens": books.ledger.to_dict(),
        "uncounted": books.uncounted,
        "seconds": seconds,
    }
    if settled is not None:
        out["actual"] = {"stage1": settled.actual_stage1, "stage2": settled.actual_stage2}
        if not books.uncounted and error is None:
            out["ratio"] = settled.ratio
    if error is not None:
        out["fallback_after"] = f"{type(error).__name__}: {error}"
    if problem is not None:
        out["ledger_error"] = problem
    return out


def refuse_forgetting(
    frontier: EfficiencyFrontier, ledger: ReuseLedger | str | None, cache_dir: str | None
) -> None:
    """A ledger in a file remembers what is prepared; so must what keeps it.

    Raises:
        ConfigurationError: Compressions would be forgotten that the ledger takes for paid.
    """
    compresses = any(p.strategy.startswith("memory_compression") for p in frontier.routable)
    if isinstance(ledger, str) and cache_dir is None and compresses:
        raise ConfigurationError(
            "a ledger in a file remembers which contexts are prepared, but without cache_dir the "
            "compressions are lost with the process; give cache_dir=..., for example beside it"
        )
