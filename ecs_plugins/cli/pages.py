"""Results as self-contained HTML pages: what shaping found, and the life of a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ecs_plugins.common.pages import rendered
from ecs_plugins.common.text import sentence_spans
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.types import Namespace
from ecs_plugins.shaping import ContextShaper, ShapedContext

SENTENCES = 200
"""Sentences of one page that are scored, those of the best passages first."""

Coloured = Mapping[int, list[tuple[str, float | None]]]
"""Index of a passage -> its sentences, each with what it adds in [-1, 1]; None is not scored."""


def shape_page(shaped: ShapedContext, sentences: Coloured) -> str:
    """The passages with their verdicts, kept ones first, coloured sentence by sentence."""
    order = sorted(
        shaped.verdicts, key=lambda v: (not v.kept, v.score is None, -(v.score or 0.0), v.index)
    )
    return rendered("shape.html.j2", shaped.query, shaped=shaped, order=order, sentences=sentences)


def coloured(shaper: ContextShaper, shaped: ShapedContext) -> Coloured:
    """What each sentence adds by itself, relative to the strongest of them.

    Scores every sentence of the passages that were scored, best first, in one more call.
    """
    pieces: dict[int, list[str]] = {}
    for verdict in shaped.ranked:
        spans = sentence_spans(verdict.text)
        if sum(map(len, pieces.values())) + len(spans) > SENTENCES:
            break
        pieces[verdict.index] = [verdict.text[start:end] for start, end in spans]
    config = shaper.config.replace(ranker=None, unit="passage", conversation=False)
    scored = ContextShaper(shaper.model, config).shape(
        shaped.query, [piece for found in pieces.values() for piece in found]
    )
    scores = {verdict.text: verdict.score for verdict in scored.verdicts}
    known = [score for score in scores.values() if score is not None]
    middle = sum(known) / max(1, len(known))
    widest = max((abs(score - middle) for score in known), default=0.0) or 1.0
    return {
        index: [
            (piece, None if (score := scores[piece]) is None else (score - middle) / widest)
            for piece in found
        ]
        for index, found in pieces.items()
    }


def memory_page(memory: EntropicMemory, namespaces: Sequence[Namespace]) -> str:
    """The memories of some namespaces on a timeline of sleep phases, with every decision."""
    stats = {each.namespace: each for each in memory.admin.stats().namespaces}
    spaces = [
        {"name": " / ".join(each), "stats": stats[each], **_life(memory, each)}
        for each in namespaces
        if each in stats
    ]
    return rendered("memory.html.j2", Path(memory.path).name, spaces=spaces)


def _life(memory: EntropicMemory, namespace: Namespace) -> dict[str, Any]:
    reports, decisions = memory.sleeps(namespace), memory.decisions(namespace)
    ids = dict.fromkeys(each.id for each in memory.memories(namespace))
    for each in decisions:
        ids |= dict.fromkeys((each.decision.target_id or "", each.decision.candidate_id))
    first = min((report.id for report in reports), default=0)
    last = max((report.id for report in reports), default=0) + 1
    lives = []
    for versions in filter(None, map(memory.history, ids)):
        newest, born = versions[-1], versions[0].born or first
        end = newest.died or last
        lives.append(
            {name: getattr(newest, name) for name in ("text", "support", "pinned", "died")}
            | {"free_energy": newest.free_energy, "born": born}
            | {"left": 100 * (born - first) / (last - first or 1)}
            | {"width": 100 * (end - born) / (last - first or 1)}
        )
    lives.sort(key=lambda life: (life["died"] is not None, life["born"]))
    phases = [
        {
            "report": report,
            "when": datetime.fromtimestamp(report.at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "decisions": [each for each in decisions if each.sleep == report.id],
        }
        for report in reports
    ]
    return {"lives": lives, "sleeps": phases}
