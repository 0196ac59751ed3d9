"""An answer as statements: what can be checked, and what each needs to be understood.

Sentences, list items and table rows are statements; questions, code and refusals state nothing
about the passages. Marks of citations that stand in the answer already are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ecs_plugins.common.text import WORD, asks
from ecs_plugins.shaping.sentences import Piece, pieces_of

MARK = re.compile(r"\s?\[\^?\d{1,3}(?:\s*[,;–-]\s*\^?\d{1,3})*\]")
"""A mark of a citation, with the white space before it."""
_SPACE = re.compile(r"\s+")
_ITEM = re.compile(r"\s*(?:[-*•+‣]|\d{1,3}[.)])\s+")
_CODE = re.compile(r"\s*(?:```|~~~)")
_REFUSAL = re.compile(
    r"""\W*+(?:(?:sorry|unfortunately)\W++)?(?:but\W++)?
        (?:i\s+(?:do\s*n['o]t|don’t|cannot|can['’]t|am\s+not\s+able\s+to|could\s*n['’o]t)\s+
           (?:know|say|tell|answer|find|determine)
        |(?:the|this)\s+(?:context|passages?|documents?|text)\s+do(?:es)?\s*n['’o]t\s+
           (?:say|mention|contain|state|provide|include)
        |there\s+is\s+(?:no|not\s+enough)\s+information
        |not\s+enough\s+information
        |unanswerable)""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AnswerStatement:
    """A part of an answer that can be true or false.

    Attributes:
        start: Its first character in the answer.
        end: One past its last.
        text: What is read of it: without a list's mark and without marks of citations.
        lead: What stands before it in the answer and is needed to understand it; often empty.
    """

    start: int
    end: int
    text: str
    lead: str = ""


def statements_of(answer: str) -> list[AnswerStatement]:
    """The statements of an answer, in reading order.

    Empty where it only asks, refuses, or shows code.

    >>> [statement.text for statement in statements_of("Anna lives in Rome [1]. Does she work?")]
    ['Anna lives in Rome.']
    """
    pieces = pieces_of(answer, whole_lists=False)
    return [
        AnswerStatement(
            *_trimmed(answer, piece), text=_read(answer, piece), lead=_lead(answer, pieces, piece)
        )
        for piece in pieces
        if piece.said and _states(answer[piece.start : piece.end])
    ]


def without_marks(text: str) -> str:
    """The text with white space in the place of marks of citations, so that places stay."""
    return MARK.sub(lambda mark: " " * len(mark.group()), text)


def _states(text: str) -> bool:
    if not WORD.search(MARK.sub("", text)):
        return False
    return not (asks(text) or _CODE.match(text) or _REFUSAL.match(text))


def _trimmed(answer: str, piece: Piece) -> tuple[int, int]:
    """The piece without white space and a list's mark around it."""
    text = answer[piece.start : piece.end]
    mark = _ITEM.match(text)
    begin = mark.end() if mark else len(text) - len(text.lstrip())
    return piece.start + begin, piece.start + len(text.rstrip())


def _read(answer: str, piece: Piece) -> str:
    start, end = _trimmed(answer, piece)
    return _SPACE.sub(" ", MARK.sub("", answer[start:end]))


def _lead(answer: str, pieces: Sequence[Piece], piece: Piece) -> str:
    needed = [_read(answer, pieces[place]) for place in piece.needs]
    return " ".join(text for text in needed if text)
