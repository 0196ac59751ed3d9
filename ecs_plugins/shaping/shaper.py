"""ECS: which passages really help to answer this question, and which hurt.

Two stages, as in section 4.10 of Entropic Context Shaping: a ranker keeps the likely passages,
the language model scores them, and acceptance turns scores into verdicts. Every passage gets a
verdict; nothing that was passed in is changed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ecs_plugins.common.aio import bridged
from ecs_plugins.common.text import as_replies, is_conversation
from ecs_plugins.errors import (
    ConfigurationError,
    InvalidInputError,
    MissingExtraError,
    ModelNotFoundError,
    ScoringError,
)
from ecs_plugins.lm.base import LanguageModel, prepare
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.shaping.acceptance import (
    Decision,
    Limits,
    NearRepetitions,
    by_score,
    exact_repetitions,
    greedy,
    redundant,
    stream,
)
from ecs_plugins.shaping.config import ShapingConfig, make_parts, resolve_signal
from ecs_plugins.shaping.deadline import ScoredOnce, in_portions
from ecs_plugins.shaping.passages import (
    UNIT_TOKENS,
    Unit,
    beyond_question,
    build_pool,
    split_passages,
)
from ecs_plugins.shaping.probability import SHIPPED
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext, Verdict
from ecs_plugins.shaping.sentences import prune
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, UnitUtility
from ecs_plugins.shaping.signals.fused import z_scores
from ecs_plugins.tokens import Role, Stage, TokenLedger

_log = logging.getLogger(__name__)
_ALWAYS_RAISED = (InvalidInputError, ConfigurationError, MissingExtraError, ModelNotFoundError)
"""Faults of the call or the set-up: returning the input would hide them for good."""
TEMPLATE_ROOM = 160
"""Tokens of the window set aside for the template and the chat layout."""


class ContextShaper:
    """Chooses the passages that help to answer a question.

    Thread-safe if the model is. Between calls it remembers nothing but the embeddings of passages
    that its ranker has seen.

    Args:
        model: The local language model that scores.
        config: The settings; a mapping of them does too.
        embedder: For the rankers ``"dense"`` and ``"convex"``, also those of a signal; by default
            the one that is installed, loaded when it is first needed.
    """

    def __init__(
        self,
        model: LanguageModel,
        config: ShapingConfig | Mapping[str, Any] | None = None,
        *,
        embedder: Embedder | None = None,
    ) -> None:
        if not callable(getattr(model, "score", None)):
            raise ConfigurationError(
                f"a ContextShaper needs a LanguageModel such as LocalLM, got {model!r:.80}"
            )
        self.model = model
        self.config = ShapingConfig.from_any(config)
        self._signal, self._ranker = make_parts(self.config, embedder)

    def shape(
        self,
        query: str,
        passages: Sequence[str],
        *,
        context: str = "",
        answer: str | Sequence[str] | None = None,
        read_as: Sequence[str] | None = None,
        scores: Sequence[float] | None = None,
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

        Returns:
            A verdict for every passage, with its numbers; the kept ones in input order.

        Raises:
            InvalidInputError: The query is blank or has no tokens, a passage is not text,
                ``read_as`` or ``scores`` has another length, a score is not finite, an answer has
                no tokens, or the signal needs an answer and there is none.
            ConfigurationError: The settings do not go together.
            ModelNotFoundError: The model or the embedder is not installed.
            EcsPluginsError: The model cannot score and ``on_error`` is ``"raise"``.
        """
        started = time.perf_counter()
        passages = _checked_passages(query, passages)
        if scores is not None and [
            hasattr(score, "__float__") and math.isfinite(score) for score in scores
        ] != [True] * len(passages):
            raise InvalidInputError(f"scores must be {len(passages)} finite numbers")
        signal = resolve_signal(self._signal, has_answer=bool(answer))
        try:
            return self._run(query, passages, context, answer, read_as, scores, signal, started)
        except _ALWAYS_RAISED:
            raise
        except Exception as error:
            if self.config.on_error == "raise":
                raise
            _log.warning("passages could not be scored and are returned as given", exc_info=True)
            return self._returned(query, passages, signal, error, started)

    ashape = bridged(shape, asks_model=True)

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
        passages = _checked_passages("?", passages)
        units = split_passages(
            as_replies(passages) if self._is_conversation(passages) else passages,
            model.count_tokens,
            max(1, min(UNIT_TOKENS, model.max_tokens // 4)),
        )
        texts = tuple(unit.text.strip() for unit in units if unit.text.strip())
        signal = resolve_signal(self._signal, has_answer=self._signal != "auto")
        task = ScoringTask("?", texts, context, ("?",), trajectory="?")
        return prepare(model, signal.requests(task, model.layout)) if texts else 0

    def _is_conversation(self, passages: Sequence[str]) -> bool:
        told = self.config.conversation
        return is_conversation(passages) if told is None else told

    def _run(
        self,
        query: str,
        passages: Sequence[str],
        context: str,
        answer: str | Sequence[str] | None,
        read_as: Sequence[str] | None,
        scores: Sequence[float] | None,
        signal: Signal,
        started: float,
    ) -> ShapedContext:
        config, model = self.config, self.model
        limits = Limits.of(config, signal.threshold, signal.name, signal.unit)
        answers = checked_answers(answer, model)
        if not passages:
            return ShapedContext(query, (), signal.name, model.name)
        if read_as is not None:
            read: Sequence[str] = list(read_as)
            conversation = read != passages
        else:
            conversation = self._is_conversation(passages)
            read = as_replies(passages) if conversation else passages
            if config.beyond_question:
                read = [
                    beyond_question(query, passage) if text == passage else text
                    for text, passage in zip(read, passages, strict=True)
                ]
        if len(read) != len(passages):
            raise InvalidInputError(f"read_as has {len(read)} texts for {len(passages)} passages")
        as_given = list(read) == passages
        counted = model.count_tokens([query, *passages, *(() if as_given else read)])
        query_tokens, tokens = counted[0], counted[1 : len(passages) + 1]
        lengths = counted[len(passages) + 1 :] or tokens
        if not query_tokens:
            raise InvalidInputError(f"the query {query!r} has no tokens: ask a question in words")
        settled = _settled(passages, read, tokens)
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
        until = None if config.budget_s is None else started + config.budget_s
        looked_for = " ".join((query, *(answers if signal.needs_answer else ())))
        always = until is not None or getattr(signal, "reads_best_first", False)
        pool = build_pool(looked_for, units, self._ranker, config.pool_size, always=always)
        repetitions = NearRepetitions(
            {index: passages[index] for index in pool.units}, config.redundancy_similarity
        )
        given = {} if scores is None else {u.text.strip(): scores[u.source] for u in units}
        task = ScoringTask(
            query.strip(), pool.best_first, context, answers, seed=config.seed, found=given
        )
        scoring = PassageScoring(
            model, signal, task, passages, pool.units, tokens, config.length_penalty, until
        )
        # In time, only the first are scored: the best, unless the given order is Algorithm 1's.
        in_order = until is None or config.acceptance == "stream"
        accepting = (
            list(pool.units if in_order else pool.order),
            tokens,
            scoring.score,
            limits,
            repetitions,
        )
        if config.acceptance == "stream":
            outcome = stream(*accepting)
        else:
            rounds = config.greedy_rounds if config.acceptance == "greedy" else 1
            outcome = greedy(*accepting, rounds)
        places = outcome.places()
        likely = self._probabilities(signal, outcome.scored)
        verdicts: list[PassageVerdict] = []
        for index, passage in enumerate(passages):
            decision = settled.get(index) or outcome.decisions.get(index)
            if decision is None:
                reason = (
                    f"it could not be scored: {scoring.unscored[index]}"
                    if index in scoring.unscored
                    else f"not among the {len(pool.units)} passages that the ranker passed on "
                    f"(it is number {pool.ranks[index]})"
                )
                decision = Decision(Verdict.UNSCORED, False, reason)
            scored = outcome.scored.get(index)
            verdicts.append(
                PassageVerdict(
                    index=index,
                    text=passage,
                    verdict=decision.verdict,
                    kept=decision.kept,
                    utility=scored.utility if scored else None,
                    parts=scored.parts if scored else {},
                    tokens=tokens[index],
                    rank=pool.ranks.get(index),
                    rank_score=pool.scores.get(index),
                    reason=decision.reason,
                    score=scored.score if scored else None,
                    place=places.get(index),
                    probability=likely.get(index),
                )
            )
        if config.unit == "sentence":
            verdicts = self._pruned(query, verdicts, scoring)
        return ShapedContext(
            query=query,
            verdicts=tuple(verdicts),
            signal=signal.name,
            model=model.name,
            ledger=scoring.ledger,
            seconds=time.perf_counter() - started,
            conversation=conversation,
            timed_out=scoring.timed_out,
        )

    def _probabilities(
        self, signal: Signal, scored: Mapping[int, UnitUtility]
    ) -> Mapping[int, float]:
        """By passage: those of all, the largest to the best by score; empty without a fit."""
        fit = self.config.probability or SHIPPED.get((self.model.name, signal.name))
        if fit is None or self.config.acceptance != "independent":
            return {}
        found = [fit.of({**each.parts, "utility": each.utility}) for each in scored.values()]
        known = sorted((each for each in found if each is not None), reverse=True)
        return dict(zip(by_score(scored), known, strict=False)) if len(known) == len(found) else {}

    def _pruned(
        self, query: str, verdicts: Sequence[PassageVerdict], scoring: PassageScoring
    ) -> list[PassageVerdict]:
        """The same, where kept passages keep only the sentences that help."""
        kept = [verdict for verdict in verdicts if verdict.kept]

        def score(texts: Sequence[str]) -> list[float | None]:
            if self.config.beyond_question:
                texts = [beyond_question(query, text) for text in texts]
            return scoring.score_texts(texts)

        standing = z_scores([verdict.score or 0.0 for verdict in kept])
        pruned = prune(query, [verdict.text for verdict in kept], score, standing)
        shorter = {
            v.index: replace(v, spans=spans)
            if spans
            else replace(
                v, kept=False, place=None, reason="none of its sentences is among the best"
            )
            for v, spans in zip(kept, pruned, strict=True)
            if spans is not None
        }
        counts = self.model.count_tokens([v.kept_text for v in shorter.values()] or [""])
        for verdict, tokens in zip(shorter.values(), counts, strict=False):
            shorter[verdict.index] = replace(verdict, tokens_kept=tokens if verdict.kept else None)
        return [shorter.get(verdict.index, verdict) for verdict in verdicts]

    def _returned(
        self, query: str, passages: Sequence[str], signal: Signal, error: Exception, started: float
    ) -> ShapedContext:
        """Every passage kept, and why."""
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
            query=query,
            verdicts=tuple(verdicts),
            signal=signal.name,
            model=self.model.name,
            seconds=time.perf_counter() - started,
            error=message,
        )


@dataclass
class PassageScoring:
    """One question put to one model through one signal, and the tokens that it takes.

    A passage that was split is worth what its best unit is worth, because a reader needs only one
    place that answers. The length penalty is charged for the whole passage, which is what would
    enter the context. Passages and context of the task are filled in per call. ``unscored`` holds
    the reason by passage.
    """

    model: LanguageModel
    signal: Signal
    task: ScoringTask
    passages: Sequence[str]
    units: Mapping[int, tuple[Unit, ...]]
    tokens: Sequence[int]
    length_penalty: float
    until: float | None = None
    ledger: TokenLedger = field(default_factory=TokenLedger)
    unscored: dict[int, str] = field(default_factory=dict)
    timed_out: bool = False

    def __post_init__(self) -> None:
        self._warned = False
        self._context, answers = self.task.context, self.task.answers
        self._room = self._room_for(self.task)
        fitted = replace(self.task, context=self._fitted([self._context]))
        self.task = self.signal.prepare(fitted, self.model, self.ledger)
        if self.task.answers != answers:
            self._room = self._room_for(self.task)

    def score(self, indices: Sequence[int], kept: Sequence[int]) -> dict[int, UnitUtility]:
        """Score passages once others are kept; those that cannot be scored are left out.

        Of a context beyond the model's window the oldest part, which stands first, is left out.
        """
        units = [unit for index in indices for unit in self.units[index]]
        if not units:
            return {}
        known = self._fitted([self._context, *(self.passages[index] for index in kept)])
        utilities = self._utilities([unit.text.strip() for unit in units], known)
        best: dict[int, UnitUtility] = {}
        for unit, found in zip(units, utilities, strict=True):
            if not math.isfinite(found.utility) or not math.isfinite(found.score):
                self.unscored.setdefault(unit.source, found.reason or "the score is not finite")
                continue
            penalty = self.length_penalty * self.tokens[unit.source]
            score = found.score - penalty
            if unit.source not in best or score > best[unit.source].score:
                parts = dict(found.parts)
                if self.length_penalty:
                    parts["length_penalty"] = penalty
                siblings = self.units[unit.source]
                if len(siblings) > 1:
                    parts |= {"units": len(siblings), "best_unit": siblings.index(unit)}
                utility = float(found.utility - penalty)
                best[unit.source] = UnitUtility(utility, parts, float(score))
        for index in best:
            self.unscored.pop(index, None)
        return best

    def score_texts(self, texts: Sequence[str]) -> list[float | None]:
        """What each text is ordered by, once nothing is kept; None where it cannot be scored.

        A blank text comes last.
        """
        filled = [text for text in texts if text.strip()]
        found = iter(self._utilities(filled, self._fitted([self._context])) if filled else ())
        scores: list[float | None] = []
        for text in texts:
            each = next(found) if text.strip() else UnitUtility(-math.inf)
            scores.append(each.score if math.isfinite(each.score) or not text.strip() else None)
        return scores

    def _utilities(self, texts: Sequence[str], known: str) -> Sequence[UnitUtility]:
        """In time, NaN for those that there was no time for."""
        if self.until is None:
            return self._asked(self.model, texts, known)
        once = ScoredOnce(self.model)
        done = in_portions(texts, lambda few: self._asked(once, few, known), self.until)
        self.timed_out |= done < len(texts)
        late = [UnitUtility(math.nan, reason="the time was up")] * (len(texts) - done)
        # Some signals compare passages with each other, so once more together, at no cost.
        return [*self._asked(once, texts[:done], known), *late]

    def _asked(
        self, model: LanguageModel, texts: Sequence[str], known: str
    ) -> Sequence[UnitUtility]:
        task = self.task.narrowed(texts, known)
        requests = self.signal.requests(task, model.layout)
        results = model.score(requests)
        if len(results) != len(requests):
            raise ScoringError(
                f"the model answered {len(requests)} requests with {len(results)} results"
            )
        for result in results:
            self.ledger.book(Stage.QUERY, Role.SCORER, result.computed_tokens)
        utilities = self.signal.utilities(task, results)
        if len(utilities) != len(texts):
            raise ScoringError(
                f"the signal {self.signal.name!r} gave {len(utilities)} utilities for "
                f"{len(texts)} passages; it must give one for each"
            )
        return utilities

    def _room_for(self, task: ScoringTask) -> int:
        asked = self.model.count_tokens([task.query, *task.answers])
        longest = max((unit.tokens for found in self.units.values() for unit in found), default=0)
        left = self.model.max_tokens - TEMPLATE_ROOM - longest
        return left - asked[0] - max([0, *asked[1:]])

    def _fitted(self, context: Sequence[str]) -> str:
        texts = [text.strip() for text in context if text.strip()]
        if not texts:
            return ""
        lengths = self.model.count_tokens(texts)
        if sum(lengths) + len(texts) <= self._room:
            return "\n".join(texts)
        units = split_passages(texts, self.model.count_tokens, lengths=lengths)
        kept: list[str] = []
        left = self._room
        for unit in reversed(units):
            left -= unit.tokens + 1
            if left < 0:
                break
            kept.append(unit.text.strip())
        if not self._warned:  # a context is fitted for preparing and for every round of scoring
            self._warned = True
            _log.warning(
                "the context does not fit the model's window of %d tokens: its oldest %d of %d "
                "parts are left out of the scoring",
                self.model.max_tokens,
                len(units) - len(kept),
                len(units),
            )
        return "\n".join(reversed(kept))


def _checked_passages(query: str, passages: Sequence[str]) -> list[str]:
    if not isinstance(query, str) or not query.strip():
        raise InvalidInputError("the query is empty: pass the question that is to be answered")
    if isinstance(passages, str) or not isinstance(passages, Iterable):
        raise InvalidInputError(
            f"passages must be a sequence of texts, got {passages!r:.60}; use []"
        )
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
    """What needs no model: passages without content, exact repetitions, copies of the question."""
    repeats = exact_repetitions(passages, read)
    settled = {index: redundant(first) for index, first in repeats.items()}
    for index, passage in enumerate(passages):
        if not passage.strip() or not tokens[index]:
            settled[index] = Decision(Verdict.UNSCORED, False, "the passage is empty")
        elif not read[index].strip():
            settled[index] = Decision(Verdict.UNSCORED, False, "it says nothing but the question")
    return settled


def checked_answers(answer: str | Sequence[str] | None, model: LanguageModel) -> tuple[str, ...]:
    """The answers without surrounding white space and repetitions; a blank one is refused."""
    given = [answer] if isinstance(answer, str) else answer or ()
    if not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise InvalidInputError(f"an answer is a text or a list of texts, got {answer!r:.80}")
    answers = tuple(dict.fromkeys(text.strip() for text in given))
    counts = model.count_tokens(answers) if answers else ()
    for text, tokens in zip(answers, counts, strict=True):
        if not tokens:
            raise InvalidInputError(
                f"the answer {text!r} has no tokens, so its probability means nothing: pass "
                "a non-empty answer, or none"
            )
    return answers
