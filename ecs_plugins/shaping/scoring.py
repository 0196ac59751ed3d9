"""One model, one signal, one question: scores passages against a context and books the tokens.

A passage that was split is worth what its best unit is worth, because a reader needs only one
place that answers. The length penalty is charged for the whole passage, which is what would
enter the context.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ecs_plugins.errors import InvalidInputError, ScoringError
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.lm.screening import screen_of
from ecs_plugins.shaping.passages import Unit, split_passages
from ecs_plugins.shaping.protocol import ScoringTask, Signal
from ecs_plugins.shaping.screening import Contest, Screen, Screening, places
from ecs_plugins.shaping.selection import Scored
from ecs_plugins.tokens import Role, Stage, TokenLedger

_log = logging.getLogger(__name__)

TEMPLATE_ROOM = 160
"""Tokens of the window set aside for the template and the chat layout."""


class PassageScorer:
    """Scores passages for one question.

    Args:
        model: The language model.
        signal: What is measured.
        task: The question with its answers, and the passages that the signal may prepare from,
            best first; passages and context are filled in per call.
        units: Passage index -> its units.
        tokens: Tokens of every passage, by index.
        length_penalty: Nats per passage token.

    Attributes:
        ledger: Tokens spent so far.
        unscored: Passage index -> reason, for passages the model could not score.
        screening: What a faster copy of the model spared it, if it has one.
    """

    def __init__(
        self,
        model: LanguageModel,
        signal: Signal,
        task: ScoringTask,
        units: Mapping[int, tuple[Unit, ...]],
        tokens: Sequence[int],
        length_penalty: float,
    ) -> None:
        self.ledger = TokenLedger()
        self.unscored: dict[int, str] = {}
        self.screening: Screening | None = None
        self._model = model
        self._fast = screen_of(model)
        self._signal = signal
        self._units = units
        self._tokens = tokens
        self._length_penalty = length_penalty
        self._warned = False
        self._room = self._room_for(task)
        task = replace(task, context=self._fitted([task.context]))
        self._task = signal.prepare(task, model, self.ledger)
        if self._task.answers != task.answers:
            self._room = self._room_for(self._task)

    def score(
        self, passages: Iterable[int], context: Sequence[str], contest: Contest | None = None
    ) -> dict[int, Scored]:
        """Score some passages against what is known; those that cannot be scored are left out.

        Args:
            passages: Their indices.
            context: What is known already, oldest first. What does not fit the model's window
                is forgotten from the oldest end.
            contest: What they compete for; those that a faster copy of the model finds without
                a chance keep the scores of that one.
        """
        units = [unit for index in passages for unit in self._units[index]]
        if not units:
            return {}
        task = self._task.narrowed([unit.text.strip() for unit in units], self._fitted(context))
        requests = self._signal.requests(task, self._model.layout)
        where = [places(request, len(units)) for request in requests]
        sources = [unit.source for unit in units]
        if self._fast is None or contest is None or None in where or not contest.open_to(sources):
            results = self._answers(self._model, requests)
            self._book(results)
            return self._best(task, units, results)
        screen = Screen(
            requests,
            self._answers(self._fast, requests),
            [place for place in where if place is not None],
            sources,
            contest,
            partial(self._best, task, units),
        )
        screen.settle(self._model, task.seed)
        self._book(screen.results)
        self.screening = screen.report.joined(self.screening)
        return screen.scored

    def _answers(self, model: LanguageModel, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        results = model.score(requests)
        if len(results) != len(requests):
            raise ScoringError(
                f"the model answered {len(requests)} requests with {len(results)} results"
            )
        return results

    def _book(self, results: Sequence[ScoreResult]) -> None:
        for result in results:
            self.ledger.book(Stage.QUERY, Role.SCORER, result.computed_tokens)

    def _best(
        self, task: ScoringTask, units: list[Unit], results: Sequence[ScoreResult]
    ) -> dict[int, Scored]:
        utilities = self._signal.utilities(task, results)
        if len(utilities) != len(units):
            raise ScoringError(
                f"the signal {self._signal.name!r} gave {len(utilities)} utilities for "
                f"{len(units)} passages; it must give one for each"
            )
        best: dict[int, Scored] = {}
        for unit, found in zip(units, utilities, strict=True):
            order_by = found.utility if found.order_by is None else found.order_by
            if not math.isfinite(found.utility) or not math.isfinite(order_by):
                self.unscored.setdefault(unit.source, found.reason or "the score is not finite")
                continue
            penalty = self._length_penalty * self._tokens[unit.source]
            score = order_by - penalty
            if unit.source not in best or score > best[unit.source].score:
                parts = dict(found.parts)
                if self._length_penalty:
                    parts["length_penalty"] = penalty
                siblings = self._units[unit.source]
                if len(siblings) > 1:
                    parts |= {"units": len(siblings), "best_unit": siblings.index(unit)}
                best[unit.source] = Scored(float(found.utility - penalty), float(score), parts)
        for index in best:
            self.unscored.pop(index, None)
        return best

    def _room_for(self, task: ScoringTask) -> int:
        asked = self._model.count_tokens([task.query, *task.answers])
        longest = max((unit.tokens for found in self._units.values() for unit in found), default=0)
        left = self._model.max_tokens - TEMPLATE_ROOM - longest
        return left - asked[0] - max([0, *asked[1:]])

    def _fitted(self, context: Sequence[str]) -> str:
        texts = [text.strip() for text in context if text.strip()]
        if not texts:
            return ""
        lengths = self._model.count_tokens(texts)
        if sum(lengths) + len(texts) <= self._room:
            return "\n".join(texts)
        units = split_passages(texts, self._model.count_tokens, lengths=lengths)
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
                self._model.max_tokens,
                len(units) - len(kept),
                len(units),
            )
        return "\n".join(reversed(kept))


def checked_answers(answer: str | Sequence[str] | None, model: LanguageModel) -> tuple[str, ...]:
    """The answers without surrounding white space and repetitions.

    Raises:
        InvalidInputError: An answer is not text, is blank, or has no tokens.
    """
    given = [answer] if isinstance(answer, str) else list(answer or ())
    for text in given:
        if not isinstance(text, str):
            raise InvalidInputError(f"an answer must be text, got {type(text).__name__}")
    answers = tuple(dict.fromkeys(text.strip() for text in given))
    if answers:
        for text, tokens in zip(answers, model.count_tokens(answers), strict=True):
            if not text or not tokens:
                raise InvalidInputError(
                    f"the answer {text!r} has no tokens, so its probability means nothing: pass "
                    "a non-empty answer, or none"
                )
    return answers
