"""Every signal of one question in as few passes over its pool as possible.

Signals that read a passage in the same wrapper ask for different continuations of the same
candidates, so their requests become one, and drafts are written once for all signals that need
them. What each signal would have cost by itself is booked for each: sharing is the
benchmark's, not the product's.

Seconds are those of the shared pass in proportion to a signal's own tokens in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from benchmarks.evidence.candidates import Candidates
from benchmarks.evidence.methods import Ordered
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import (
    Generation,
    LanguageModel,
    ModelAround,
    ScoreRequest,
    ScoreResult,
    Segments,
)
from ecs_plugins.shaping.passages import Pool
from ecs_plugins.shaping.reading import checked_answers
from ecs_plugins.shaping.signals.base import ScoringTask, Signal
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
    remembering = _Remembering(model)
    out: dict[str, Ordered] = {}
    prepared: dict[str, _Prepared] = {}
    for name, signal in signals.items():
        pool = _pool_of(signal, candidates, as_it_is=name in as_they_are)
        try:
            prepared[name] = _prepare(signal, candidates.question, pool, remembering, seed)
        except ScoringError as error:
            out[name] = Ordered(pool.order, error=str(error))
    answered = _ask({name: found.requests for name, found in prepared.items()}, model)
    for name, found in prepared.items():
        started = time.perf_counter()
        try:
            scores = _scores(found, answered[name].results)
        except ScoringError as error:
            out[name] = Ordered(found.pool.order, error=str(error))
            continue
        scored = sorted(scores, key=lambda index: (-scores[index], index))
        rest = [index for index in found.pool.order if index not in scores]
        seconds = found.seconds + answered[name].seconds + time.perf_counter() - started
        out[name] = Ordered(
            (*scored, *rest),
            tuple(scores[index] for index in scored),
            found.ledger.total() + sum(r.computed_tokens for r in answered[name].results),
            seconds,
        )
    return {name: out[name] for name in signals}


def _pool_of(signal: Signal, candidates: Candidates, *, as_it_is: bool) -> Pool:
    if as_it_is:
        return candidates.as_they_are
    return candidates.answered if signal.needs_answer else candidates.stage1


@dataclass(frozen=True, slots=True)
class _Prepared:
    signal: Signal
    pool: Pool
    task: ScoringTask
    sources: tuple[int, ...]
    requests: list[ScoreRequest]
    ledger: TokenLedger
    seconds: float


def _prepare(
    signal: Signal, question: EvidenceQuestion, read: Pool, model: _Remembering, seed: int
) -> _Prepared:
    started, replayed = time.perf_counter(), model.replayed
    answers = checked_answers(question.answers, model) if signal.needs_answer else ()
    ledger = TokenLedger()
    task = ScoringTask(question.question.strip(), read.best_first, "", answers, seed=seed)
    task = signal.prepare(task, model, ledger)
    pieces = [piece for found in read.units.values() for piece in found]
    task = task.narrowed([piece.text.strip() for piece in pieces], task.context)
    task = replace(task, unscored=read.unscored)
    requests = signal.requests(task, model.layout)
    seconds = time.perf_counter() - started + model.replayed - replayed
    sources = tuple(piece.source for piece in pieces)
    return _Prepared(signal, read, task, sources, requests, ledger, seconds)


def _scores(prepared: _Prepared, results: Sequence[ScoreResult]) -> dict[int, float]:
    """Unit -> score of its best piece."""
    best: dict[int, float] = {}
    for source, found in zip(
        prepared.sources, prepared.signal.utilities(prepared.task, results), strict=True
    ):
        score = found.score
        if math.isfinite(found.utility) and math.isfinite(score):
            best[source] = max(score, best.get(source, -math.inf))
    return best


@dataclass(slots=True)
class _Answered:
    results: list[ScoreResult] = field(default_factory=list)
    seconds: float = 0.0


_Pass: TypeAlias = tuple[Segments, tuple[Segments, ...], bool]


def _ask(
    requests: Mapping[str, Sequence[ScoreRequest]], model: LanguageModel
) -> dict[str, _Answered]:
    """Results of all requests, those about the same candidates from one pass."""
    groups: dict[_Pass, dict[Segments, int]] = {}
    for request in (request for found in requests.values() for request in found):
        merged = groups.setdefault(_pass_of(request), {})
        for continuation in request.continuations:
            merged.setdefault(continuation, len(merged))
    tokens = _Counted(model)
    passes: dict[_Pass, tuple[ScoreRequest, ScoreResult, float]] = {}
    for key, continuations in groups.items():
        prefix, candidates, divergence = key
        request = ScoreRequest(prefix, candidates, tuple(continuations), divergence=divergence)
        started = time.perf_counter()
        (result,) = model.score([request])
        passes[key] = (request, result, time.perf_counter() - started)
    out: dict[str, _Answered] = {}
    for name, found in requests.items():
        out[name] = _Answered()
        for request in found:
            whole, result, seconds = passes[_pass_of(request)]
            if result.unscored and len(request.continuations) < len(whole.continuations):
                # What is too long with another signal's continuation may fit with its own.
                started = time.perf_counter()
                out[name].results += model.score([request])
                out[name].seconds += time.perf_counter() - started
                continue
            own = tokens.of(request)
            out[name].results.append(_part(result, request, groups[_pass_of(request)], own))
            out[name].seconds += seconds * own / max(1, tokens.of(whole))
    return out


def _pass_of(request: ScoreRequest) -> _Pass:
    return request.prefix, request.candidates, request.divergence


def _part(
    result: ScoreResult, request: ScoreRequest, places: Mapping[Segments, int], own_tokens: int
) -> ScoreResult:
    wanted = [places[continuation] for continuation in request.continuations]
    return ScoreResult(
        tuple(tuple(row[place] for place in wanted) for row in result.scores),
        result.candidate_tokens,
        own_tokens,
        result.unscored,
    )


class _Counted:
    """Return the tokens of a single request; shared parts of continuations count once.

    The engine feeds a few less: not the last token of a continuation, and an equal first token
    of two of them once.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._known: dict[str, int] = {}

    def of(self, request: ScoreRequest) -> int:
        heads = {
            continuation[: end + 1]
            for continuation in request.continuations
            for end in range(len(continuation))
        }
        lasts = [head[-1].text for head in heads]
        prefix = [segment.text for segment in request.prefix]
        own = [segment.text for candidate in request.candidates for segment in candidate]
        self._count({*lasts, *prefix, *own})
        behind = sum(self._known[text] for text in lasts)
        return sum(self._known[text] for text in (*prefix, *own)) + len(request.candidates) * behind

    def _count(self, texts: set[str]) -> None:
        new = sorted(texts - self._known.keys())
        if new:
            self._known.update(zip(new, self._model.count_tokens(new), strict=True))


class _Remembering(ModelAround):
    """A language model that does not answer the same call twice.

    Attributes:
        replayed: Seconds that remembered calls took when they were first made.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__(model)
        self.replayed = 0.0
        self._known: dict[Hashable, tuple[object, float]] = {}

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        key = ("score", tuple(requests))
        if not self._replay(key):
            started = time.perf_counter()
            self._known[key] = (self._model.score(requests), time.perf_counter() - started)
        return cast("list[ScoreResult]", self._known[key][0])

    def generate(self, prompts: Sequence[Segments], **options: Any) -> list[Generation]:
        key = ("generate", tuple(prompts), repr(sorted(options.items())))
        if not self._replay(key):
            started = time.perf_counter()
            found = self._model.generate(prompts, **options)
            self._known[key] = (found, time.perf_counter() - started)
        # A copy: callers extend the list that they get.
        return list(cast("list[Generation]", self._known[key][0]))

    def _replay(self, key: Hashable) -> bool:
        if key not in self._known:
            return False
        self.replayed += self._known[key][1]
        return True
