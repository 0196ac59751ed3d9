"""One question put to one model through one signal, passage by passage."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ecs_plugins.common.aio import check_awaited
from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import LanguageModel, prepare
from ecs_plugins.shaping.passages import Unit, split_passages
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, UnitUtility
from ecs_plugins.tokens import Role, Stage, TokenLedger

_log = logging.getLogger(__name__)

TEMPLATE_ROOM = 160
"""Tokens of the window set aside for the template and the chat layout."""


@dataclass
class PassageScoring:
    """One question put to one model through one signal, and the tokens that it takes.

    A passage that was split is worth what its best unit is worth, because a reader needs only one
    place that answers. The length penalty is charged for the whole passage, which is what would
    enter the context.

    Attributes:
        task: The question; passages and context are filled in per call.
        passages: As they were given, by index.
        units: What is scored of each passage, by index.
        tokens: Of every passage.
        length_penalty: Nats per token.
        unscored: Why a passage could not be scored, by index.
    """

    model: LanguageModel
    signal: Signal
    task: ScoringTask
    passages: Sequence[str]
    units: Mapping[int, tuple[Unit, ...]]
    tokens: Sequence[int]
    length_penalty: float
    ledger: TokenLedger = field(default_factory=TokenLedger)
    unscored: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._warned = False
        self._context = self.task.context
        answers = self.task.answers
        self._room = self._room_for(self.task)
        fitted = replace(self.task, context=self._fitted([self._context]))
        self.task = self.signal.prepare(fitted, self.model, self.ledger)
        if self.task.answers != answers:
            self._room = self._room_for(self.task)

    def score(self, indices: Sequence[int], kept: Sequence[int]) -> dict[int, UnitUtility]:
        """Score passages once others are kept; those that cannot be scored are left out.

        Of a context beyond the model's window the oldest part, which stands first, is left out.
        """
        units: list[Unit] = []
        for index in indices:
            units += self.units[index]
        if not units:
            return {}
        check_awaited()
        accepted = [self.passages[index] for index in kept]
        context = self._fitted([self._context, *accepted])
        texts = [unit.text.strip() for unit in units]
        task = self.task.narrowed(texts, context)
        best = self._best(units, self._utilities(task))
        for index in best:
            self.unscored.pop(index, None)
        return best

    def _best(
        self,
        units: Sequence[Unit],
        utilities: Sequence[UnitUtility],
    ) -> dict[int, UnitUtility]:
        """Return the best unit of every passage by its index; note why others have no score."""
        best: dict[int, UnitUtility] = {}
        for unit, utility in zip(units, utilities, strict=True):
            index = unit.source
            if not utility.is_finite:
                self.unscored.setdefault(index, utility.reason or "the score is not finite")
                continue
            if self.length_penalty or len(self.units[index]) > 1:
                utility = self._charged(unit, utility)
            known = best.get(index)
            if known is None or utility.score > known.score:
                best[index] = utility
        return best

    def score_texts(self, texts: Sequence[str]) -> list[float | None]:
        """Return the number that orders each text, before anything is kept; None without a score.

        A blank text comes last.
        """
        scores: list[float | None] = [-math.inf] * len(texts)
        filled = [place for place, text in enumerate(texts) if text.strip()]
        if not filled:
            return scores
        context = self._fitted([self._context])
        asked = [texts[place] for place in filled]
        task = self.task.narrowed(asked, context)
        utilities = self._utilities(replace(task, unscored=()))
        for place, utility in zip(filled, utilities, strict=True):
            score = utility.score
            scores[place] = score if math.isfinite(score) else None
        return scores

    def _charged(self, unit: Unit, utility: UnitUtility) -> UnitUtility:
        """Return the utility of a unit after the length penalty of its whole passage."""
        penalty = self.length_penalty * self.tokens[unit.source]
        siblings = self.units[unit.source]
        parts = dict(utility.parts)
        if self.length_penalty:
            parts["length_penalty"] = penalty
        if len(siblings) > 1:
            parts["units"] = len(siblings)
            parts["best_unit"] = siblings.index(unit)
        return UnitUtility(
            utility=utility.utility - penalty,
            parts=parts,
            order_by=utility.score - penalty,
        )

    def _utilities(self, task: ScoringTask) -> Sequence[UnitUtility]:
        requests = self.signal.requests(task, self.model.layout)
        # In 16 bits, keys that were just computed and kept ones differ in the last bits. So the
        # passages are read first, and every call scores after kept keys: equal calls are equal.
        read = prepare(self.model, requests) if requests else 0
        if read:
            self.ledger.book(Stage.QUERY, Role.SCORER, read)
        results = self.model.score(requests) if requests else []
        if len(results) != len(requests):
            raise ScoringError(
                f"the model answered {len(requests)} requests with {len(results)} results"
            )
        for result in results:
            self.ledger.book(Stage.QUERY, Role.SCORER, result.computed_tokens)
        utilities = self.signal.utilities(task, results)
        if len(utilities) != len(task.passages):
            raise ScoringError(
                f"the signal {self.signal.name!r} gave {len(utilities)} utilities for "
                f"{len(task.passages)} passages; it must give one for each"
            )
        return utilities

    def _room_for(self, task: ScoringTask) -> int:
        """Return tokens of the window that are left for the context."""
        counts = self.model.count_tokens([task.query, *task.answers])
        query_tokens, *answer_tokens = counts
        longest_answer = max(answer_tokens, default=0)
        longest_unit = 0
        for units in self.units.values():
            for unit in units:
                longest_unit = max(longest_unit, unit.tokens)
        room = self.model.max_tokens - TEMPLATE_ROOM
        return room - longest_unit - query_tokens - longest_answer

    def _fitted(self, context: Sequence[str]) -> str:
        """Return the end of a context, as far as there is room for it."""
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
        left_out = len(units) - len(kept)
        self._warn_once(left_out, parts=len(units))
        return "\n".join(reversed(kept))

    def _warn_once(self, left_out: int, *, parts: int) -> None:
        """Say that a context is cut: it is fitted for preparing and for every round of scoring."""
        if self._warned:
            return
        self._warned = True
        _log.warning(
            "the context does not fit the model's window of %d tokens: its oldest %d of %d "
            "parts are left out of the scoring",
            self.model.max_tokens,
            left_out,
            parts,
        )
