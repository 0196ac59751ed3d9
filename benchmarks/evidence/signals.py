"""LongLLMLingua's ranking rule, read by the same small model as ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult, Segment
from ecs_plugins.shaping.signals.base import ScoringTask, UnitUtility
from ecs_plugins.tokens import TokenLedger

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
