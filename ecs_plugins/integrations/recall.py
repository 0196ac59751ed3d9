"""What the memory integrations recall, and for whom."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from ecs_plugins.common.config import Config, StrictFields
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.namespaces import Labels
from ecs_plugins.integrations.notes import NoteSource, RecalledNote, TextLength, block_of
from ecs_plugins.integrations.tracing import TracedDocument, span
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.store.search import Shaper
from ecs_plugins.memory.types import Namespace

_MOST_VISIBLE = 100  # recollections beyond k that are looked at for some that are not visible yet


def _writable(condition: Filter) -> Filter:
    """A filter that JSON can hold, so without NaN and infinity."""
    try:
        json.dumps(checked_filter(condition), default=dict, allow_nan=False)
    except ValueError as error:
        raise InvalidInputError(f"a filter among settings holds JSON values: {error}") from None
    return condition


_K = Field(default=8, ge=1, description="How many recollections at most.")
_THRESHOLD = Field(default=None, ge=-1, le=1, description="Minimum score; None: the memory's own.")
_SHAPER = Field(
    default=None, exclude=True, repr=False, description="A second stage that orders what is found."
)
_MAX_TOKENS = Field(default=512, ge=1, description="Tokens of the recalled block, marks included.")


class RecallOptions(Config):
    """What is recalled for a prompt."""

    k: int = _K
    threshold: float | None = _THRESHOLD
    max_tokens: int = _MAX_TOKENS
    filter: Annotated[Filter, BeforeValidator(_writable)] | None = Field(
        default=None, description="Metadata that a recollection must have."
    )
    also: tuple[Labels, ...] = Field(
        default=(),
        strict=False,  # in JSON it is a list
        description="Further namespaces to look in, such as one of several agents.",
    )
    shaper: Shaper | None = _SHAPER


class RecallFields(StrictFields):
    """The fields of an integration that recalls from the memory of one namespace."""

    namespace: Labels = Field(description="Whose memory it is; labels are compared one by one.")
    k: int = _K
    threshold: float | None = _THRESHOLD
    shaper: Shaper | None = _SHAPER

    def options(self, max_tokens: int) -> RecallOptions:
        """The fields as what is recalled for a prompt."""
        return RecallOptions(
            k=self.k, threshold=self.threshold, shaper=self.shaper, max_tokens=max_tokens
        )


class RecalledBlock(NamedTuple):
    """What is recalled for a prompt.

    Attributes:
        text: Notes between marks; empty if nothing is recalled.
        sources: What each note is made of again.
    """

    text: str = ""
    sources: tuple[NoteSource, ...] = ()


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
    """What is remembered about a question, as far as the token budget goes, as a prompt shows it.

    ``record`` says whether it counts as a question asked; ``visible`` are texts that the model
    sees anyway, so that they are left out. ``special_tokens`` are those of its tokenizer, where
    they are known: nothing that is recalled ends a turn.
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
        record=record,
        shaper=options.shaper,
    )
    seen = {text.strip() for text in visible}
    notes = [RecalledNote.of(memory, each).without(seen) for each in recollections]
    unseen = [note for note in notes if note.quotes]
    shown: list[RecalledNote] = []
    text = ""
    for note in unseen[: options.k]:
        longer = block_of([*shown, note], special_tokens)
        if length(longer) <= options.max_tokens:  # else it is passed over
            shown.append(note)
            text = longer
    return RecalledBlock(text, tuple(note.source() for note in shown))


def traced_recall(memory: EntropicMemory, query: str, **options: Any) -> list[Memory]:
    """`EntropicMemory.recall` in a span of OpenTelemetry."""
    with span("RETRIEVER", {"input.value": query}) as set_documents:
        recollections = memory.recall(query, **options)
        documents = [TracedDocument(each.text, each.score, each.id) for each in recollections]
        set_documents("retrieval.documents", documents)
    return recollections
