"""Recall for the adapters: its settings, and blocks of notes for a prompt."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from ecs_plugins.common.config import Config, StrictFields
from ecs_plugins.common.inert import inert
from ecs_plugins.common.text import sentence_spans
from ecs_plugins.integrations.namespace_templates import Labels
from ecs_plugins.integrations.notes import Note, TextLength, block_of, notes_of
from ecs_plugins.integrations.tracing import TracedDocument, span
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.store.search import Shaper
from ecs_plugins.memory.types import Namespace
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import ConvexRanker, DenseRanker

_log = logging.getLogger(__name__)

_MOST_VISIBLE = 100  # recollections beyond k that are looked at for some that are not visible yet
_LEAST_TOKENS = 24  # of a note that is shown in part, its label included
_MOST_MISSES = 8  # sentences that do not fit any more before the search for smaller ones ends
_WORD_END = re.compile(r"\S(?=\s|$)")


_K = Field(default=8, ge=1, description="How many recollections at most.")
_THRESHOLD = Field(default=None, ge=-1, le=1, description="Minimum score; None: the memory's own.")
_SHAPER = Field(
    default=None, exclude=True, repr=False, description="A second stage that orders what is found."
)
_MAX_TOKENS = Field(default=512, ge=1, description="Tokens of the recalled block, marks included.")


class RecallOptions(Config):
    """Settings of a recall for a prompt."""

    k: int = _K
    threshold: float | None = _THRESHOLD
    max_tokens: int = _MAX_TOKENS
    filter: Annotated[Filter, BeforeValidator(checked_filter)] | None = Field(
        default=None, description="Metadata that a recollection must have."
    )
    also: tuple[Labels, ...] = Field(
        default=(),
        strict=False,  # in JSON it is a list
        description="Further namespaces to look in, such as one of several agents.",
    )
    outdated: Literal["mark", "hide"] = Field(
        default="mark", description="Mark or hide memories that a judge says are outdated."
    )
    shaper: Shaper | None = _SHAPER


class RecallFields(StrictFields):
    """Fields of an integration that recalls from one namespace."""

    namespace: Labels = Field(
        description="Namespace of the memory; labels are compared one by one."
    )
    k: int = _K
    threshold: float | None = _THRESHOLD
    shaper: Shaper | None = _SHAPER

    def options(self, max_tokens: int) -> RecallOptions:
        """Return the fields as settings of a recall."""
        return RecallOptions(
            k=self.k, threshold=self.threshold, shaper=self.shaper, max_tokens=max_tokens
        )


class RecalledBlock(NamedTuple):
    """Recalled text for a prompt.

    Attributes:
        text: Notes between tags; empty if nothing is recalled.
        notes: Notes that it shows, best first.
    """

    text: str = ""
    notes: tuple[Note, ...] = ()


def recall(
    memory: EntropicMemory,
    query: str,
    namespace: Namespace,
    options: RecallOptions,
    length: TextLength,
    *,
    record: bool = True,
    visible: Collection[str] = (),
    special_tokens: Collection[str] = (),
) -> RecalledBlock:
    """Return the notes that are remembered about a question, within the token budget.

    Where not all fit, the longest texts are shown in part, and the block says how many notes are
    left out.

    Args:
        memory: The memory that is searched.
        query: The question; nothing is recalled for a blank one.
        namespace: Namespace that is searched, besides ``options.also``.
        options: Settings of the recall.
        length: Function that counts the tokens of a text.
        record: True if the call counts as a question asked.
        visible: Texts that the model sees anyway; they are left out.
        special_tokens: Those of the model's tokenizer, where they are known.
    """
    if not query.strip():
        return RecalledBlock()
    recollections = traced_recall(
        memory,
        query,
        namespace=namespace,
        also=options.also,
        k=options.k + min(len(visible), _MOST_VISIBLE),
        threshold=options.threshold,
        filter=options.filter,
        outdated=options.outdated,
        record=record,
        shaper=options.shaper,
    )
    notes = notes_of(memory, recollections, visible, query)[: options.k]
    ranker = ConvexRanker(CoverageRanker(), DenseRanker(memory.embedder))
    block = fitted_block(notes, query, options.max_tokens, length, ranker, special_tokens)
    if notes and not block.notes:
        _log.warning("max_tokens=%d has no space for any recalled note", options.max_tokens)
    return block


def fitted_block(
    notes: Sequence[Note],
    query: str,
    max_tokens: int,
    length: TextLength,
    ranker: Ranker,
    special_tokens: Collection[str] = (),
) -> RecalledBlock:
    """Return a block within a budget, with the longest notes in part.

    Each note gets an equal share of the budget, and the tokens that short notes leave over go to
    the long ones. The notes that fit least leave first if a share would be too small.
    """
    for count in range(len(notes), 0, -1):
        left_out = len(notes) - count
        chosen = list(notes[:count])
        text = block_of(chosen, special_tokens, left_out)
        if length(text) <= max_tokens:
            return RecalledBlock(text, tuple(chosen))
        lengths = [length(note.shown(special_tokens)) for note in chosen]
        frame = length(text) - sum(lengths)
        share = _equal_share(lengths, max_tokens - max(frame, 0))
        if share < _LEAST_TOKENS and count > 1:
            continue
        for index, note in enumerate(chosen):
            if lengths[index] > share:
                chosen[index] = _in_part(note, query, share, length, ranker, special_tokens)
        text = block_of(chosen, special_tokens, left_out)
        if length(text) <= max_tokens:
            return RecalledBlock(text, tuple(chosen))
    return RecalledBlock()


def _equal_share(lengths: Sequence[int], budget: int) -> int:
    """Return the largest length that all can have at most, so that their sum is in the budget."""
    left = budget
    for index, each in enumerate(sorted(lengths)):
        share = left // (len(lengths) - index)
        if each > share:
            return share
        left -= each
    return max(lengths)


def _in_part(
    note: Note,
    query: str,
    max_tokens: int,
    length: TextLength,
    ranker: Ranker,
    special_tokens: Collection[str],
) -> Note:
    """Return a note with the sentences that fit the question best, or with its head."""

    def fits(spans: Sequence[tuple[int, int]]) -> bool:
        return length(replace(note, spans=tuple(spans)).shown(special_tokens)) <= max_tokens

    sentences = sentence_spans(note.text)
    order = ranker.rank(query, [note.text[start:end] for start, end in sentences]).order
    chosen: list[tuple[int, int]] = []
    misses = 0
    for index in order:
        longer = _joined([*chosen, sentences[index]])
        if fits(longer):
            chosen = longer
        else:
            misses += 1
        if misses > _MOST_MISSES:
            break
    if not chosen:
        start, end = sentences[order[0]]
        words = [start + each.end() for each in _WORD_END.finditer(note.text[start:end])]
        kept = bisect_left(words, True, key=lambda stop: not fits([(start, stop)]))
        chosen = [(start, words[max(kept - 1, 0)] if words else end)]
    return replace(note, spans=tuple(chosen))


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, adjacent ones as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and joined[-1][1] == start:
            start, _ = joined.pop()
        joined.append((start, end))
    return joined


def traced_recall(memory: EntropicMemory, query: str, **options: Any) -> list[Memory]:
    """Call `EntropicMemory.recall` in a span of OpenTelemetry."""
    with span("RETRIEVER", {"input.value": query}) as set_documents:
        recollections = memory.recall(query, **options)
        documents = [TracedDocument(each.text, each.score, each.id) for each in recollections]
        set_documents("retrieval.documents", documents)
    return recollections


def as_metadata(recollection: Memory) -> dict[str, Any]:
    """Return a recollection without id and text, as metadata of a document.

    The score is called ``relevance_score``, and its own metadata ``memory``. JSON types only.
    """
    data = recollection.to_dict()
    del data["id"], data["text"]
    for name in ("asked", "why"):
        data[name] = inert(data[name])
    data["relevance_score"] = data.pop("score")
    data["memory"] = data.pop("metadata")
    return data
