"""Results of tools, shaped where they stand: what does not help becomes a mark, all else stays.

What a tool's author wrote around documents is not ours to remake: templates, headers, pictures and
the order of content blocks stay as they are. So documents are looked for in the result, and only
their own text is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document

from ecs_plugins.common.inert import inert
from ecs_plugins.integrations.fields import METADATA_KEY, RESTORE_TOOL
from ecs_plugins.shaping.passages import Unit
from ecs_plugins.shaping.sentences import by_handle

Content = str | list[str | dict[str, Any]]
"""Content of a message: a text, or blocks."""

NOTHING = "Nothing in this result helps to answer the question."
"""What a tool's result says when none of it was kept."""

_LONG_LINE = 2000  # characters of a line that is cut as prose is


@dataclass(frozen=True, slots=True)
class Shaped:
    """A result of a tool as an agent reads it.

    Attributes:
        content: With a mark in the place of what was left out.
        left_out: The texts that were left out, by id.
    """

    content: Content
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a document stands in a result: the number of the text, and the span in it."""

    text: int
    start: int
    end: int


def places_of(documents: Sequence[Document], content: Content) -> list[_Place | None]:
    """Where each document stands in a result; None where it does not, or is blank."""
    texts = _texts(content)
    places: list[_Place | None] = []
    number = 0
    offset = 0
    for document in documents:
        place = _found(document.page_content, texts, number, offset)
        places.append(place)
        if place is not None:
            number, offset = place.text, place.end
    return places


def _found(wanted: str, texts: Sequence[str], number: int, offset: int) -> _Place | None:
    """The first place behind another one where a text stands."""
    if not wanted.strip():
        return None
    for index in range(number, len(texts)):
        start = texts[index].find(wanted, offset if index == number else 0)
        if start >= 0:
            return _Place(index, start, start + len(wanted))
    return None


def with_documents(
    content: Content,
    documents: Sequence[Document],
    places: Sequence[_Place | None],
    kept: Sequence[Document],
) -> Shaped:
    """A result in which the documents that were not kept, or parts of them, are marks."""
    kept_by_index = {_index_of(document): document for document in kept}
    changes: list[_Change] = []
    for index, (document, place) in enumerate(zip(documents, places, strict=True)):
        if place is not None:
            changes.append(_Change.of(place, document, kept_by_index.get(index)))
    texts = _texts(content)
    left_out: dict[str, str] = {}
    for number, text in enumerate(texts):
        own = _joined([change for change in changes if change.text == number], text)
        for change in own:
            left_out.update(change.dropped)
        texts[number] = _replaced(text, own)
    first = min((change.text for change in changes), default=0)
    if not kept and not is_json(texts[first]):
        texts[first] = f"{NOTHING}\n{texts[first]}"
    return Shaped(_with_texts(content, texts), left_out)


@dataclass(frozen=True, slots=True)
class _Change:
    """What stands in the place of a document: what stays of it, a mark, or both."""

    text: int
    start: int
    end: int
    stays: str
    dropped: Mapping[str, str]

    @classmethod
    def of(cls, place: _Place, document: Document, kept: Document | None) -> _Change:
        if kept is None:
            dropped = by_handle([document.page_content])
            return cls(place.text, place.start, place.end, "", dropped)
        dropped = kept.metadata[METADATA_KEY]["dropped"]
        stays = kept.page_content if dropped else document.page_content
        return cls(place.text, place.start, place.end, stays, dropped)

    def __str__(self) -> str:
        parts = [self.stays] if self.stays else []
        if self.dropped:
            parts.append(mark(self.dropped))
        return " ".join(parts)


def _joined(changes: Sequence[_Change], text: str) -> list[_Change]:
    """The changes, of which those that only drop and have nothing between them become one."""
    joined: list[_Change] = []
    for change in changes:
        last = joined[-1] if joined else None
        if last and not (last.stays or change.stays or text[last.end : change.start].strip()):
            dropped = by_handle([text[last.start : change.end]])
            joined[-1] = _Change(last.text, last.start, change.end, "", dropped)
        else:
            joined.append(change)
    return joined


def _replaced(text: str, changes: Sequence[_Change]) -> str:
    """A text with its changes, which are in order, and nothing that ends a turn."""
    pieces = []
    end = 0
    for change in changes:
        pieces += [text[end : change.start], str(change)]
        end = change.end
    return inert("".join([*pieces, text[end:]]))


def _index_of(document: Document) -> int:
    rank: int = document.metadata[METADATA_KEY]["original_rank"]
    return rank - 1


def mark(left_out: Mapping[str, str], what: str = "left out") -> str:
    """What stands in the place of texts; nothing in it ends a quoted text or a line."""
    return f"[{what}; {RESTORE_TOOL} {', '.join(left_out)}]"


def with_lines(text: str, units: Sequence[Unit], kept: Sequence[int]) -> Shaped:
    """A text of which only some units stay; what stands between them is marks with line numbers."""
    kept_indices = set(kept)
    left_out: dict[str, str] = {}
    pieces: list[str] = []
    run: list[Unit] = []
    for index, unit in enumerate(units):
        if index not in kept_indices:
            run.append(unit)
            continue
        pieces += _marked(text, run, left_out)
        pieces.append(unit.text)
        run = []
    pieces += _marked(text, run, left_out)
    shown = "".join(pieces)
    if not kept_indices:
        shown = f"{NOTHING}\n{shown}"
    return Shaped(inert(shown), left_out)


def _marked(text: str, run: Sequence[Unit], left_out: dict[str, str]) -> list[str]:
    """The mark of units that follow each other and are left out, which are noted by their id."""
    if not run:
        return []
    start, end = run[0].start, run[-1].end
    dropped = by_handle([text[start:end]])
    left_out.update(dropped)
    first = text.count("\n", 0, start) + 1
    last = text.count("\n", 0, max(start, end - 1)) + 1
    before = "" if start == 0 or text[start - 1] == "\n" else "\n"
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    return [f"{before}{mark(dropped, f'{lines} left out')}\n"]


def whole_lines(text: str, units: Sequence[Unit]) -> list[Unit]:
    """Units that begin with a line, unless that line is as long as prose is."""
    starts = sorted({_line_start(text, unit.start) for unit in units})
    ends = [*starts[1:], len(text)]
    return [
        Unit(0, start, end, text[start:end], 0) for start, end in zip(starts, ends, strict=True)
    ]


def _line_start(text: str, start: int) -> int:
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    length = (len(text) if end < 0 else end) - begin
    return start if length > _LONG_LINE else begin


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or list, of which nothing can be cut out."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _texts(content: Content) -> list[str]:
    """The texts of a content, in order; what is no text is an empty one."""
    if isinstance(content, str):
        return [content]
    return [_block_text(block) for block in content]


def _block_text(block: str | dict[str, Any]) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else ""


def _with_texts(content: Content, texts: Sequence[str]) -> Content:
    """The content with other texts; other blocks stay what and where they are."""
    if isinstance(content, str):
        return texts[0]
    blocks: list[str | dict[str, Any]] = []
    for block, text in zip(content, texts, strict=True):
        if isinstance(block, str):
            blocks.append(text)
        elif _block_text(block):
            blocks.append({**block, "text": text})
        else:
            blocks.append(block)
    return blocks
