"""Statements of an answer, each with the sentence it needs, and marks such as ``[1]``.

Sentences, list items and table rows are statements; questions, code and refusals state nothing. A
refusal at the start of a sentence leaves the rest of it. Marks of citations are not read.

A mark of the answer that numbers passages would be read as one of ours, so these are removed as
soon as there are some of ours. Other brackets stay: years, notes, links, lists of sources, code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ecs_plugins.common.text import WORD, asks
from ecs_plugins.shaping.sentences import Piece, pieces_of

MARK = re.compile(r"\s?\[\^?\d{1,3}(?:\s*[,;–-]\s*\^?\d{1,3})*\]")
"""A mark of a citation, with the white space before it."""
_LITERAL = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`|\b\w+://\S+", re.DOTALL)
"""Code, and addresses."""
_NUMBER = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")
_ITEM = re.compile(r"\s*(?:[-*•+‣]|\d{1,3}[.)])\s+")
_CODE = re.compile(r"\s*(?:```|~~~)")
_CLAUSE = re.compile(
    r"[,;:–—]\s*+(?:(?:but|however|though|although|and|yet|still|only)\b,?\s*)*"
    r"|\s(?:but|however|though|although|except)\s+(?:that\s+)?",
    re.IGNORECASE,
)
_FEWEST_WORDS = 3
"""Words of a clause after a refusal from which on it states something."""
_REFUSAL = re.compile(
    r"""\W*+(?:(?:sorry|unfortunately)\W++)?(?:(?:but|as|because|since)\W++)?
        (?:i\s+(?:do\s*n['o]t|don’t|cannot|can['’]t|am\s+not\s+able\s+to|could\s*n['’o]t)\s+
           (?:know|say|tell|answer|find|determine)
        |(?:the|this)\s+(?:context|passages?|documents?|text)\s+do(?:es)?\s*n['’o]t\s+
           (?:say|mention|contain|state|provide|include)
        |there\s+is\s+(?:no|not\s+enough)\s+information
        |not\s+enough\s+information
        |(?:i(?:['’]m|\s+am)\s+(?:not\s+sure|unsure|unable|not\s+certain))
        |unanswerable)""",
    re.VERBOSE | re.IGNORECASE,
)


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


@dataclass(frozen=True, slots=True)
class AnswerStatement:
    """A part of an answer that can be true or false.

    Attributes:
        start: Its first character in the answer.
        end: One past its last.
        text: The statement without list marks and marks of citations.
        lead: The text before it in the answer that it needs to be understood; often empty.
    """

    start: int
    end: int
    text: str
    lead: str = ""


def statements_of(answer: str) -> list[AnswerStatement]:
    """Return the statements of an answer, in reading order.

    None if it only asks, refuses or shows code.

    >>> [statement.text for statement in statements_of("Anna lives in Rome [1]. Does she work?")]
    ['Anna lives in Rome.']
    """
    pieces = pieces_of(answer, whole_lists=False)
    statements: list[AnswerStatement] = []
    for piece in pieces:
        start, end = _trimmed(answer, piece)
        start = _after_refusal(answer, start, end)
        if piece.said and _states(answer[start:end]):
            statement = AnswerStatement(
                start,
                end,
                _read(answer, start, end),
                _lead(answer, pieces, piece),
            )
            statements.append(statement)
    return statements


def without_marks(text: str) -> str:
    """Return a text of the same length with spaces in place of marks of citations."""
    return MARK.sub(lambda mark: " " * len(mark.group()), text)


def _states(text: str) -> bool:
    if not WORD.search(MARK.sub("", text)):
        return False
    return not (asks(text) or _CODE.match(text))


def _trimmed(answer: str, piece: Piece) -> tuple[int, int]:
    """Return the piece without the white space and the list mark around it."""
    text = answer[piece.start : piece.end]
    mark = _ITEM.match(text)
    blank = len(text) - len(text.lstrip())
    begin = mark.end() if mark else blank
    length = len(text.rstrip())
    return piece.start + begin, piece.start + length


def _after_refusal(answer: str, start: int, end: int) -> int:
    """Return the offset of the first clause that is not a refusal; `end` if all are."""
    while _REFUSAL.match(answer, start, end):
        clause = _CLAUSE.search(answer, start, end)
        if clause is None:
            return end
        start = clause.end()
        if not _REFUSAL.match(answer, start, end):
            words = WORD.findall(answer[start:end])
            return start if len(words) >= _FEWEST_WORDS else end
    return start


def _read(answer: str, start: int, end: int) -> str:
    written = MARK.sub("", answer[start:end])
    return _SPACE.sub(" ", written)


def _lead(answer: str, pieces: Sequence[Piece], piece: Piece) -> str:
    texts: list[str] = []
    for place in piece.needs:
        start, end = _trimmed(answer, pieces[place])
        text = _read(answer, start, end)
        if text:
            texts.append(text)
    return " ".join(texts)


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


def old_marks(answer: str, passages: int) -> list[Edit]:
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
