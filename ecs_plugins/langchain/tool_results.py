"""Shaped results of tools: marks replace text that does not help.

What a tool's author wrote around documents is not ours to remake: templates, headers, pictures and
the order of content blocks stay as they are. So documents are looked for in the result, and only
their own text is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from langchain_core.documents import Document

from ecs_plugins.common.inert import inert
from ecs_plugins.integrations.fields import METADATA_KEY, RESTORE_TOOL
from ecs_plugins.shaping.passages import Unit
from ecs_plugins.shaping.spans import by_handle

Block = str | dict[str, Any]
"""A block of a message."""
Content = str | list[Block]
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
class TextPlace:
    """Where a document stands in a result: the number of the text, and the span in it."""

    text: int
    start: int
    end: int


Places = list[TextPlace | None]
"""Where each document stands in a result."""


def places_of(documents: Sequence[Document], content: Content) -> Places:
    """Where each document stands in a result; None where it does not, or is blank."""
    texts = texts_of(content)
    places: Places = []
    last = TextPlace(0, 0, 0)
    for document in documents:
        place = _place_behind(last, document.page_content, texts)
        places.append(place)
        last = place or last
    return places


def _place_behind(
    last: TextPlace,
    wanted: str,
    texts: Sequence[str],
) -> TextPlace | None:
    """Return the first place behind another one where a text stands."""
    if not wanted.strip():
        return None
    offset = last.end
    for number in range(last.text, len(texts)):
        start = texts[number].find(wanted, offset)
        if start >= 0:
            end = start + len(wanted)
            return TextPlace(number, start, end)
        offset = 0
    return None


def with_documents(
    content: Content,
    documents: Sequence[Document],
    places: Places,
    kept: Sequence[Document],
) -> Shaped:
    """Return a result in which the documents that were not kept, or parts of them, are marks."""
    changes = _changes(documents, places, kept)
    texts = texts_of(content)
    left_out: dict[str, str] = {}
    for number, text in enumerate(texts):
        own = [change for change in changes if change.text == number]
        joined = _joined(own, text)
        for change in joined:
            left_out.update(change.dropped)
        texts[number] = _replaced(text, joined)
    if not kept:
        first = changes[0].text
        texts[first] = _with_nothing(texts[first])
    return Shaped(_with_texts(content, texts), left_out)


def _with_nothing(text: str) -> str:
    """Return a text of which nothing was kept, saying so, unless that would break it."""
    return text if is_json(text) else f"{NOTHING}\n{text}"


def _changes(
    documents: Sequence[Document],
    places: Places,
    kept: Sequence[Document],
) -> list[_Change]:
    """Return the replacement of each document that has one."""
    kept_by_index = {_index_of(document): document for document in kept}
    changes = []
    for index, place in enumerate(places):
        if place is not None:
            document = documents[index]
            change = _Change.of(place, document, kept_by_index.get(index))
            changes.append(change)
    return changes


@dataclass(frozen=True, slots=True)
class _Change:
    """Replacement of a document: its kept text, a mark, or both."""

    text: int
    start: int
    end: int
    stays: str
    dropped: Mapping[str, str]

    @classmethod
    def of(
        cls,
        place: TextPlace,
        document: Document,
        kept: Document | None,
    ) -> _Change:
        if kept is None:
            stays = ""
            dropped = by_handle([document.page_content])
        else:
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
        if joined and _are_one_gap(joined[-1], change, text):
            start = joined[-1].start
            dropped = by_handle([text[start : change.end]])
            joined[-1] = replace(change, start=start, dropped=dropped)
        else:
            joined.append(change)
    return joined


def _are_one_gap(one: _Change, other: _Change, text: str) -> bool:
    """Return True if two adjacent documents are dropped and nothing is between them."""
    if one.stays or other.stays:
        return False
    return not text[one.end : other.start].strip()


def _replaced(text: str, changes: Sequence[_Change]) -> str:
    """Return a text with its changes, which are in order, and nothing that ends a turn."""
    pieces = []
    end = 0
    for change in changes:
        pieces.append(text[end : change.start])
        pieces.append(str(change))
        end = change.end
    pieces.append(text[end:])
    return inert("".join(pieces))


def _index_of(document: Document) -> int:
    rank: int = document.metadata[METADATA_KEY]["original_rank"]
    return rank - 1


def mark(left_out: Mapping[str, str], what: str = "left out") -> str:
    """Return the mark for dropped texts; it ends no quoted text and no line."""
    return f"[{what}; {RESTORE_TOOL} {', '.join(left_out)}]"


def with_lines(
    text: str,
    units: Sequence[Unit],
    kept: Sequence[int],
) -> Shaped:
    """Return the kept units of a text, with marks and line numbers between them."""
    left_out: dict[str, str] = {}
    pieces: list[str] = []
    end = 0
    for index in kept:
        unit = units[index]
        pieces.append(_gap(text, end, unit.start, left_out))
        pieces.append(unit.text)
        end = unit.end
    pieces.append(_gap(text, end, len(text), left_out))
    shown = inert("".join(pieces))
    return Shaped(shown, left_out)


def with_units(
    content: Content,
    units_of_texts: Sequence[Sequence[Unit]],
    kept: Collection[int],
) -> Shaped:
    """Return a content in which texts keep some of their units; other blocks are unchanged.

    Args:
        content: A text, or blocks.
        units_of_texts: Units of each text of `texts_of`; a text without units stays as it is.
        kept: Indices of the kept units among all units.
    """
    left_out: dict[str, str] = {}
    texts: list[str] = []
    first = 0
    for text, units in zip(texts_of(content), units_of_texts, strict=True):
        own = [index for index in range(len(units)) if first + index in kept]
        first += len(units)
        if not units:
            texts.append(text)
            continue
        shaped = with_lines(text, units, own)
        left_out |= shaped.left_out
        shown = str(shaped.content)
        texts.append(shown if kept else _with_nothing(shown))
    return Shaped(_with_texts(content, texts), left_out)


def _gap(
    text: str,
    start: int,
    end: int,
    left_out: dict[str, str],
) -> str:
    """Return the mark for a dropped part of a text, and record the part by id."""
    part = text[start:end]
    if not part:
        return ""
    dropped = by_handle([part])
    left_out.update(dropped)
    first = text.count("\n", 0, start) + 1
    last = first + part.rstrip("\n").count("\n")
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    is_within_line = start > 0 and text[start - 1] != "\n"
    before = "\n" if is_within_line else ""
    return f"{before}{mark(dropped, f'{lines} left out')}\n"


def whole_lines(text: str, units: Sequence[Unit]) -> list[Unit]:
    """Units that begin with a line, unless that line is as long as prose is."""
    line_starts = {_line_start(text, unit.start) for unit in units}
    starts = sorted(line_starts)
    lines = []
    for start, end in pairwise([*starts, len(text)]):
        line = Unit(0, start, end, text[start:end], 0)
        lines.append(line)
    return lines


def _line_start(text: str, start: int) -> int:
    """Where the line begins in which a unit does; the unit's own start in a long one."""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    if end < 0:
        end = len(text)
    return start if end - begin > _LONG_LINE else begin


def is_json(text: str) -> bool:
    """Return True if a text is a JSON object or list, which cannot be cut."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def texts_of(content: Content) -> list[str]:
    """Return the texts of a content in order; an empty text for other blocks."""
    if isinstance(content, str):
        return [content]
    return [_block_text(block) for block in content]


def _block_text(block: Block) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str):
        return ""
    return text


def _with_texts(content: Content, texts: Sequence[str]) -> Content:
    """Return the content with new texts; other blocks are unchanged."""
    if isinstance(content, str):
        return texts[0]
    blocks: list[Block] = []
    for block, text in zip(content, texts, strict=True):
        if isinstance(block, str):
            blocks.append(text)
        elif _block_text(block):
            blocks.append({**block, "text": text})
        else:
            blocks.append(block)
    return blocks
