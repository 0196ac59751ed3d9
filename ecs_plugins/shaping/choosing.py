"""Which pieces of the kept passages stay: the best that fit a budget, over all passages.

A piece is taken with what it needs to be understood, and scored with it: a reply with the question
that it answers, also where that is the question that was asked. The lead of a passage, its first
sentence behind a title, comes sooner where the question or a sentence that stays elsewhere names
that title, or the sentence shares a rare name with it: a second hop need not have a word of the
question.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple, TypeAlias

from ecs_plugins.common.text import WORD, names_and_numbers, terms
from ecs_plugins.ranking.fused import z_scores
from ecs_plugins.shaping.acceptance import Budget
from ecs_plugins.shaping.passages import UNIT_TOKENS, TokenCounter
from ecs_plugins.shaping.result import PassageVerdict
from ecs_plugins.shaping.sentences import Piece, pieces_of, with_needs
from ecs_plugins.shaping.signals.combined import LINKED
from ecs_plugins.shaping.spans import Span, join_spans

NONE_STAYS = "none of its sentences is among the best"

KEPT_SHARE = 0.4
"""Share of the characters of the kept passages that their best sentences may take, with what these
need to be understood, where the caller sets no budget."""
SHORT_TOGETHER = 4 * UNIT_TOKENS
"""Characters that several passages may take together in any case, where the caller sets no budget:
what is so short costs little, and a second hop is easily lost from it."""

OVERLAP = 20
"""Characters of the end of one passage and the beginning of another that are no chance."""

Beyond: TypeAlias = Callable[[str], str]
"""What is scored of a text, such as what it says beyond the question."""
PieceScorer: TypeAlias = Callable[[Sequence[str]], Sequence[float | None]]
"""What each text is worth; None where that cannot be told."""

_QUALIFIER = re.compile(r"\([^()\n]*\)\s*\Z")  # as in "Mercury (planet)"


class PieceKey(NamedTuple):
    """A piece, by its passage and its number there."""

    passage: int
    number: int


class Title(NamedTuple):
    """Words of a title, and the names in the lead after it that one other passage has."""

    words: str
    rare_names: frozenset[str]


class Passage(NamedTuple):
    """A text and its pieces."""

    text: str
    pieces: Sequence[Piece]

    def text_of(self, number: int) -> str:
        """Return the text of a piece."""
        piece = self.pieces[number]
        return self.text[piece.start : piece.end]

    def spans(self, numbers: Iterable[int]) -> list[Span]:
        """Return the (start, end) spans of some pieces."""
        chosen = [self.pieces[number] for number in numbers]
        return [(piece.start, piece.end) for piece in chosen]

    def kept_text(self, numbers: Iterable[int]) -> str:
        """Return the text of some pieces."""
        return join_spans(self.spans(numbers), self.text)

    def kept_spans(self, numbers: Collection[int]) -> tuple[Span, ...] | None:
        """Return the spans of the kept pieces; None if all pieces are kept."""
        if len(numbers) == len(self.pieces):
            return None
        return tuple(self.spans(sorted(numbers)))

    def reading(self, number: int, beyond: Beyond) -> str:
        """Return the model's reading of a piece, with the pieces it needs.

        It reads what is ``beyond`` the question, and what a piece answers as it is.
        """
        needed = with_needs(self.pieces, [number])
        answers = self.pieces[number].answers
        if not answers or not beyond(self.kept_text([number])):
            return beyond(self.kept_text(needed))
        parts: list[str] = []
        for is_asked, numbers in groupby(needed, key=answers.__contains__):
            part = self.kept_text(numbers)
            parts.append(part if is_asked else beyond(part))
        return "\n".join(filter(None, parts))


def prune(
    query: str,
    texts: Sequence[str],
    score: PieceScorer,
    standing: Sequence[float],
    budget: Budget,
    *,
    beyond: Beyond = str,
) -> list[tuple[Span, ...] | None]:
    """Return the kept spans of each text, maybe none; None if all of it stays.

    Args:
        query: The question.
        texts: The kept passages.
        score: What pieces are worth; it is given every one with what it needs, all at once. None
            where it cannot be told: such a piece comes first.
        standing: What each text is worth, which is added to what its pieces are.
        budget: How much may stay.
        beyond: What is scored of a text, such as what it says beyond the question; all by default.
    """
    passages = [Passage(text, pieces_of(text)) for text in texts]
    selection = _Selection(query, passages, budget)
    readings: dict[PieceKey, str] = {}
    for place, each in enumerate(passages):
        for number, piece in enumerate(each.pieces):
            if piece.said:
                readings[PieceKey(place, number)] = each.reading(number, beyond)
    worth = dict.fromkeys(readings, math.inf)
    if not selection.fits_whole:
        scores = score(list(readings.values()))
        for key, value in zip(readings, scores, strict=True):
            if value is not None:
                worth[key] = value + standing[key.passage]
    kept = selection.best(worth)
    spans: list[tuple[Span, ...] | None] = []
    for passage, numbers in zip(passages, kept, strict=True):
        spans.append(passage.kept_spans(numbers))
    return spans


class _Size(NamedTuple):
    """Characters and tokens, of pieces or of free space."""

    characters: float
    tokens: float

    def holds(self, other: _Size) -> bool:
        """Return True if another size fits into this one."""
        return other.characters <= self.characters and other.tokens <= self.tokens

    def without(self, other: _Size) -> _Size:
        """Return the rest after another size is taken away."""
        return _Size(self.characters - other.characters, self.tokens - other.tokens)


class _Taken(NamedTuple):
    """Pieces taken together: a piece, and the pieces that it needs."""

    passage: int
    numbers: set[int]


class _Selection:
    """Pieces kept so far, and candidates that may still be added."""

    def __init__(
        self,
        query: str,
        passages: Sequence[Passage],
        budget: Budget,
    ) -> None:
        self._query = query
        self._passages = passages
        self._budget = budget
        self._kept: list[set[int]] = [set() for _ in passages]
        self._keeper: dict[str, int] = {}
        """By its text, the passage that keeps a sentence."""
        self._overlapping = _overlapping(passages)
        self._titles = _titles(query, passages)
        self._unnamed = dict(self._titles)
        self._tokens_of = self._counted()
        self._waiting: list[tuple[float, int, int]] = []
        texts = [passage.text for passage in passages]
        self._room = _Size(budget.characters, budget.tokens)
        everything = _Size(
            characters=sum(map(len, texts)),
            tokens=sum(self._tokens_of.values()),
        )
        self.fits_whole = self._room.holds(everything)

    def best(self, worth: Mapping[PieceKey, float]) -> list[set[int]]:
        """Return the numbers of the kept pieces, by passage: the best ones that fit."""
        if self.fits_whole:
            for passage, each in enumerate(self._passages):
                numbers = range(len(each.pieces))
                fresh = {n for n in numbers if not self._is_repeated(passage, n)}
                said = any(each.pieces[number].said for number in fresh)
                self._take(_Taken(passage, fresh if said else set()))
            return self._kept
        self._waiting = [(-value, *key) for key, value in worth.items()]
        heapify(self._waiting)
        self._name(self._query, worth)
        taken: list[_Taken] = []
        while self._waiting:
            _, passage, number = heappop(self._waiting)
            pieces = _Taken(passage, self._new(passage, number))
            has_new = any(self._passages[passage].pieces[n].said for n in pieces.numbers)
            if has_new and (not taken or self._room.holds(self._size(pieces))):
                self._take(pieces)
                taken.append(pieces)
                self._name(self._said(pieces), worth)
        while len(taken) > 1 and self._is_over():
            last = taken.pop()
            self._kept[last.passage] -= last.numbers
        return self._kept

    def _new(self, passage: int, number: int) -> set[int]:
        """Return a piece and the pieces it needs, without the pieces kept already."""
        if self._is_repeated(passage, number):
            return set()
        pieces = self._passages[passage].pieces
        needed = set(with_needs(pieces, [number])) - self._kept[passage]
        return {each for each in needed if not self._is_repeated(passage, each)}

    def _is_repeated(self, passage: int, number: int) -> bool:
        """Return True if another passage keeps the same sentence, as overlapping chunks do."""
        text = self._repeatable(passage, number)
        return bool(text) and self._keeper.get(text, passage) != passage

    def _repeatable(self, passage: int, number: int) -> str:
        """Return the text of a piece in the overlap of two passages; else an empty text."""
        if PieceKey(passage, number) not in self._overlapping:
            return ""
        return " ".join(self._passages[passage].text_of(number).split())

    def _take(self, pieces: _Taken) -> None:
        self._room = self._room.without(self._size(pieces))
        self._kept[pieces.passage] |= pieces.numbers
        for number in pieces.numbers:
            text = self._repeatable(pieces.passage, number)
            if text:
                self._keeper.setdefault(text, pieces.passage)

    def _size(self, pieces: _Taken) -> _Size:
        passage = self._passages[pieces.passage]
        characters = 0
        tokens = 0
        for number in pieces.numbers:
            key = PieceKey(pieces.passage, number)
            characters += len(passage.text_of(number))
            tokens += self._tokens_of.get(key, 0)
        return _Size(characters, tokens)

    def _counted(self) -> dict[PieceKey, int]:
        """Return tokens of every piece, where they are limited."""
        if self._budget.tokens == math.inf:
            return {}
        texts: dict[PieceKey, str] = {}
        for passage, each in enumerate(self._passages):
            for number in range(len(each.pieces)):
                key = PieceKey(passage, number)
                texts[key] = each.text_of(number)
        if not texts:
            return {}
        counts = self._budget.count_tokens(list(texts.values()))
        return dict(zip(texts, counts, strict=True))

    def _is_over(self) -> bool:
        """Return True if the joined text has more tokens than its pieces had apart."""
        pairs = zip(self._passages, self._kept, strict=True)
        left = [passage.kept_text(numbers) for passage, numbers in pairs]
        return self._budget.tokens < math.inf and self._budget.is_exceeded_by(left)

    def _said(self, pieces: _Taken) -> str:
        passage = self._passages[pieces.passage]
        numbers = sorted(pieces.numbers)
        said = [number for number in numbers if passage.pieces[number].said]
        return " ".join(map(passage.text_of, said))

    def _name(self, text: str, worth: Mapping[PieceKey, float]) -> None:
        """Let the leads of the passages come sooner whose titles a text names."""
        words = _words(text)
        names = set(names_and_numbers(text))
        for passage, title in list(self._unnamed.items()):
            is_named = title.words in words
            if not is_named and title.rare_names.isdisjoint(names):
                continue
            del self._unnamed[passage]
            last = self._passages[passage].pieces[-1]
            (number,) = last.lead
            lead = PieceKey(passage, number)
            sooner = worth[lead] + LINKED
            heappush(self._waiting, (-sooner, *lead))


def _overlapping(passages: Sequence[Passage]) -> set[PieceKey]:
    """Return the pieces in an overlap: the end of one passage is the start of another."""
    found: set[PieceKey] = set()
    for one, before in enumerate(passages):
        for other, after in enumerate(passages):
            text = before.text.rstrip()
            start = text.rfind(after.text[:OVERLAP]) if one != other else -1
            size = len(text) - start
            if start < 1 or size < OVERLAP or after.text[:size] != text[start:]:
                continue
            for number, piece in enumerate(before.pieces):
                if piece.start >= start:
                    found.add(PieceKey(one, number))
            for number, piece in enumerate(after.pieces):
                if piece.start + len(after.text_of(number).rstrip()) <= size:
                    found.add(PieceKey(other, number))
    return found


def _titles(query: str, passages: Sequence[Passage]) -> dict[int, Title]:
    """Return the titles of the passages that have one with a lead, by passage."""
    texts = [passage.text for passage in passages]
    rare_names = _rare_names(query, texts)
    titles: dict[int, Title] = {}
    for number, passage in enumerate(passages):
        lead = passage.pieces[-1].lead if passage.pieces else ()
        if not lead:
            continue
        title = passage.text_of(0)
        if ": " in title:  # which is a field, not a title
            continue
        lead_text = passage.text_of(lead[0])
        rare = rare_names.intersection(names_and_numbers(lead_text))
        unqualified = _QUALIFIER.sub("", title)
        titles[number] = Title(_words(unqualified), frozenset(rare))
    return titles


def _rare_names(query: str, texts: Sequence[str]) -> set[str]:
    """Return names that two of the passages have, and the question does not.

    A name is written large everywhere.
    """
    small: set[str] = set()
    having: Counter[str] = Counter()
    for text in (query.lower(), *texts):
        words = WORD.findall(text)
        small.update(filter(str.islower, words))
    for text in texts:
        names = set(names_and_numbers(text))
        having.update(names)
    rare: set[str] = set()
    for name, count in having.items():
        is_name = name.isalpha() and len(name) > 2
        if is_name and count == 2:
            rare.add(name)
    return rare - small


def _words(text: str) -> str:
    words = " ".join(terms(text))
    return f" {words} "


def prune_kept(
    query: str,
    verdicts: Sequence[PassageVerdict],
    score: PieceScorer,
    budget: Budget,
    *,
    beyond: Beyond = str,
) -> list[PassageVerdict]:
    """Return the verdicts with only the sentences that help in kept passages.

    Args:
        query: The question.
        verdicts: On all passages.
        score: What each text is ordered by; None where it cannot be scored.
        budget: How much may stay of them; without a limit, `KEPT_SHARE` of their characters.
        beyond: What is scored of a text.
    """
    kept = [verdict for verdict in verdicts if verdict.kept]
    standing = z_scores([verdict.score or 0.0 for verdict in kept])
    texts = [verdict.text for verdict in kept]
    if not budget.limits:
        floor = SHORT_TOGETHER if len(texts) > 1 else 0
        characters = max(KEPT_SHARE * sum(map(len, texts)), floor)
        limits = {"keep_share": f"{KEPT_SHARE:.0%}"}
        budget = replace(budget, characters=characters, limits=limits)
    all_spans = prune(query, texts, score, standing, budget, beyond=beyond)
    shorter: dict[int, PassageVerdict] = {}
    for verdict, spans in zip(kept, all_spans, strict=True):
        if spans is not None:
            shorter[verdict.index] = _shortened(verdict, spans, budget)
    shorter |= _counted(shorter.values(), budget.count_tokens)
    return [shorter.get(verdict.index, verdict) for verdict in verdicts]


def _counted(
    verdicts: Iterable[PassageVerdict],
    count_tokens: TokenCounter,
) -> dict[int, PassageVerdict]:
    """Return the verdicts that stay by index, with the tokens of their text."""
    kept = [verdict for verdict in verdicts if verdict.kept]
    if not kept:
        return {}
    counts = count_tokens([verdict.kept_text for verdict in kept])
    return {
        verdict.index: replace(verdict, tokens_kept=tokens)
        for verdict, tokens in zip(kept, counts, strict=True)
    }


def _shortened(verdict: PassageVerdict, spans: tuple[Span, ...], budget: Budget) -> PassageVerdict:
    if spans:
        reason = f"{verdict.reason}; cut to its best sentences, by {budget}"
        return replace(
            verdict,
            spans=spans,
            reason=reason,
            cut_by=" and ".join(budget.limits),
        )
    return replace(
        verdict,
        kept=False,
        place=None,
        reason=f"{NONE_STAYS}, by {budget}",
        cut_by=" and ".join(budget.limits),
    )
