"""Units of passages, and the pool of them that the model is asked about.

The signal of a sentence drowns in a long passage (section 4.4.1 of the paper: focused passages
of up to about 200 tokens), and a model's window is finite. A long passage is cut at turns and
sentence ends into units; a short one is its own unit. Units partition their passage: joined
they are the passage, character by character.

Stage 1 decides which passages, and which of their units, the model is asked about: a cheap ranker
reduces thousands of candidates, the model ranks what is left (section 4.10). Ranking is by unit,
since a ranker too is blind to one sentence in a long text; a passage stands where its best unit
stands.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ecs_plugins.common.aio import check_awaited
from ecs_plugins.common.text import sentence_spans
from ecs_plugins.ranking.base import Ranker

UNIT_TOKENS = 200
"""Section 4.10 of the paper: score passages of at most about 200 tokens."""

MAX_UNITS = 8
"""Units of one long passage that are scored at most, the best by the ranker."""

TokenCounter = Callable[[Sequence[str]], Sequence[int]]
"""Tokens of each text, such as `LanguageModel.count_tokens`."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of passage ``source``, and its tokens as counted when it was cut."""

    source: int
    start: int
    end: int
    text: str
    tokens: int


class _Piece(NamedTuple):
    """A span of a passage with its tokens."""

    start: int
    end: int
    tokens: int


_WORD = re.compile(r"(?<!\s)\s*+\S++(?:\s++\Z)?")


def split_passages(
    passages: Sequence[str],
    count_tokens: TokenCounter,
    max_tokens: int = UNIT_TOKENS,
    *,
    lengths: Sequence[int] | None = None,
) -> list[Unit]:
    """Cut every passage into units of about ``max_tokens`` at most.

    Sentences are packed from the front as long as they fit. A sentence that is too long by
    itself is cut between words, a word that is too long between characters. Tokens of pieces
    are counted apart, so a unit may have a few tokens more or less than the sum.

    Units stand in reading order; those of one passage partition it. ``lengths`` are the tokens of
    every passage, where they have been counted already.
    """
    units: list[Unit] = []
    if lengths is None:
        lengths = count_tokens(passages) if passages else []
    for source, passage in enumerate(passages):
        check_awaited()
        length = lengths[source]
        if length <= max_tokens:
            whole = Unit(source, 0, len(passage), passage, length)
            units.append(whole)
            continue
        sentences = sentence_spans(passage)
        pieces = _cut(passage, sentences, count_tokens, max_tokens)
        for start, end, tokens in _pack(pieces, max_tokens):
            text = passage[start:end]
            units.append(Unit(source, start, end, text, tokens))
    return units


def _cut(
    text: str,
    spans: Sequence[tuple[int, int]],
    count_tokens: TokenCounter,
    max_tokens: int,
) -> list[_Piece]:
    """Return spans with their tokens, cut to ``max_tokens`` at most or to one character."""
    texts = [text[start:end] for start, end in spans]
    counts = count_tokens(texts)
    pieces: list[_Piece] = []
    for (start, end), tokens in zip(spans, counts, strict=True):
        if tokens <= max_tokens or end - start <= 1:
            pieces.append(_Piece(start, end, tokens))
            continue
        parts = _finer(text, start, end)
        finer = _cut(text, parts, count_tokens, max_tokens)
        pieces += _pack(finer, max_tokens)
    return pieces


def _finer(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return a span cut into its words; into halves, if it is one word."""
    words: list[tuple[int, int]] = []
    for word in _WORD.finditer(text[start:end]):
        first, last = word.span()
        words.append((start + first, start + last))
    if len(words) > 1:
        return words
    middle = (start + end) // 2
    return [(start, middle), (middle, end)]


def _pack(pieces: Iterable[_Piece], max_tokens: int) -> list[_Piece]:
    """Join neighbours from the front while they fit."""
    packed: list[_Piece] = []
    for piece in pieces:
        if not packed:
            packed.append(piece)
            continue
        last = packed[-1]
        tokens = last.tokens + piece.tokens
        if tokens <= max_tokens:
            packed[-1] = _Piece(last.start, piece.end, tokens)
        else:
            packed.append(piece)
    return packed


@dataclass(frozen=True, slots=True)
class Pool:
    """Passages for the model, by index in input order; places count from 1.

    ``ranks`` and ``scores`` are the ranker's, empty if nothing was ranked. ``unscored`` are the
    texts of the other units, which rankers compare as well.
    """

    units: Mapping[int, tuple[Unit, ...]]
    ranks: Mapping[int, int]
    scores: Mapping[int, float]
    unscored: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, ...]:
        """Passage indices, best first; as given if nothing was ranked."""

        def rank(index: int) -> int:
            return self.ranks.get(index, 0)

        return tuple(sorted(self.units, key=rank))

    @property
    def best_first(self) -> tuple[str, ...]:
        """Return the texts of the units, from the best passage on."""
        texts: list[str] = []
        for index in self.order:
            texts += [unit.text.strip() for unit in self.units[index]]
        return tuple(texts)


def build_pool(
    query: str,
    units: Sequence[Unit],
    ranker: Ranker | None,
    pool_size: int,
    *,
    always: bool = True,
) -> Pool:
    """Keep the ``pool_size`` passages that the ranker puts first; without one, all.

    Unless it is to rank ``always``, it is asked only where not all units would be kept.
    """
    needs_no_order = not always and _fits(units, pool_size)
    if ranker is None or needs_no_order:
        return Pool(_by_passage(units), {}, {})
    texts = [unit.text.strip() for unit in units]
    ranking = ranker.rank(query, texts)
    ranks: dict[int, int] = {}
    scores: dict[int, float] = {}
    for place in ranking.order:
        index = units[place].source
        if index in ranks:
            continue
        ranks[index] = len(ranks) + 1
        scores[index] = ranking.scores[place]
    best_first = [units[place] for place in ranking.order]
    chosen: dict[int, tuple[Unit, ...]] = {}
    for index, of_passage in _by_passage(best_first).items():
        if ranks[index] > pool_size:
            continue
        best = of_passage[:MAX_UNITS]
        chosen[index] = tuple(sorted(best, key=_start))
    kept = {(unit.source, unit.start) for units in chosen.values() for unit in units}
    others = [unit.text.strip() for unit in units if (unit.source, unit.start) not in kept]
    return Pool(chosen, ranks, scores, tuple(others))


def _start(unit: Unit) -> int:
    return unit.start


def _fits(units: Sequence[Unit], pool_size: int) -> bool:
    """Return True if all units would be kept."""
    counts = Counter(unit.source for unit in units)
    most = max(counts.values(), default=0)
    return len(counts) <= pool_size and most <= MAX_UNITS


def _by_passage(units: Iterable[Unit]) -> dict[int, tuple[Unit, ...]]:
    """Return the units grouped by passage, in the order of the passages."""
    by_passage: defaultdict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        by_passage[unit.source].append(unit)
    return {index: tuple(by_passage[index]) for index in sorted(by_passage)}
