"""Marks such as ``[1]`` in an answer.

A mark of the answer that numbers passages would be read as one of ours, so these are removed as
soon as there are some of ours. Other brackets stay: years, notes, links, lists of sources, code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ecs_plugins.shaping.attribution.cited import AttributedStatement
from ecs_plugins.shaping.attribution.statements import MARK

_LITERAL = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`|\b\w+://\S+", re.DOTALL)
"""Code, and addresses."""
_NUMBER = re.compile(r"\d+")
_ENDS = ".!。！| \t\n"  # what ends a sentence or a cell of a table


@dataclass(frozen=True, slots=True)
class Edit:
    """A span of an answer, and the text that replaces it.

    Attributes:
        start: Its first character.
        end: One past its last; equal to ``start`` for an insertion.
        text: The replacement.
    """

    start: int
    end: int
    text: str


def mark_edits(
    answer: str,
    statements: Sequence[AttributedStatement],
    numbers: Mapping[int, int],
    passages: int,
) -> list[Edit]:
    """Return the edits that number an answer's citations, in reading order.

    Args:
        answer: The answer as given.
        statements: Its statements.
        numbers: Numbers of the cited passages by their indices.
        passages: Number of passages.
    """
    if not numbers:
        return []
    edits = _old_marks(answer, passages)
    taken_out = {edit.end: edit.start for edit in edits}
    for statement in statements:
        marks = [f"[{numbers[citation.passage]}]" for citation in statement.citations]
        if marks:
            place = _place_for(statement, answer, taken_out)
            written = "".join(marks)
            edits.append(Edit(place, place, f" {written}"))
    return sorted(edits, key=attrgetter("start", "end"))


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text after its edits, which are in reading order."""
    parts: list[str] = []
    end = 0
    for edit in edits:
        parts.append(text[end : edit.start])
        parts.append(edit.text)
        end = edit.end
    parts.append(text[end:])
    return "".join(parts)


def moved(place: int, edits: Sequence[Edit]) -> int:
    """Return where a place of a text is after its edits; insertions there follow it."""
    shift = 0
    for edit in edits:
        if edit.start >= place:
            break
        gone = min(edit.end, place) - edit.start
        shift += len(edit.text) - gone
    return place + shift


def _old_marks(answer: str, passages: int) -> list[Edit]:
    """Return edits that remove the marks of the answer that number passages."""
    literal = [match.span() for match in _LITERAL.finditer(answer)]
    edits: list[Edit] = []
    for mark in MARK.finditer(answer):
        start, end = mark.span()
        is_literal = any(first <= start < last for first, last in literal)
        if is_literal or _is_other_bracket(answer, mark):
            continue
        if _numbers_passages(mark.group(), passages):
            edits.append(Edit(start, end, ""))
    return edits


def _numbers_passages(mark: str, passages: int) -> bool:
    """Return True if there is a passage for every number of a mark."""
    numbers = [int(digits) for digits in _NUMBER.findall(mark)]
    return min(numbers) >= 1 and max(numbers) <= passages


def _is_other_bracket(answer: str, mark: re.Match[str]) -> bool:
    """Return True for a link of Markdown, or a mark that begins a line of sources."""
    behind = mark.end()
    if answer.startswith(("(", ":"), behind):
        return True
    _, _, line = answer[:behind].rpartition("\n")
    return line.lstrip() == mark.group().lstrip()


def _place_for(statement: AttributedStatement, answer: str, taken_out: dict[int, int]) -> int:
    """Return the place after the last word of a statement, before its full stop."""
    end = statement.end
    while end > statement.start:
        if end in taken_out:
            end = taken_out[end]
        elif answer[end - 1] in _ENDS:
            end -= 1
        else:
            break
    return max(end, statement.start)
