"""ECS: which passages really help to answer this question, and which hurt.

Two stages, as in section 4.10 of Entropic Context Shaping: a ranker keeps the likely passages,
the language model scores them, and acceptance turns scores into verdicts. Every passage gets a
verdict; nothing that was passed in is changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ecs_plugins.common.aio import bridged, check_awaited
from ecs_plugins.common.text import as_replies, is_conversation
from ecs_plugins.errors import (
    ConfigurationError,
    InvalidInputError,
    MissingExtraError,
    ModelNotFoundError,
)
from ecs_plugins.lm.base import LanguageModel, prepare
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.shaping.acceptance import (
    Acceptance,
    Budget,
    Decision,
    Limits,
    NearRepetitions,
    Outcome,
    Scorer,
    Sizes,
)
from ecs_plugins.shaping.attribution.attributed import Attribution
from ecs_plugins.shaping.attribution.attributing import as_judge, attribute_answer
from ecs_plugins.shaping.choosing import Beyond, prune_kept
from ecs_plugins.shaping.config import (
    SEED,
    ShapingConfig,
    make_parts,
    resolve_signal,
)
from ecs_plugins.shaping.copies import beyond_question
from ecs_plugins.shaping.passages import Pool, build_pool, split_passages
from ecs_plugins.shaping.probability import SHIPPED, ProbabilityFit
from ecs_plugins.shaping.reading import (
    Question,
    Reading,
    checked_answers,
    checked_passages,
    longest_unit,
    read_passages,
)
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext, Verdict
from ecs_plugins.shaping.scoring import PassageScoring
from ecs_plugins.shaping.signals.base import ScoringTask, Signal
from ecs_plugins.shaping.signals.combined import NoModel, RankOnly

_log = logging.getLogger(__name__)
_ALWAYS_RAISED = (InvalidInputError, ConfigurationError, MissingExtraError, ModelNotFoundError)
"""Faults of the call or the set-up: returning the input would hide them for good."""


class ContextShaper:
    """Chooses the passages that help to answer a question.

    Thread-safe if the model is. Between calls it remembers nothing but the embeddings of passages
    that its ranker has seen.

    Args:
        model: The local language model that scores; None with ``signal=None``, where a token is
            taken for four bytes of text.
        config: The settings; a mapping of them does too.
        embedder: For the rankers that embed, also those of a signal, or ``"multilingual"``; by
            default the one that is installed, loaded when it is first needed.
        probability: The probability that a passage helps, as `ModelDiagnostics` fits it to own
            examples; None takes the one that the package ships for model and signal, if any.
    """

    def __init__(
        self,
        model: LanguageModel | None = None,
        config: ShapingConfig | Mapping[str, Any] | None = None,
        *,
        embedder: Embedder | str | None = None,
        probability: ProbabilityFit | None = None,
    ) -> None:
        self.config = ShapingConfig.from_any(config)
        self._probability = probability
        self._signal, self._ranker = make_parts(self.config, embedder)
        if model is None and isinstance(self._signal, RankOnly):
            model = NoModel()
        if model is None or not callable(getattr(model, "score", None)):
            raise ConfigurationError(
                f"a ContextShaper needs a LanguageModel such as LocalLM, got {model!r:.80}; only "
                "signal=None works without one"
            )
        self.model: LanguageModel = model

    def shape(
        self,
        query: str,
        passages: Sequence[str],
        *,
        context: str = "",
        answer: str | Sequence[str] | None = None,
        read_as: Sequence[str] | None = None,
        scores: Sequence[float] | None = None,
        titles: Sequence[str | None] | None = None,
    ) -> ShapedContext:
        """Give every passage a verdict.

        Args:
            query: The question.
            passages: Any number of texts, none of which is changed.
            context: What the reader knows already (C); it stands before every passage.
            answer: The known answer, or several acceptable ones, for signals that use it.
            read_as: For each passage, what ranker and model read in its place, such as a turn
                behind the question that it replies to
                (`ecs_plugins.common.text.as_replies_to`).
            scores: What found the passages gave each, on any scale, such as the score of a recall:
                a signal with a ranker heeds it in the ranker's place.
            titles: Of the documents that the passages are from: a passage leads to those whose
                titles it names. Where it is None, what a passage begins with may be its title.

        Returns:
            A verdict for every passage, with its numbers; the kept ones in input order.

        Raises:
            InvalidInputError: The query is blank or has no tokens, a passage is not text,
                ``read_as``, ``scores`` or ``titles`` has another length, a score is not finite, a
                title is not text, an answer has no tokens, or the signal needs an answer and there
                is none.
            ConfigurationError: The settings do not go together.
            ModelNotFoundError: The model or the embedder is not installed.
            EcsPluginsError: The model cannot score and ``on_error`` is ``"raise"``.
        """
        started = time.perf_counter()
        question = Question(query, passages, context, answer, read_as, scores, titles)
        signal = resolve_signal(self._signal, has_answer=bool(answer), ranker=self._ranker)
        try:
            return self._shaped(question, signal, started)
        except _ALWAYS_RAISED:
            raise
        except Exception as error:
            if self.config.on_error == "raise":
                raise
            _log.warning("passages could not be scored and are returned as given", exc_info=True)
            return self._returned(question, signal, error, started)

    ashape = bridged(shape, asks_model=True)

    def attribute(
        self,
        query: str,
        passages: Sequence[str],
        answer: str,
        *,
        context: str = "",
        judge: Any = None,
    ) -> Attribution:
        """Cite and check an answer, statement by statement.

        The passages may be others than those that were kept, such as all that were found. With
        ``signal=None`` no model is asked.

        Args:
            query: The question that was answered.
            passages: Any number of texts.
            answer: The answer. Questions, refusals and code in it state nothing.
            context: Text that the reader knew already; it stands before every sentence.
            judge: A LangChain chat model, a LlamaIndex LLM or a function from prompt to reply. It
                is asked about statements that words leave unverified.

        Returns:
            Every statement of the answer with its citations and its check.

        Raises:
            InvalidInputError: Query or answer is blank, a passage is not text, or one statement
                alone is longer than the model's window.
            ConfigurationError: The judge cannot be asked.
            EcsPluginsError: The model cannot score.
        """
        return attribute_answer(
            query,
            passages,
            answer,
            model=None if self.config.signal is None else self.model,
            context=context,
            judge=None if judge is None else as_judge(judge),
        )

    aattribute = bridged(attribute, asks_model=True)

    def prepare(self, passages: Sequence[str], *, context: str = "") -> int:
        """Read passages before anybody asks about them: `shape` then computes the question alone.

        Args:
            passages: As they will be passed to `shape`, together: whether they are a conversation
                is told by all of them.
            context: As it will be passed.

        Returns:
            Tokens read; 0 for a model that keeps nothing between calls.
        """
        model = self.model
        passages = checked_passages(passages)
        texts = as_replies(passages) if is_conversation(passages) else passages
        units = split_passages(texts, model.count_tokens, longest_unit(model))
        unit_texts = tuple(unit.text.strip() for unit in units if unit.text.strip())
        if not unit_texts:
            return 0
        has_answer = self._signal != "auto"
        signal = resolve_signal(self._signal, has_answer=has_answer, ranker=self._ranker)
        task = ScoringTask("?", unit_texts, context, ("?",), trajectory="?")
        return prepare(model, signal.requests(task, model.layout))

    def _shaped(self, question: Question, signal: Signal, started: float) -> ShapedContext:
        config, model = self.config, self.model
        total = sum(len(text) for text in question.passages)
        budget = Budget.of(config, model.count_tokens, total)
        limits = Limits.of(config, signal, budget)
        answers = checked_answers(question.answer, model)
        if not question.passages:
            return ShapedContext(question.query, (), signal.name, model.name)
        reading = read_passages(question, config, model)
        check_awaited()
        pool = self._pool(question, reading, answers, signal)
        check_awaited()
        task = self._task(question, reading, pool, answers)
        scoring = PassageScoring(
            model,
            signal,
            task,
            question.passages,
            pool.units,
            reading.tokens,
            config.length_penalty,
        )
        outcome = self._accepted(question, pool, scoring, limits)
        verdicts = self._verdicts(question, reading, pool, scoring, outcome)
        if config.unit == "sentence":
            if config.effective_top_k is None and config.keep_share is not None:
                verdicts = _with_room(verdicts, budget)
            verdicts = self._pruned(question, verdicts, scoring, budget)
        kept = [verdict.kept_text for verdict in verdicts if verdict.kept]
        return ShapedContext(
            query=question.query,
            verdicts=tuple(verdicts),
            signal=signal.name,
            model=model.name,
            ledger=scoring.ledger,
            seconds=time.perf_counter() - started,
            conversation=reading.conversation,
            over_budget=len(kept) == 1 and budget.is_exceeded_by(kept),
        )

    def _pool(
        self,
        question: Question,
        reading: Reading,
        answers: Sequence[str],
        signal: Signal,
    ) -> Pool:
        """Choose the passages for the model: stage 1."""
        looked_for = [question.query]
        if signal.needs_answer:
            looked_for += answers
        config = self.config
        return build_pool(
            " ".join(looked_for),
            reading.units,
            self._ranker,
            config.pool_size,
            always=getattr(signal, "reads_best_first", False),
        )

    def _task(
        self,
        question: Question,
        reading: Reading,
        pool: Pool,
        answers: tuple[str, ...],
    ) -> ScoringTask:
        """Return the task of the signal."""
        given: dict[str, float] = {}
        if question.scores is not None:
            given = {unit.text.strip(): question.scores[unit.source] for unit in reading.units}
        titles: dict[str, str] = {}
        for unit in reading.units:
            title = question.titles[unit.source] if question.titles else None
            if title is not None:
                titles[unit.text.strip()] = title
        return ScoringTask(
            question.query.strip(),
            pool.best_first,
            question.context,
            answers,
            seed=SEED,
            stage1_scores=given,
            titles=titles,
            unscored=pool.unscored,
        )

    def _accepted(
        self,
        question: Question,
        pool: Pool,
        scoring: PassageScoring,
        limits: Limits,
    ) -> Outcome:
        """Return the scores of the pooled passages and the decisions to keep or drop them."""
        config = self.config
        scorer = self._scorer(scoring)
        pooled = {index: question.passages[index] for index in pool.units}
        sizes = Sizes(scoring.tokens, [len(text) for text in question.passages])
        repetitions = NearRepetitions(pooled, config.redundancy_similarity)
        acceptance = Acceptance(scorer, limits, sizes, repetitions)
        accept = acceptance.stream if config.acceptance == "stream" else acceptance.independent
        return accept(list(pool.units))

    def _verdicts(
        self,
        question: Question,
        reading: Reading,
        pool: Pool,
        scoring: PassageScoring,
        outcome: Outcome,
    ) -> list[PassageVerdict]:
        """Return the verdict on every passage."""
        places = {index: place for place, index in enumerate(outcome.accepted, start=1)}
        decisions = {**outcome.decisions, **reading.settled}
        verdicts: list[PassageVerdict] = []
        for index, passage in enumerate(question.passages):
            decision = decisions.get(index)
            if decision is None:
                decision = _undecided(index, pool, scoring, self.config.pool_size)
            utility = outcome.scored.get(index)
            verdicts.append(
                PassageVerdict(
                    index=index,
                    text=passage,
                    verdict=decision.verdict,
                    kept=decision.kept,
                    utility=float(utility.utility) if utility else None,
                    parts=utility.parts if utility else {},
                    tokens=reading.tokens[index],
                    rank=pool.ranks.get(index),
                    rank_score=pool.scores.get(index),
                    reason=decision.reason,
                    score=float(utility.score) if utility else None,
                    place=places.get(index),
                    probability=utility.probability if utility else None,
                    cut_by=decision.cut_by,
                )
            )
        return verdicts

    def _scorer(self, scoring: PassageScoring) -> Scorer:
        """Return a scorer, with probabilities if one was fitted and passages are scored alone."""
        fit = self._probability or SHIPPED.get((self.model.name, scoring.signal.name))
        if fit is None or self.config.acceptance != "independent":
            return scoring.score
        return lambda indices, kept: fit.told(scoring.score(indices, kept))

    def _pruned(
        self,
        question: Question,
        verdicts: Sequence[PassageVerdict],
        scoring: PassageScoring,
        budget: Budget,
    ) -> list[PassageVerdict]:
        """Return the verdicts with only the sentences that help in kept passages."""
        beyond: Beyond = str
        if question.read_as is None and self.config.acceptance != "stream":
            beyond = partial(beyond_question, question.query)
        score = scoring.score_texts
        return prune_kept(question.query, verdicts, score, budget, beyond=beyond)

    def _returned(
        self,
        question: Question,
        signal: Signal,
        error: Exception,
        started: float,
    ) -> ShapedContext:
        """Return every passage as kept, after scoring failed; the reasons name the error."""
        passages = question.passages
        message = f"{type(error).__name__}: {error}"
        try:
            tokens = self.model.count_tokens(passages) if passages else []
        except Exception:
            _log.debug("tokens cannot be counted either", exc_info=True)
            tokens = [0] * len(passages)
        reason = f"returned as given, scoring failed: {message}"
        verdicts = (
            PassageVerdict(
                index, text, Verdict.UNSCORED, True, None, {}, tokens[index], reason=reason
            )
            for index, text in enumerate(passages)
        )
        return ShapedContext(
            query=question.query,
            verdicts=tuple(verdicts),
            signal=signal.name,
            model=self.model.name,
            seconds=time.perf_counter() - started,
            error=message,
        )


def _with_room(verdicts: Sequence[PassageVerdict], budget: Budget) -> list[PassageVerdict]:
    """Keep passages that stage 1 did not pass on, best first, while ``keep_share`` has room."""
    kept = [verdict.text for verdict in verdicts if verdict.kept]
    room = budget.characters - sum(map(len, kept))
    cut = [verdict for verdict in verdicts if verdict.cut_by == "pool_size"]
    added: dict[int, PassageVerdict] = {}
    for verdict in sorted(cut, key=lambda each: each.rank or 0):
        if room <= 0.0:
            break
        room -= len(verdict.text)
        reason = "kept by its rank in stage 1: keep_share has room for it"
        added[verdict.index] = replace(verdict, kept=True, reason=reason, cut_by="")
    return [added.get(verdict.index, verdict) for verdict in verdicts]


def _undecided(
    index: int,
    pool: Pool,
    scoring: PassageScoring,
    pool_size: int,
) -> Decision:
    """Return the decision on a passage that has no score."""
    cut_by = ""
    if index in scoring.unscored:
        reason = f"it could not be scored: {scoring.unscored[index]}"
    else:
        cut_by = "pool_size"
        reason = (
            f"not among the {pool_size} passages that the ranker passed on "
            f"(it is number {pool.ranks[index]})"
        )
    return Decision(Verdict.UNSCORED, False, reason, cut_by)
