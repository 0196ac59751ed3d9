"""Shaped results of tools: marks replace text that does not help.

Everything that a tool's author wrote around documents stays as it is: templates, headers, pictures
and the order of content blocks. So documents are looked for in the result, and only their own text
is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from langchain_core.documents import Document

from ecs_plugins.common.inert import inert
from ecs_plugins.common.text import one_line
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.shaping.passages import Unit
from ecs_plugins.shaping.spans import by_handle

RESTORE_TOOL = "ecs_restore"
"""Name of the tool with which an agent gets back texts that were left out."""
RESTORE_DESCRIPTION = (
    "Gives back text that was left out of retrieved passages because it did not seem to help. "
    "Takes the id of a left out text; without an id, lists the latest ids and how each text begins."
)
RESTORABLE = 2000
"""Left out texts that a thread keeps, the latest."""
LISTED = 50
"""Left out texts that the tool lists."""

Block = str | dict[str, Any]
"""A block of a message."""
Content = str | list[Block]
"""Content of a message: a text, or blocks."""

NOTHING = "Nothing in this result helps to answer the question."
"""Statement of a result of which nothing was kept."""

_LONG_LINE = 2000  # characters of a line that is cut as prose is


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a result: a document, or some lines.

    Attributes:
        text: Number of its text among `texts_of` the result.
        start: Its first character.
        end: The character after it.
        stays: The text that stays.
        dropped: The texts that are left out, by id.
    """

    text: int
    start: int
    end: int
    stays: str = ""
    dropped: Mapping[str, str] | None = None

    def __str__(self) -> str:
        mark = f"[left out; {RESTORE_TOOL} {', '.join(self.dropped)}]" if self.dropped else ""
        return " ".join(filter(None, [self.stays, mark]))


def document_parts(
    documents: Sequence[Document],
    content: Content,
) -> list[Part | None]:
    """Return, per document, its part of the result; None if the result does not contain it."""
    texts = texts_of(content)
    parts: list[Part | None] = []
    last = Part(0, 0, 0)
    for document in documents:
        part = _next_part(last, document.page_content, texts)
        parts.append(part)
        last = part or last
    return parts


def _next_part(
    last: Part,
    wanted: str,
    texts: Sequence[str],
) -> Part | None:
    if not wanted.strip():
        return None
    offset = last.end
    for number in range(last.text, len(texts)):
        start = texts[number].find(wanted, offset)
        if start >= 0:
            return Part(number, start, start + len(wanted), wanted)
        offset = 0
    return None


def line_parts(
    number: int,
    text: str,
    units: Sequence[Unit],
) -> list[Part]:
    """Return the lines of a text that begin with a unit; a long line is cut at its units."""
    starts = sorted({_line_start(text, unit.start) for unit in units})
    parts = []
    for start, end in pairwise([*starts, len(text)]):
        line = text[start:end].rstrip()
        if line:
            parts.append(Part(number, start, start + len(line), line))
    return parts


def _line_start(
    text: str,
    start: int,
) -> int:
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    length = (len(text) if end < 0 else end) - begin
    return start if length > _LONG_LINE else begin


def kept_part(
    part: Part,
    kept: Document | None,
) -> Part:
    """Return a part as far as its document was kept."""
    if kept is None:
        return replace(part, stays="", dropped=by_handle([part.stays]))
    dropped = kept.metadata[METADATA_KEY]["dropped"]
    return replace(part, stays=kept.page_content, dropped=dropped) if dropped else part


def with_parts(
    content: Content,
    parts: Sequence[Part],
) -> tuple[Content, dict[str, str]]:
    """Return a result with its parts as they are kept, and the texts left out by id."""
    texts = texts_of(content)
    joined = _joined(parts, texts)
    left_out: dict[str, str] = {}
    for part in reversed(joined):
        text = texts[part.text]
        texts[part.text] = text[: part.start] + str(part) + text[part.end :]
        left_out = {**(part.dropped or {}), **left_out}
    for number in {part.text for part in joined}:
        texts[number] = inert(texts[number])
    first = joined[0].text
    if not any(part.stays for part in joined) and not is_json(texts[first]):
        texts[first] = f"{NOTHING}\n{texts[first]}"
    return _with_texts(content, texts), left_out


def _joined(
    parts: Sequence[Part],
    texts: Sequence[str],
) -> list[Part]:
    """Return the parts; dropped ones with nothing between them become one."""
    joined: list[Part] = []
    for part in parts:
        before = joined[-1] if joined else None
        text = texts[part.text]
        is_same_gap = before is not None and before.text == part.text and not before.stays
        if before and is_same_gap and not part.stays and not text[before.end : part.start].strip():
            dropped = by_handle([text[before.start : part.end]])
            joined[-1] = replace(part, start=before.start, dropped=dropped)
        else:
            joined.append(part)
    return joined


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
    return text if block.get("type") == "text" and isinstance(text, str) else ""


def _with_texts(
    content: Content,
    texts: Sequence[str],
) -> Content:
    """Return the content with new texts; other blocks are unchanged."""
    if isinstance(content, str):
        return texts[0]
    blocks: list[Block] = []
    for block, text in zip(content, texts, strict=True):
        if isinstance(block, str):
            blocks.append(text)
        else:
            blocks.append({**block, "text": text} if _block_text(block) else block)
    return blocks


def restored(dropped: Mapping[str, str], id: str) -> str:
    """Return the text that was left out under an id, or a list of the latest ids.

    No text ends a turn or hides a character: passages are untrusted.
    """
    text = dropped.get(id.strip())
    if text is not None:
        return inert(text)
    latest = list(dropped.items())[-LISTED:]
    lines = [f"{key}: {one_line(text[:200])[:80]}" for key, text in reversed(latest)]
    return inert("\n".join([f"Nothing is held under {id!r}. Left out were:", *lines]))
