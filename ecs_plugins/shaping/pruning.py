"""Kept passages by their best sentences: ``unit="sentence"`` of `ShapingConfig`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ecs_plugins.ranking.fused import z_scores
from ecs_plugins.shaping.choosing import Beyond, Budget, PieceScorer, prune
from ecs_plugins.shaping.passages import TokenCounter
from ecs_plugins.shaping.result import PassageVerdict
from ecs_plugins.shaping.spans import Span

NONE_STAYS = "none of its sentences is among the best"


def prune_kept(
    query: str,
    verdicts: Sequence[PassageVerdict],
    score: PieceScorer,
    budget: Budget,
    *,
    beyond: Beyond = str,
) -> list[PassageVerdict]:
    """Return the verdicts with only the sentences that help in kept passages.

    Args:
        query: The question.
        verdicts: On all passages.
        score: What each text is ordered by; None where it cannot be scored.
        budget: How much may stay of them.
        beyond: What is scored of a text.
    """
    kept = [verdict for verdict in verdicts if verdict.kept]
    standing = z_scores([verdict.score or 0.0 for verdict in kept])
    texts = [verdict.text for verdict in kept]
    all_spans = prune(query, texts, score, standing, budget, beyond=beyond)
    shorter: dict[int, PassageVerdict] = {}
    for verdict, spans in zip(kept, all_spans, strict=True):
        if spans is not None:
            shorter[verdict.index] = _shortened(verdict, spans, budget)
    shorter |= _counted(shorter.values(), budget.count_tokens)
    return [shorter.get(verdict.index, verdict) for verdict in verdicts]


def _counted(
    verdicts: Iterable[PassageVerdict],
    count_tokens: TokenCounter,
) -> dict[int, PassageVerdict]:
    """Return the verdicts that stay by index, with the tokens of their text."""
    kept = [verdict for verdict in verdicts if verdict.kept]
    if not kept:
        return {}
    counts = count_tokens([verdict.kept_text for verdict in kept])
    return {
        verdict.index: replace(verdict, tokens_kept=tokens)
        for verdict, tokens in zip(kept, counts, strict=True)
    }


def _shortened(verdict: PassageVerdict, spans: tuple[Span, ...], budget: Budget) -> PassageVerdict:
    if spans:
        reason = f"{verdict.reason}; cut to its best sentences, by {budget}"
        return replace(
            verdict,
            spans=spans,
            reason=reason,
            cut_by=budget.settings,
        )
    return replace(
        verdict,
        kept=False,
        place=None,
        reason=f"{NONE_STAYS}, by {budget}",
        cut_by=budget.settings,
    )
