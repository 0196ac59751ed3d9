"""Signals that are measured beside those of the product: published rules and combinations.

`LongLLMLinguaRule` and `UPR_TEMPLATE` are the rules of two published methods, read by the same
small model as ours. `WeightedSum` adds signals as z-scores over the pool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult, Segment
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.shaping.signals.base import ScoringTask, Signal, UnitUtility
from ecs_plugins.shaping.signals.fused import z_scores
from ecs_plugins.tokens import TokenLedger

UPR_TEMPLATE = PromptTemplate(
    before="{context}",
    passage="Passage: {passage}. ",
    after="Please write a question based on this passage.",
    cue="",
    response=" {question}",
)
"""The prompt of Sachan et al. 2022; theirs is read by T0-3B."""

LONGLLMLINGUA_SUFFIX = " We can get the answer to this question in the given documents."
"""The restrictive statement of Jiang et al. 2023, section 4.1, scored with the question."""


@dataclass(frozen=True)
class LongLLMLinguaRule:
    """LongLLMLingua's ranking rule: the perplexity of the question given a document.

    Section 4.1 of Jiang et al. 2023, as its authors' code has it: the question and a fixed
    statement directly behind the document, mean loss over both, lowest first. Only the rule is
    measured; their compressor does more.
    """

    threshold: float | None = None

    name = "longllmlingua_rule"
    unit = "nats per token"
    needs_answer = False
    cost = "passage + question + a statement, one pass per passage"

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Nothing to prepare."""
        del model, ledger
        return task

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """One request without template."""
        del layout
        asked = Segment(task.query.strip() + LONGLLMLINGUA_SUFFIX, scored=True)
        passages = tuple((Segment(passage.strip()),) for passage in task.passages)
        return [ScoreRequest((), passages, ((asked,),))]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """Mean log-probabilities."""
        del task
        (result,) = results
        return [
            UnitUtility(math.nan, reason=result.unscored[index])
            if index in result.unscored
            else UnitUtility(row[0][0].mean)
            for index, row in enumerate(result.scores)
        ]


@dataclass(frozen=True)
class WeightedSum:
    """Signals added as z-scores over the pool; the utility is the first signal's.

    Attributes:
        terms: (signal, weight), at least one.
    """

    terms: tuple[tuple[Signal, float], ...]

    @property
    def name(self) -> str:
        """The names and weights."""
        return "+".join(
            signal.name if weight == 1.0 else f"{weight:g}*{signal.name}"
            for signal, weight in self.terms
        )

    @property
    def unit(self) -> str:
        """The first signal's."""
        return self.terms[0][0].unit

    @property
    def needs_answer(self) -> bool:
        """Whether any of them does."""
        return any(signal.needs_answer for signal, _ in self.terms)

    @property
    def cost(self) -> str:
        """That of all."""
        return "; ".join(signal.cost for signal, _ in self.terms)

    @property
    def threshold(self) -> float | None:
        """The first signal's."""
        return self.terms[0][0].threshold

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """One signal after the other."""
        for signal, _ in self.terms:
            task = signal.prepare(task, model, ledger)
        return task

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Those of all."""
        return [r for signal, _ in self.terms for r in signal.requests(task, layout)]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The first signal's utilities, in the order of the sum."""
        left = list(results)
        found: list[list[UnitUtility]] = []
        for signal, _ in self.terms:
            # The layout decides texts, not how many requests there are.
            count = len(signal.requests(task, ChatLayout("", "", False)))
            found.append(signal.utilities(task, left[:count]))
            left = left[count:]
        columns = [
            z_scores([u.utility if u.order_by is None else u.order_by for u in units])
            for units in found
        ]
        weights = [weight for _, weight in self.terms]
        return [
            UnitUtility(
                first.utility,
                {s.name: z for (s, _), z in zip(self.terms, values, strict=True)},
                order_by=sum(w * z for w, z in zip(weights, values, strict=True)),
                reason=first.reason,
            )
            for first, values in zip(found[0], zip(*columns, strict=True), strict=True)
        ]
