"""The sentences of the passages that a statement rests on.

A sentence is scored by itself, so no other passage changes its score. Headings and the header row
of a table belong to the sentences and rows below them; they are never cited alone.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse
from typing import Final

from ecs_plugins.common.text import sentence_spans
from ecs_plugins.shaping.attribution.quantities import Value, values_of
from ecs_plugins.shaping.attribution.wording import (
    Span,
    Word,
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
        values = values_of(text)
        introduced = introduction_of(text)
        content = [word for word in _content_of(text) if word.start >= introduced]
        named = [name for name in names_of(text) if name.start >= introduced]
        words = _outside(content, values)
        names = _outside(named, values)
        asked = _content_of(f"{query}\n{lead}")
        is_whole = len(content) > SHORT or bool(lead)
        asked_names = [] if is_whole else names_of(query)
        return cls(
            text=text,
            words=words,
            content=_stems_of(words),
            names=names,
            values=tuple(values),
            first=_first_word(text, words, names),
            asked=_stems_of(asked),
            asked_names=_stems_of(asked_names),
            is_english=is_english(f"{query}\n{text}"),
        )


def _first_word(
    text: str,
    words: Sequence[Word],
    names: Sequence[Word],
) -> Word | None:
    """Return the first word if it may be a name: no comma follows, as it does after "Overall"."""
    if not words or words[0] in names:
        return None
    first = words[0]
    if not first.text[0].isupper() or text.startswith(",", first.end):
        return None
    return first if begins_sentence(text, first) else None


def _content_of(text: str) -> list[Word]:
    return [word for word in words_of(text) if word.is_content]


def _stems_of(words: Iterable[Word]) -> frozenset[str]:
    return frozenset(word.stem for word in words)


def _outside(words: Iterable[Word], values: Sequence[Value]) -> tuple[Word, ...]:
    """Return the words that are no part of the values, which are in order."""
    starts = [value.start for value in values]

    def is_within(word: Word) -> bool:
        place = bisect_right(starts, word.start)
        return place > 0 and word.start < values[place - 1].end

    return tuple(filterfalse(is_within, words))


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
        values = values_of(self.text)
        words = words_of(self.text)
        content = _outside(_content_of(self.text), values)
        magnitudes: set[float] = set()
        for value in values:
            magnitudes.update(value.numbers, value.written)
        read = {
            "words": tuple(words),
            "content": content,
            "stems": _stems_of(words),
            "around": _stems_of(words_of(self.context)),
            "values": tuple(values),
            "magnitudes": frozenset(magnitudes),
        }
        for name, part in read.items():
            object.__setattr__(self, name, part)

    @property
    def read(self) -> str:
        """The sentence as a model reads it: with what it needs."""
        parts = filter(None, (self.context, self.text))
        return "\n".join(parts)

    def has_value(self, value: Value) -> bool:
        """Return True if the sentence has the value, in any unit."""
        if self.magnitudes.isdisjoint((*value.numbers, *value.written)):
            return False
        return any(map(value.is_same, self.values))

    def has(self, stem: str) -> bool:
        """Return True if the sentence or what it needs has a word."""
        return stem in self.stems or stem in self.around


def sentences_of(passage: int, text: str) -> list[Sentence]:
    """Return the sentences of a passage that can be cited."""
    pieces = pieces_of(text, whole_lists=False)
    is_own_english = is_english(text)
    sentences: list[Sentence] = []
    for piece in pieces:
        if not piece.said:
            continue
        needed = [pieces[place] for place in piece.needs]
        context = "\n".join(_text_of(each, text) for each in needed)
        header = _header(_text_of(piece, text), needed, text)
        for start, end in _spans_in(piece, text, is_row=bool(header)):
            sentence = Sentence(
                passage,
                start,
                end,
                text[start:end],
                context,
                header,
                is_own_english,
            )
            sentences.append(sentence)
    return sentences


def _text_of(piece: Piece, text: str) -> str:
    return text[piece.start : piece.end].strip()


def _spans_in(piece: Piece, text: str, *, is_row: bool) -> Iterator[Span]:
    """Yield the sentences of a piece without the white space around them; a row is one."""
    written = text[piece.start : piece.end]
    plain = _BREAK.sub(" ", written)
    spans = [(0, len(written))] if is_row else sentence_spans(plain)
    for first, last in spans:
        part = written[first:last]
        blank = len(part) - len(part.lstrip())
        start = piece.start + first + blank
        own = part.strip()
        if own:
            yield start, start + len(own)


def _header(row: str, needed: Sequence[Piece], text: str) -> str:
    """Return the first line above a row that has as many cells; empty if it is no row."""
    divider = next((each for each in _CELLS if each in row), "")
    if not divider:
        return ""
    for head in reversed(needed):
        line, *_ = _text_of(head, text).split("\n")
        has_cells = line.count(divider) == row.count(divider)
        if has_cells and not head.said:
            return line.strip()
    return ""


def score(claim: Claim, sentence: Sentence) -> float:
    """Return how much of a statement a sentence has; 1 if it has everything."""
    own = claim.content & sentence.stems
    around = claim.content & sentence.around
    matched = len(own) + IN_CONTEXT * len(around - own)
    repeated = len(own)
    for value in claim.values:
        if sentence.has_value(value):
            matched += OF_VALUE
            repeated += 1
        elif any(map(value.differs_from, sentence.values)):
            matched += OF_UNIT
    if not matched:
        return 0.0
    density = repeated / (len(sentence.content) + 1)
    matched += OF_DENSITY * density
    if claim.asked:
        asked = sum(map(sentence.has, claim.asked))
        share = asked / len(claim.asked)
        matched += OF_QUESTION * share
    whole = len(claim.content) + OF_VALUE * len(claim.values)
    return matched / max(1.0, whole)


def best_sentence(claim: Claim, sentences: Iterable[Sentence]) -> Sentence | None:
    """Return the sentence that has most of a statement, or None if none has enough."""

    def rank(sentence: Sentence) -> tuple[float, str]:
        return score(claim, sentence), sentence.text

    best = max(sentences, key=rank, default=None)
    if best is None:
        return None
    return best if score(claim, best) >= CITED_FROM else None


def second_sentence(
    claim: Claim,
    first: Sentence,
    sentences: Iterable[Sentence],
) -> Sentence | None:
    """Return the sentence that adds most to the first: a name, a value or two other words."""
    words = set(filterfalse(first.has, claim.content))
    values = list(filterfalse(first.has_value, claim.values))
    names = _stems_of(claim.names)

    def count_added(sentence: Sentence) -> int:
        own = words & sentence.stems
        own_values = sum(map(sentence.has_value, values))
        return len(own) + len(own & names) + 2 * own_values

    def rank(sentence: Sentence) -> tuple[int, float, str]:
        return count_added(sentence), score(claim, sentence), sentence.text

    others = [each for each in sentences if each is not first]
    best = max(others, key=rank, default=None)
    if best is None or count_added(best) < 2:
        return None
    return best if score(claim, best) >= CITED_FROM else None
