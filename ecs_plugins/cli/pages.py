"""Results as self-contained HTML pages: shaped passages, and the life of a memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ecs_plugins.common.rendering import rendered
from ecs_plugins.common.text import sentence_spans
from ecs_plugins.memory import EntropicMemory, Memory
from ecs_plugins.memory.records import RecordedDecision
from ecs_plugins.memory.store.tiers import tier_rows
from ecs_plugins.memory.types import Namespace
from ecs_plugins.shaping import ContextShaper, ShapedContext
from ecs_plugins.shaping.result import PassageVerdict

ITEMS = 200
"""Items by key that one page shows."""
SENTENCES = 200
"""Sentences of one page that are scored, those of the best passages first."""

Coloured = Mapping[int, list[tuple[str, float | None]]]
"""Index of a passage -> its sentences, each with the probability that it helps, if one is known."""


def shape_page(shaped: ShapedContext, sentences: Coloured) -> str:
    """Return a page of passages with their verdicts, coloured sentence by sentence."""
    order = ordered(shaped)
    return rendered("shape.html.j2", shaped.query, shaped=shaped, order=order, sentences=sentences)


def ordered(shaped: ShapedContext) -> list[PassageVerdict]:
    """Return verdicts in the order of a page: kept ones first, then by score."""

    def place(verdict: PassageVerdict) -> tuple[bool, bool, float, int]:
        score = verdict.score
        return not verdict.kept, score is None, -(score or 0.0), verdict.index

    return sorted(shaped.verdicts, key=place)


def coloured(shaper: ContextShaper, shaped: ShapedContext) -> Coloured:
    """Return the probability of each sentence that it helps by itself.

    Scores every sentence of the passages that were scored, best first, in one more call.
    """
    pieces = _sentences(shaped)
    config = shaper.config.replace(ranker=None, unit="passage")
    texts = [piece for own in pieces.values() for piece in own]
    scored = ContextShaper(shaper.model, config).shape(shaped.query, texts)
    helps = {verdict.text: verdict.probability for verdict in scored.verdicts}
    return {index: [(piece, helps.get(piece)) for piece in own] for index, own in pieces.items()}


def _sentences(shaped: ShapedContext) -> dict[int, list[str]]:
    """Return the sentences of the best passages by index, `SENTENCES` at most."""
    pieces: dict[int, list[str]] = {}
    room = SENTENCES
    for verdict in shaped.ranked:
        spans = sentence_spans(verdict.text)
        room -= len(spans)
        if room < 0:
            break
        pieces[verdict.index] = [verdict.text[start:end] for start, end in spans]
    return pieces


def memory_page(
    memory: EntropicMemory, namespaces: Sequence[Namespace], below: Namespace = ()
) -> str:
    """Return a page of namespaces: memories on a timeline of sleep phases, and every decision.

    Behind them come the items by key, `ITEMS` at most, of a namespace and those below it.
    """
    stats = {each.namespace: each for each in memory.admin.stats().namespaces}
    spaces = [
        {"name": " / ".join(each), "stats": stats[each], **life_of(memory, each)}
        for each in namespaces
        if each in stats
    ]
    items = _items(memory, below)
    return rendered("memory.html.j2", Path(memory.path).name, spaces=spaces, items=items)


def _items(memory: EntropicMemory, below: Namespace) -> list[dict[str, str]]:
    """Return the place of each item by key, and its value as JSON."""
    with memory.items.view() as view:
        found = view.find(below, limit=ITEMS)
    return [
        {
            "place": " / ".join([*each.namespace, each.key]),
            "value": json.dumps(each.value, ensure_ascii=False, default=str),
        }
        for each in found
    ]


def life_of(memory: EntropicMemory, namespace: Namespace) -> dict[str, Any]:
    """Return the hot messages, the versions of each memory, and the sleep phases of a namespace."""
    reports = memory.sleeps(namespace)
    decisions = memory.decisions(namespace)
    numbers = [report.id for report in reports] or [0]
    histories = [memory.history(id) for id in _ids(memory, namespace, decisions)]
    lives = [versions for versions in histories if versions]
    lives.sort(key=lambda versions: (versions[-1].died is not None, versions[0].born or 0))
    return {
        "hot": _hot(memory, namespace),
        "lives": lives,
        "first": min(numbers),
        "last": max(numbers) + 1,
        "sleeps": [(datetime.fromtimestamp(report.at, UTC), report) for report in reports],
        "decisions": decisions,
    }


def _hot(memory: EntropicMemory, namespace: Namespace) -> list[Memory]:
    """Return the latest messages of the hot tier, newest first."""
    with memory._store.reading(namespace) as (connection, space):
        rows = () if space is None else tier_rows(connection, space.id, "hot")
        hot = {row.item.id for row in rows}
    latest = memory.messages(namespace, limit=ITEMS)
    return [message for message in reversed(latest) if message.id in hot]


def _ids(
    memory: EntropicMemory, namespace: Namespace, decisions: Sequence[RecordedDecision]
) -> list[str]:
    """Return the ids of all memories, present and past, once each."""
    ids = [each.id for each in memory.memories(namespace)]
    for each in decisions:
        ids += [each.decision.target_id or "", each.decision.candidate_id]
    return list(dict.fromkeys(ids))
