"""The sentences of the passages that a statement rests on.

A sentence is scored by itself, so no other passage changes its score. Headings and the header row
of a table belong to the sentences and rows below them; they are never cited alone.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ecs_plugins.common.text import sentence_spans
from ecs_plugins.shaping.attribution.quantities import Kind, Value, values_of
from ecs_plugins.shaping.attribution.wording import (
    Word,
    acronyms_of,
    begins_sentence,
    introduction_of,
    is_english,
    names_of,
    words_of,
)
from ecs_plugins.shaping.sentences import Piece, pieces_of

IN_CONTEXT: Final = 0.3
"""Weight of a word that stands only in what a sentence needs, such as its heading."""
OF_VALUE: Final = 0.5
"""Weight of a value: less than a word, so that a changed number still finds its sentence."""
OF_UNIT: Final = 0.25
"""Weight of another value of the same unit."""
OF_DENSITY: Final = 0.5
"""Weight of the share of a sentence that the statement repeats: it parts equals."""
OF_QUESTION: Final = 0.3
"""Weight of the share of the question's words that a sentence has."""
SHORT: Final = 2
"""Content words up to which a statement is read together with its question."""
CITED_FROM: Final = 0.3
"""Share of a statement's words and values from which on a sentence is cited."""
_CELLS: Final = "|\t;,"
_BREAK: Final = re.compile('[\r\n"“”]')
"""Line breaks, and marks within which a sentence would not end."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement as the check reads it.

    Attributes:
        text: The statement.
        words: Its content words outside of values, in order.
        content: Their stems.
        names: Its names.
        values: Its values.
        first: Its first word, if it has a capital and only its place may be why.
        asked: Stems of the question's content words and of the sentence that a pronoun stands for.
        asked_names: Stems of the question's names, if the statement is no whole sentence.
        is_english: True if statement and question are English.
    """

    text: str
    words: tuple[Word, ...]
    content: frozenset[str]
    names: tuple[Word, ...]
    values: tuple[Value, ...]
    first: Word | None
    asked: frozenset[str]
    asked_names: frozenset[str]
    is_english: bool

    @classmethod
    def of(cls, text: str, query: str = "", lead: str = "") -> Claim:
        """Read a statement with its question and the sentence before it."""
        values = tuple(values_of(text))
        introduced = introduction_of(text)
        content = [word for word in words_of(text) if word.is_content and word.start >= introduced]
        words = tuple(word for word in content if not _is_within(word, values))
        names = tuple(
            name
            for name in names_of(text)
            if name.start >= introduced and not _is_within(name, values)
        )
        asked = frozenset(word.stem for word in words_of(f"{query}\n{lead}") if word.is_content)
        is_whole = len(content) > SHORT or bool(lead)
        asked_names = () if is_whole else (name.stem for name in names_of(query))
        return cls(
            text=text,
            words=words,
            content=frozenset(word.stem for word in words),
            names=names,
            values=values,
            first=_first_word(text, words, names),
            asked=asked,
            asked_names=frozenset(asked_names),
            is_english=is_english(f"{query}\n{text}"),
        )


def _first_word(text: str, words: Sequence[Word], names: Sequence[Word]) -> Word | None:
    """Return the first word if it may be a name: no comma follows, as it does after "Overall"."""
    first = next(iter(words), None)
    if first is None or first in names or not first.text[0].isupper():
        return None
    is_name = begins_sentence(text, first) and text[first.end : first.end + 1] != ","
    return first if is_name else None


def _is_within(word: Word, values: Sequence[Value]) -> bool:
    """Return True for a word of one of the values, which are in order."""
    place = bisect_right(values, word.start, key=lambda value: value.start)
    return place > 0 and word.start < values[place - 1].end


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, an item or a table row of a passage.

    Attributes:
        passage: Index of its passage.
        start: Its first character in the passage.
        end: One past its last.
        text: The sentence.
        context: What it needs to be understood: headings, and the sentence before a pronoun.
        header: The header row of its table; empty elsewhere.
        is_english: Whether its passage is.
    """

    passage: int
    start: int
    end: int
    text: str
    context: str = ""
    header: str = ""
    is_english: bool = True
    words: tuple[Word, ...] = field(init=False)
    content: tuple[Word, ...] = field(init=False)
    stems: frozenset[str] = field(init=False)
    around: frozenset[str] = field(init=False)
    values: tuple[Value, ...] = field(init=False)
    magnitudes: frozenset[float] = field(init=False)

    def __post_init__(self) -> None:
        own = words_of(self.text)
        context = words_of(self.context)
        object.__setattr__(self, "words", tuple(own))
        values = tuple(values_of(self.text))
        object.__setattr__(self, "values", values)
        magnitudes = frozenset[float]().union(*(value.magnitudes for value in values))
        object.__setattr__(self, "magnitudes", magnitudes)
        content = [word for word in own if word.is_content and not _is_within(word, values)]
        object.__setattr__(self, "content", tuple(content))
        stems = frozenset(word.stem for word in own) | acronyms_of(self.text)
        object.__setattr__(self, "stems", stems)
        around = frozenset(word.stem for word in context) | acronyms_of(self.context)
        object.__setattr__(self, "around", around)

    @property
    def read(self) -> str:
        """The sentence as a model reads it: with what it needs."""
        return "\n".join(part for part in (self.context, self.text) if part)

    def has_value(self, value: Value) -> bool:
        """Return True if the sentence has the value, in any unit."""
        is_literal = value.kind not in (Kind.CLOCK, Kind.DECADE)
        if is_literal and self.magnitudes.isdisjoint(value.magnitudes):
            return False
        return any(value.is_same(own) for own in self.values)

    def has(self, stem: str) -> bool:
        """Return True if the sentence or what it needs has a word."""
        return stem in self.stems or stem in self.around


def sentences_of(passage: int, text: str) -> list[Sentence]:
    """Return the sentences of a passage that can be cited."""
    pieces = pieces_of(text, whole_lists=False)
    english = is_english(text)
    sentences: list[Sentence] = []
    for piece in pieces:
        written = text[piece.start : piece.end]
        stripped = written.strip()
        if not piece.said or not stripped:
            continue
        needed = [text[pieces[place].start : pieces[place].end].strip() for place in piece.needs]
        context = "\n".join(needed)
        header = _header(stripped, pieces, piece, text)
        plain = _BREAK.sub(" ", written)
        spans = [(0, len(written))] if header else sentence_spans(plain)
        for first, last in spans:
            own = written[first:last].strip()
            if own:
                start = piece.start + first + written[first:last].index(own[0])
                end = start + len(own)
                sentences.append(Sentence(passage, start, end, own, context, header, english))
    return sentences


def _header(row: str, pieces: Sequence[Piece], piece: Piece, text: str) -> str:
    """Return the first line above a row that has as many cells; empty if it is no row."""
    cells = next((each for each in _CELLS if each in row), "")
    for place in reversed(piece.needs if cells else ()):
        head = pieces[place]
        line, *_ = text[head.start : head.end].strip().split("\n")
        if not head.said and line.count(cells) == row.count(cells):
            return line.strip()
    return ""


def score(claim: Claim, sentence: Sentence) -> float:
    """Return how much of a statement a sentence has; 1 if it has everything."""
    own = claim.content & sentence.stems
    around = (claim.content & sentence.around) - own
    shared = [value for value in claim.values if sentence.has_value(value)]
    others = [value for value in claim.values if value not in shared]
    similar = [value for value in others if any(map(value.differs_from, sentence.values))]
    whole = len(claim.content) + OF_VALUE * len(claim.values)
    matched = len(own) + IN_CONTEXT * len(around) + OF_VALUE * len(shared) + OF_UNIT * len(similar)
    density = (len(own) + len(shared)) / (len(sentence.content) + 1)
    asked = sum(sentence.has(stem) for stem in claim.asked) / max(1, len(claim.asked))
    if not matched:
        return 0.0
    return (matched + OF_DENSITY * density + OF_QUESTION * asked) / max(1.0, whole)


def best_sentence(claim: Claim, sentences: Iterable[Sentence]) -> Sentence | None:
    """Return the sentence that has most of a statement, or None if none has enough."""
    best = max(sentences, key=lambda each: (score(claim, each), each.text), default=None)
    if best is None or score(claim, best) < CITED_FROM:
        return None
    return best


def missing_from(claim: Claim, sentence: Sentence) -> tuple[set[str], list[Value]]:
    """Return the words and the values of a statement that a sentence and its context lack."""
    words = {stem for stem in claim.content if not sentence.has(stem)}
    values = [value for value in claim.values if not sentence.has_value(value)]
    return words, values


def second_sentence(
    claim: Claim, first: Sentence, sentences: Iterable[Sentence]
) -> Sentence | None:
    """Return the sentence that adds most to the first: a name, a value or two other words."""
    words, values = missing_from(claim, first)
    names = {name.stem for name in claim.names} & words

    def added(sentence: Sentence) -> float:
        own = words & sentence.stems
        has_values = sum(sentence.has_value(value) for value in values)
        return len(own) + len(own & names) + 2 * has_values

    others = [each for each in sentences if each is not first]
    best = max(others, key=lambda each: (added(each), score(claim, each), each.text), default=None)
    if best is None or added(best) < 2 or score(claim, best) < CITED_FROM:
        return None
    return best
