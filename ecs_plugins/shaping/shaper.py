"""ECS: which passages really help to answer this question, and which hurt.

Two stages, as in section 4.10 of Entropic Context Shaping: a ranker keeps the likely passages,
the language model scores them, and acceptance turns scores into verdicts. Every passage gets a
verdict; nothing that was passed in is changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import (
    ConfigurationError,
    InvalidInputError,
    MissingExtraError,
    ModelNotFoundError,
)
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.build import LazyRanker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.shaping.acceptance import Candidates, Outcome, greedy, independent, stream
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.passages import UNIT_TOKENS, split_passages
from ecs_plugins.shaping.pool import Pool, build_pool, needs_ranking, sought
from ecs_plugins.shaping.protocol import ScoringTask, Signal, reads_best_first
from ecs_plugins.shaping.redundancy import NearRepetitions, exact_repetitions
from ecs_plugins.shaping.replies import as_replies, is_conversation
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext, read_only
from ecs_plugins.shaping.scoring import PassageScorer, checked_answers
from ecs_plugins.shaping.screening import Screening
from ecs_plugins.shaping.selection import Decision, Limits, redundant
from ecs_plugins.shaping.signals import resolve_signal
from ecs_plugins.shaping.utility import Verdict
from ecs_plugins.tokens import TokenLedger

_log = logging.getLogger(__name__)

_ALWAYS_RAISED = (InvalidInputError, ConfigurationError, MissingExtraError, ModelNotFoundError)
"""Faults of the call or the set-up: returning the input would hide them for good."""


@dataclass(frozen=True, slots=True)
class _Stages:
    """What the two stages found, before it becomes verdicts."""

    tokens: Sequence[int]
    settled: dict[int, Decision]
    pool: Pool
    outcome: Outcome
    unscored: dict[int, str]
    ledger: TokenLedger
    conversation: bool = False
    screening: Screening | None = None


class ContextShaper:
    """Chooses the passages that help to answer a question.

    Thread-safe if the model is. Between calls it remembers nothing but the embeddings of passages
    that its ranker has seen.

    Args:
        model: The local language model that scores. One with ``exactness="screen"`` lets its
            faster copy score every passage, and itself those that can still be kept.
        config: The settings.
        embedder: For the rankers ``"dense"`` and ``"hybrid"``; by default the one that is
            installed, loaded when it is first needed.
    """

    def __init__(
        self,
        model: LanguageModel,
        config: ShapingConfig | None = None,
        *,
        embedder: Embedder | None = None,
    ) -> None:
        self._model = model
        self._config = config or ShapingConfig()
        ranker = self._config.ranker
        self._ranker = LazyRanker(ranker, embedder) if isinstance(ranker, str) else ranker

    @property
    def model(self) -> LanguageModel:
        """The model that scores."""
        return self._model

    @property
    def config(self) -> ShapingConfig:
        """The settings."""
        return self._config

    def shape(
        self,
        query: str,
        passages: Sequence[str],
        *,
        context: str = "",
        answer: str | Sequence[str] | None = None,
    ) -> ShapedContext:
        """Give every passage a verdict.

        Args:
            query: The question.
            passages: Any number of texts, none of which is changed.
            context: What the reader knows already (C); it stands before every passage.
            answer: The known answer, or several acceptable ones, for signals that use it.

        Returns:
            A verdict for every passage, with its numbers; the kept ones in input order.

        Raises:
            InvalidInputError: The query is blank or has no tokens, a passage is not text, an
                answer has no tokens, or the signal needs an answer and there is none.
            ConfigurationError: The settings do not go together.
            ModelNotFoundError: The model or the embedder is not installed.
            EcsPluginsError: The model cannot score and ``on_error`` is ``"raise"``.
        """
        started = time.perf_counter()
        passages = _checked_passages(query, passages)
        signal = resolve_signal(self._config.signal, has_answer=bool(answer))
        limits = Limits.of(self._config, signal.threshold, signal.name, signal.unit)
        try:
            stages = self._run(query, passages, context, answer, signal, limits)
        except _ALWAYS_RAISED:
            raise
        except Exception as error:
            if self._config.on_error == "raise":
                raise
            _log.warning("passages could not be scored and are returned as given", exc_info=True)
            return self._returned(query, passages, signal, error, started)
        places = stages.outcome.places()
        verdicts = tuple(
            _verdict(index, passage, stages, places.get(index))
            for index, passage in enumerate(passages)
        )
        return ShapedContext(
            query=query,
            verdicts=verdicts,
            signal=signal.name,
            model=self._model.name,
            ledger=stages.ledger,
            seconds=time.perf_counter() - started,
            conversation=stages.conversation,
            screening=stages.screening,
        )

    async def ashape(
        self,
        query: str,
        passages: Sequence[str],
        *,
        context: str = "",
        answer: str | Sequence[str] | None = None,
    ) -> ShapedContext:
        """As `shape`, in a worker thread: the event loop stays free."""
        return await run_sync(self.shape, query, passages, context=context, answer=answer)

    def _run(
        self,
        query: str,
        passages: Sequence[str],
        context: str,
        answer: str | Sequence[str] | None,
        signal: Signal,
        limits: Limits,
    ) -> _Stages:
        config, model = self._config, self._model
        answers = checked_answers(answer, model)
        if not passages:
            return _Stages((), {}, Pool({}, {}, {}), Outcome({}, {}), {}, TokenLedger())
        conversation = config.conversation
        if conversation is None:
            conversation = is_conversation(passages)
        read = as_replies(passages) if conversation else passages
        counted = model.count_tokens([query, *passages, *(read if conversation else ())])
        query_tokens, tokens = counted[0], counted[1 : len(passages) + 1]
        lengths = counted[len(passages) + 1 :] or tokens
        if not query_tokens:
            raise InvalidInputError(f"the query {query!r} has no tokens: ask a question in words")
        settled = _settled(passages, read, tokens)
        open_ones = [index for index in range(len(passages)) if index not in settled]
        units = [
            unit
            for unit in split_passages(
                ["" if index in settled else text for index, text in enumerate(read)],
                model.count_tokens,
                max(1, min(UNIT_TOKENS, model.max_tokens // 4)),
                lengths=[0 if index in settled else n for index, n in enumerate(lengths)],
            )
            if unit.source not in settled and unit.text.strip()
        ]
        wanted = needs_ranking(units, config.pool_size) or reads_best_first(signal)
        ranker = self._ranker if wanted else None
        looked_for = sought(query, answers if signal.needs_answer else ())
        pool = build_pool(looked_for, units, ranker, config.pool_size)
        repetitions = NearRepetitions(
            {index: passages[index] for index in pool.units}, config.redundancy_similarity
        )
        task = ScoringTask(query.strip(), pool.best_first, context, answers, seed=config.seed)
        scorer = PassageScorer(model, signal, task, pool.units, tokens, config.length_penalty)
        candidates = Candidates(tuple(pool.units), passages, tokens, context)
        if not open_ones:
            outcome = Outcome({}, {})
        elif config.acceptance == "stream":
            outcome = stream(candidates, scorer, limits, repetitions)
        elif config.acceptance == "greedy":
            outcome = greedy(candidates, scorer, limits, repetitions, config.greedy_rounds)
        else:
            outcome = independent(candidates, scorer, limits, repetitions)
        return _Stages(
            tokens,
            settled,
            pool,
            outcome,
            scorer.unscored,
            scorer.ledger,
            conversation,
            scorer.screening,
        )

    def _returned(
        self,
        query: str,
        passages: Sequence[str],
        signal: Signal,
        error: Exception,
        started: float,
    ) -> ShapedContext:
        message = f"{type(error).__name__}: {error}"
        try:
            tokens = self._model.count_tokens(passages) if passages else []
        except Exception:
            _log.debug("tokens cannot be counted either", exc_info=True)
            tokens = [0] * len(passages)
        return ShapedContext(
            query=query,
            verdicts=tuple(
                PassageVerdict(
                    index=index,
                    text=passage,
                    verdict=Verdict.UNSCORED,
                    kept=True,
                    utility=None,
                    parts=read_only({}),
                    tokens=tokens[index],
                    rank=None,
                    rank_score=None,
                    reason=f"returned as given, scoring failed: {message}",
                )
                for index, passage in enumerate(passages)
            ),
            signal=signal.name,
            model=self._model.name,
            seconds=time.perf_counter() - started,
            error=message,
        )


def _checked_passages(query: str, passages: Sequence[str]) -> list[str]:
    if not isinstance(query, str) or not query.strip():
        raise InvalidInputError("the query is empty: pass the question that is to be answered")
    if isinstance(passages, str):
        raise InvalidInputError("passages must be a sequence of texts, got one text: wrap it in []")
    checked = list(passages)
    for index, passage in enumerate(checked):
        if not isinstance(passage, str):
            raise InvalidInputError(
                f"passage {index} must be text, got {type(passage).__name__}: pass its content"
            )
    return checked


def _settled(
    passages: Sequence[str], read: Sequence[str], tokens: Sequence[int]
) -> dict[int, Decision]:
    """What needs no model: passages without content and exact repetitions."""
    repeats = exact_repetitions(passages, read)
    settled = {index: redundant(first) for index, first in repeats.items()}
    for index, passage in enumerate(passages):
        if not passage.strip() or not tokens[index]:
            settled[index] = Decision(Verdict.UNSCORED, False, "the passage is empty")
    return settled


def _verdict(index: int, passage: str, stages: _Stages, place: int | None) -> PassageVerdict:
    scored = stages.outcome.scored.get(index)
    decision = stages.settled.get(index) or stages.outcome.decisions.get(index)
    if decision is None and index in stages.unscored:
        reason = f"the model could not score it: {stages.unscored[index]}"
        decision = Decision(Verdict.UNSCORED, False, reason)
    if decision is None:
        decision = Decision(
            Verdict.UNSCORED,
            False,
            f"not among the {len(stages.pool.units)} passages that the ranker passed on "
            f"(it is number {stages.pool.ranks[index]})",
        )
    return PassageVerdict(
        index=index,
        text=passage,
        verdict=decision.verdict,
        kept=decision.kept,
        utility=scored.utility if scored else None,
        parts=read_only(scored.parts if scored else {}),
        tokens=stages.tokens[index],
        rank=stages.pool.ranks.get(index),
        rank_score=stages.pool.scores.get(index),
        reason=decision.reason,
        score=scored.score if scored else None,
        place=place,
    )
