"""Which pieces of the kept passages stay: the best that fit a budget, over all passages.

A piece is taken with what it needs to be understood. The lead of a passage, its first sentence
behind a title, comes sooner where the question or a sentence that stays elsewhere names that title,
or the sentence shares a rare name with it: a second hop need not have a word of the question.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from ecs_plugins.common.text import WORD, names_and_numbers, terms
from ecs_plugins.shaping.passages import UNIT_TOKENS, TokenCounter
from ecs_plugins.shaping.sentences import Piece, Span, as_read, join_spans, pieces_of, with_needs
from ecs_plugins.shaping.signals.fused import LINKED

if TYPE_CHECKING:
    from ecs_plugins.shaping.config import ShapingConfig

KEPT_SHARE = 0.4
"""Share of the characters of the kept passages that their best sentences may take, with what these
need to be understood, where the caller sets no budget."""
SHORT_TOGETHER = 4 * UNIT_TOKENS
"""Characters that several passages may take together in any case, where the caller sets no budget:
what is so short costs little, and a second hop is easily lost from it."""

_QUALIFIER = re.compile(r"\([^()\n]*\)\s*\Z")  # as in "Mercury (planet)"


def _no_tokens(texts: Sequence[str]) -> list[int]:
    return [0] * len(texts)


@dataclass(frozen=True)
class Budget:
    """How much may stay, over all passages.

    Attributes:
        share: Of the characters that there are; the best piece stays even where it is longer. None
            without a limit.
        characters: At most so many stay.
        tokens: At most so many stay, as ``count_tokens`` counts them.
        floor: Characters of several passages that may stay whatever the share.
    """

    share: float | None = KEPT_SHARE
    characters: int | None = None
    tokens: int | None = None
    count_tokens: TokenCounter = _no_tokens
    floor: int = 0

    @classmethod
    def of(cls, config: ShapingConfig, count_tokens: TokenCounter) -> Budget:
        """The budget of a configuration, which has a share and a floor where it sets none."""
        limits = (config.keep_share, config.max_characters, config.max_tokens)
        if all(limit is None for limit in limits):
            return cls(count_tokens=count_tokens, floor=SHORT_TOGETHER)
        share, characters, tokens = limits
        return cls(share, characters, tokens, count_tokens)

    def __str__(self) -> str:
        limits = []
        if self.share is not None:
            limits.append(f"keep_share of {self.share:.0%}")
        if self.characters is not None:
            limits.append(f"max_characters of {self.characters}")
        if self.tokens is not None:
            limits.append(f"max_tokens of {self.tokens}")
        return " and ".join(limits)

    @property
    def is_hard(self) -> bool:
        """Whether not even the best piece may be longer."""
        return self.characters is not None or self.tokens is not None

    def characters_of(self, texts: Sequence[str]) -> float:
        """The characters that may stay of some texts."""
        limit = math.inf if self.characters is None else float(self.characters)
        if self.share is None:
            return limit
        share = self.share * sum(map(len, texts))
        if len(texts) > 1:
            share = max(share, self.floor)
        return min(limit, share)


class PieceKey(NamedTuple):
    """A piece, by its passage and its number there."""

    passage: int
    number: int


class Title(NamedTuple):
    """The words of a title, and the names in the lead behind it that one other passage has."""

    words: str
    rare_names: frozenset[str]


class Passage(NamedTuple):
    """A text and its pieces."""

    text: str
    pieces: Sequence[Piece]

    def text_of(self, number: int) -> str:
        """The text of a piece."""
        piece = self.pieces[number]
        return self.text[piece.start : piece.end]

    def spans(self, numbers: Iterable[int]) -> list[Span]:
        """Where some pieces stand."""
        chosen = (self.pieces[number] for number in numbers)
        return [(piece.start, piece.end) for piece in chosen]

    def readings(self) -> dict[int, str]:
        """By each piece that says something: what the model reads, with what the piece needs."""
        text = as_read(self.text, self.pieces)
        said = [number for number, piece in enumerate(self.pieces) if piece.said]
        readings: dict[int, str] = {}
        for number in said:
            spans = self.spans(with_needs(self.pieces, [number]))
            readings[number] = join_spans(spans, text).replace("\0", "")
        return readings


def prune(
    query: str,
    texts: Sequence[str],
    score: Callable[[Sequence[str]], Sequence[float | None]],
    standing: Sequence[float],
    budget: Budget | None = None,
) -> list[tuple[Span, ...] | None]:
    """What stays of each text, as spans, which may be none; None where all of it stays.

    Args:
        query: The question.
        texts: The kept passages.
        score: What pieces are worth; it is given every one with what it needs, all at once. None
            where it cannot be told: such a piece comes first.
        standing: What each text is worth, which is added to what its pieces are.
        budget: How much may stay; by default `KEPT_SHARE` of the characters.
    """
    passages = [Passage(text, pieces_of(text)) for text in texts]
    readings = {
        PieceKey(passage, number): reading
        for passage, each in enumerate(passages)
        for number, reading in each.readings().items()
    }
    budget = budget or Budget()
    choice = _Selection(query, passages, budget)
    # Where each text is one sentence, there is nothing to choose.
    is_choice = len(readings) > len(texts) or budget.is_hard
    if is_choice and not choice.fits_whole:
        scores = score(list(readings.values()))
    else:
        scores = [None] * len(readings)
    worth: dict[PieceKey, float] = {}
    for place, value in zip(readings, scores, strict=True):
        worth[place] = math.inf if value is None else value + standing[place.passage]
    choice.take_best(worth)
    return [
        None if len(numbers) == len(passage.pieces) else tuple(passage.spans(sorted(numbers)))
        for passage, numbers in zip(passages, choice.kept, strict=True)
    ]


class _Selection:
    """The pieces that stay so far, and what may still be added."""

    def __init__(self, query: str, passages: Sequence[Passage], budget: Budget) -> None:
        texts = [passage.text for passage in passages]
        self.kept: list[set[int]] = [set() for _ in passages]
        self._query = query
        self._passages = passages
        self._budget = budget
        self._titles = _titles(query, passages)
        self._unnamed = dict(self._titles)
        self._characters = budget.characters_of(texts)
        self._tokens = math.inf if budget.tokens is None else float(budget.tokens)
        self._tokens_of = self._counted()
        characters = sum(map(len, texts))
        tokens = sum(self._tokens_of.values())
        self.fits_whole = characters <= self._characters and tokens <= self._tokens
        self._waiting: list[tuple[float, int, int]] = []

    def take_best(self, worth: Mapping[PieceKey, float]) -> None:
        """Take pieces from the best on, as far as they fit."""
        if self.fits_whole:
            self.kept = [set(range(len(passage.pieces))) for passage in self._passages]
            return
        self._waiting = [(-value, *place) for place, value in worth.items()]
        heapify(self._waiting)
        self._name(self._query, worth)
        taken: list[tuple[int, set[int]]] = []
        while self._waiting:
            negative, passage, number = heappop(self._waiting)
            new = self._with_needs(passage, number)
            certain = negative == -math.inf or not any(self.kept)
            if not self._fits(passage, new) and not (certain and not self._budget.is_hard):
                continue
            self._take(passage, new)
            taken.append((passage, new))
            self._name(self._said(passage, new), worth)
        while taken and self._is_over():
            passage, last = taken.pop()
            self.kept[passage] -= last

    def _with_needs(self, passage: int, number: int) -> set[int]:
        """A piece and what it needs, as far as it is not kept yet."""
        pieces = self._passages[passage].pieces
        lead = pieces[number].lead if passage in self._titles else ()
        return {*with_needs(pieces, [number, *lead])} - self.kept[passage]

    def _fits(self, passage: int, numbers: Iterable[int]) -> bool:
        characters, tokens = self._size(passage, numbers)
        return characters <= self._characters and tokens <= self._tokens

    def _take(self, passage: int, numbers: set[int]) -> None:
        characters, tokens = self._size(passage, numbers)
        self._characters -= characters
        self._tokens -= tokens
        self.kept[passage] |= numbers

    def _size(self, passage: int, numbers: Iterable[int]) -> tuple[int, int]:
        """Characters and tokens of some pieces."""
        spans = self._passages[passage].spans(numbers)
        characters = sum(end - start for start, end in spans)
        tokens = sum(self._tokens_of.get(PieceKey(passage, number), 0) for number in numbers)
        return characters, tokens

    def _counted(self) -> dict[PieceKey, int]:
        """Tokens of every piece, where they are limited."""
        if self._budget.tokens is None:
            return {}
        places = [
            PieceKey(number, piece)
            for number, passage in enumerate(self._passages)
            for piece in range(len(passage.pieces))
        ]
        texts = [self._passages[place.passage].text_of(place.number) for place in places]
        if not texts:
            return {}
        return dict(zip(places, self._budget.count_tokens(texts), strict=True))

    def _is_over(self) -> bool:
        """Whether what stays has more tokens than its pieces had apart."""
        if self._budget.tokens is None:
            return False
        left = [
            join_spans(passage.spans(numbers), passage.text)
            for passage, numbers in zip(self._passages, self.kept, strict=True)
        ]
        return sum(self._budget.count_tokens(left)) > self._budget.tokens

    def _said(self, passage: int, numbers: Iterable[int]) -> str:
        each = self._passages[passage]
        return " ".join(each.text_of(number) for number in numbers if each.pieces[number].said)

    def _name(self, text: str, worth: Mapping[PieceKey, float]) -> None:
        """Let the leads of the passages come sooner whose titles a text names."""
        words = _words(text)
        names = {*names_and_numbers(text)}
        named = [
            passage
            for passage, title in self._unnamed.items()
            if title.words in words or title.rare_names & names
        ]
        for passage in named:
            del self._unnamed[passage]
            (lead,) = self._passages[passage].pieces[-1].lead
            sooner = worth[PieceKey(passage, lead)] + LINKED
            heappush(self._waiting, (-sooner, passage, lead))


def _titles(query: str, passages: Sequence[Passage]) -> dict[int, Title]:
    """The titles of the passages that have one with a lead, by passage."""
    rare_names = _rare_names([query, *(passage.text for passage in passages)])
    titles: dict[int, Title] = {}
    for number, passage in enumerate(passages):
        if not passage.pieces or not passage.pieces[-1].lead:
            continue
        (lead,) = passage.pieces[-1].lead
        title = passage.text_of(0)
        if ": " in title:  # a field, not a title
            continue
        in_lead = {*names_and_numbers(passage.text_of(lead))}
        words = _words(_QUALIFIER.sub("", title))
        titles[number] = Title(words, frozenset(rare_names & in_lead))
    return titles


def _rare_names(texts: Sequence[str]) -> set[str]:
    """Names that two of the passages have, and not the question, which stands first.

    A name is written large everywhere.
    """
    query, *passages = texts
    small: set[str] = set()
    for text in (query.lower(), *passages):
        small.update(word for word in WORD.findall(text) if word.islower())
    having = Counter(name for text in passages for name in {*names_and_numbers(text)})
    names = {name for name, count in having.items() if count == 2}
    long = {name for name in names if name.isalpha() and len(name) > 2}
    return long - small


def _words(text: str) -> str:
    return f" {' '.join(terms(text))} "
