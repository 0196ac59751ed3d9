"""Orders of one question's candidates by signals, as the shaper makes them."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from benchmarks.evidence.candidates import Candidates
from benchmarks.evidence.methods import Ordered
from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.passages import Pool
from ecs_plugins.shaping.reading import checked_answers
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, UnitUtility
from ecs_plugins.tokens import TokenLedger


def order_by_signals(
    signals: Mapping[str, Signal],
    candidates: Candidates,
    model: LanguageModel,
    *,
    seed: int = 42,
    as_they_are: Collection[str] = (),
) -> dict[str, Ordered]:
    """Order a pool by each signal, as `ContextShaper` does with ``acceptance="independent"``.

    Args:
        signals: By name. One that needs an answer is given the known ones.
        candidates: The pools.
        model: Scores.
        seed: For signals that sample.
        as_they_are: Names of signals that read units as they are, also in a conversation.

    Returns:
        Name -> order. Units that were not scored stand last, as stage 1 ranks them; a signal
        that failed leaves its reason in `Ordered.error` and stage 1's order.
    """
    found: dict[str, Ordered] = {}
    for name, signal in signals.items():
        pool = candidates.answered if signal.needs_answer else candidates.stage1
        if name in as_they_are:
            pool = candidates.as_they_are
        answers = candidates.question.answers if signal.needs_answer else ()
        task = ScoringTask(
            candidates.question.question.strip(),
            pool.best_first,
            "",
            checked_answers(answers, model),
            seed=seed,
        )
        try:
            found[name] = _ordered(signal, pool, task, model)
        except ScoringError as error:
            found[name] = Ordered(pool.order, error=str(error))
    return found


def _ordered(
    signal: Signal,
    pool: Pool,
    task: ScoringTask,
    model: LanguageModel,
) -> Ordered:
    # What an earlier signal has read costs this one as much as the first time.
    getattr(model, "clear_cache", list)()
    started = time.perf_counter()
    ledger = TokenLedger()
    task = signal.prepare(task, model, ledger)
    pieces = [piece for found in pool.units.values() for piece in found]
    texts = [piece.text.strip() for piece in pieces]
    task = replace(task.narrowed(texts, task.context), unscored=pool.unscored)
    results = model.score(signal.requests(task, model.layout))
    utilities = signal.utilities(task, results)
    scores = _best([piece.source for piece in pieces], utilities)
    scored = sorted(scores, key=lambda index: (-scores[index], index))
    rest = [index for index in pool.order if index not in scores]
    return Ordered(
        (*scored, *rest),
        tuple(scores[index] for index in scored),
        ledger.total() + sum(result.computed_tokens for result in results),
        time.perf_counter() - started,
    )


def _best(sources: Sequence[int], utilities: Sequence[UnitUtility]) -> dict[int, float]:
    """Return the score of the best piece of each unit."""
    best: dict[int, float] = {}
    for source, utility in zip(sources, utilities, strict=True):
        if utility.is_finite:
            best[source] = max(utility.score, best.get(source, -math.inf))
    return best
