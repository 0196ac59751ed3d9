"""What the words of a statement say about its support: free, and blind to paraphrases.

The words on which a statement turns are its numbers, its names and what is not in the question. A
number that no passage has is told by its digits, where a small language model is easily content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ecs_plugins.common.text import WORD, sentence_spans, terms
from ecs_plugins.shaping.attribution.statements import AnswerStatement, without_marks

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SENTENCE_BEFORE = re.compile(r"(?:^|[.!?:…。！？\"“„«(])\s*\Z")
_NEGATION = re.compile(
    r"\b(?:not|never|no|none|neither|nor|without|cannot|\w+n['’]t)\b", re.IGNORECASE
)
_SPELT = {
    "2": "two",
    "3": "three",
    "4": "four",
    "5": "five",
    "6": "six",
    "7": "seven",
    "8": "eight",
    "9": "nine",
    "10": "ten",
}

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wording:
    """What words say of one statement and one passage; each a share in [0, 1].

    Attributes:
        covered: Of the statement's terms that are not the question's, those that the passage has.
        question: The same of the question's terms.
    """

    covered: float
    question: float


def compare(query: str, statement: AnswerStatement, passage: str) -> Wording:
    """The words of a statement held against a passage."""
    known = set(terms(passage))
    asked = set(terms(query))
    stated = set(terms(statement.text))
    own = stated - asked or stated
    return Wording(
        covered=_share(own, known),
        question=_share(asked, known),
    )


def nearest_sentence(statement: str, passage: str) -> Span:
    """The sentence of a passage that has most of a statement's terms; the first of equals."""
    wanted = set(terms(statement))
    spans = sentence_spans(passage)

    def shared(span: Span) -> int:
        start, end = span
        known = set(terms(passage[start:end]))
        return len(wanted & known)

    first, last = max(spans, key=shared)
    text = passage[first:last]
    without_indent = text.lstrip()
    start = last - len(without_indent)
    end = start + len(without_indent.rstrip())
    return start, end


def turning_words(text: str) -> list[Span]:
    """Where the words stand on which a statement turns: numbers, names and negations, in order."""
    spans = [match.span() for match in _NUMBER.finditer(text)]
    spans += _names(text)
    spans += [match.span() for match in _NEGATION.finditer(text)]
    return sorted(spans)


def unheld_words(statement: AnswerStatement, answer: str, passages: Sequence[str]) -> list[Span]:
    """Where in the answer numbers, names and negations stand that no passage has."""
    text = without_marks(answer[statement.start : statement.end])
    spans = turning_words(text)
    held = held_words(statement.text, [text[start:end] for start, end in spans], passages)
    offset = statement.start
    return [
        (offset + start, offset + end)
        for (start, end), is_held in zip(spans, held, strict=True)
        if not is_held
    ]


def held_words(statement: str, words: Sequence[str], passages: Sequence[str]) -> list[bool]:
    """Which numbers, names and negations of a statement the passages have.

    A small number may be spelt out, and a negation is held where the nearest sentence of a passage
    denies something.
    """
    known: set[str] = set()
    for passage in passages:
        known.update(terms(passage))
    known.update(digits for digits, word in _SPELT.items() if word in known)
    denied = any(nearest_is_negated(statement, passage) for passage in passages)
    held: list[bool] = []
    for word in words:
        if is_negated(word):
            held.append(denied)
        else:
            held.append(known.issuperset(terms(word)))
    return held


def _names(text: str) -> list[Span]:
    """Capitalised words that do not begin a sentence; none in scripts without capitals."""
    names: list[Span] = []
    for match in WORD.finditer(text):
        start = match.start()
        if not text[start].isupper():
            continue
        begins = _SENTENCE_BEFORE.search(text, max(0, start - 3), start)
        if begins is None:
            names.append(match.span())
    return names


def _share(wanted: set[str], known: set[str]) -> float:
    if not wanted:
        return 0.0
    shared = wanted & known
    return len(shared) / len(wanted)


def is_negated(text: str) -> bool:
    """Whether something is denied in it, in English."""
    return _NEGATION.search(text) is not None


def nearest_is_negated(statement: str, passage: str) -> bool:
    """Whether the sentence of a passage that is nearest to a statement denies something."""
    start, end = nearest_sentence(statement, passage)
    return is_negated(passage[start:end])
