"""What ranker and model read of passages: without copies of the question, long ones in units.

Rankers and likelihoods alike put a passage first that repeats the question, and whoever writes
passages can use that: as a heading, before a false claim, behind a long preamble. So copies of the
question are cut from what is read for ranking and scoring. What is kept is the passage as it is.

A copy is a run of words of the question, another word between two of them allowed, that holds
`COPIED` of them and asks: it ends in a question mark, or has an interrogative of the question and
what follows it there. A sentence that states the same, such as the answer to "Did Anna move?",
does not ask and stays. A run that says `STUFFED` of the question's longer words and numbers twice
is cut too, unless a title and a colon stand between.

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
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ecs_plugins.common.text import UNSPACED, sentence_spans
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
    for source, (passage, length) in enumerate(zip(passages, lengths, strict=True)):
        if length <= max_tokens:
            units.append(Unit(source, 0, len(passage), passage, length))
            continue
        pieces = _cut(passage, sentence_spans(passage), count_tokens, max_tokens)
        units.extend(
            Unit(source, start, end, passage[start:end], tokens)
            for start, end, tokens in _pack(pieces, max_tokens)
        )
    return units


def _cut(
    text: str, spans: list[tuple[int, int]], count_tokens: TokenCounter, max_tokens: int
) -> list[tuple[int, int, int]]:
    """Spans with their tokens, none longer than ``max_tokens`` unless it is one character."""
    counts = count_tokens([text[start:end] for start, end in spans])
    out: list[tuple[int, int, int]] = []
    for (start, end), tokens in zip(spans, counts, strict=True):
        if tokens <= max_tokens or end - start <= 1:
            out.append((start, end, tokens))
            continue
        words = [(start + m.start(), start + m.end()) for m in _WORD.finditer(text[start:end])]
        if len(words) > 1:
            finer = words
        else:
            middle = (start + end) // 2
            finer = [(start, middle), (middle, end)]
        out.extend(_pack(_cut(text, finer, count_tokens, max_tokens), max_tokens))
    return out


def _pack(pieces: Iterable[tuple[int, int, int]], max_tokens: int) -> list[tuple[int, int, int]]:
    """Join neighbours from the front while they fit."""
    packed: list[tuple[int, int, int]] = []
    for start, end, tokens in pieces:
        if packed and packed[-1][2] + tokens <= max_tokens:
            packed[-1] = (packed[-1][0], end, packed[-1][2] + tokens)
        else:
            packed.append((start, end, tokens))
    return packed


@dataclass(frozen=True, slots=True)
class Pool:
    """What goes to the model, by passage index in input order; places count from 1.

    ``ranks`` and ``scores`` are the ranker's, empty if nothing was ranked.
    """

    units: Mapping[int, tuple[Unit, ...]]
    ranks: Mapping[int, int]
    scores: Mapping[int, float]

    @property
    def order(self) -> tuple[int, ...]:
        """Passage indices, best first; as given if nothing was ranked."""
        return tuple(sorted(self.units, key=lambda index: self.ranks.get(index, 0)))

    @property
    def best_first(self) -> tuple[str, ...]:
        """Texts of the units, those of the best passage first."""
        return tuple(unit.text.strip() for index in self.order for unit in self.units[index])


def build_pool(
    query: str, units: Sequence[Unit], ranker: Ranker | None, pool_size: int, *, always: bool = True
) -> Pool:
    """Keep the ``pool_size`` passages that the ranker puts first; without one, all.

    Unless it is to rank ``always``, it is asked only where not all units would be kept.
    """
    best: defaultdict[int, list[Unit]] = defaultdict(list)
    counts = Counter(unit.source for unit in units)
    fits = len(counts) <= pool_size and all(count <= MAX_UNITS for count in counts.values())
    if ranker is None or (fits and not always):
        for unit in units:
            best[unit.source].append(unit)
        return Pool({i: tuple(found) for i, found in sorted(best.items())}, {}, {})
    ranking = ranker.rank(query, [unit.text for unit in units])
    ranks: dict[int, int] = {}
    scores: dict[int, float] = {}
    for place in ranking.order:
        unit = units[place]
        if unit.source not in ranks:
            ranks[unit.source] = len(ranks) + 1
            scores[unit.source] = ranking.scores[place]
        best[unit.source].append(unit)
    chosen = sorted(index for index, rank in ranks.items() if rank <= pool_size)
    return Pool(
        {i: tuple(sorted(best[i][:MAX_UNITS], key=lambda unit: unit.start)) for i in chosen},
        ranks,
        scores,
    )


COPIED = 0.75
"""Share of the question's words from which on a run of them is a copy."""
STUFFED = 0.65
"""Share of the longer words, two at least, that are said over again in stuffing."""

_INTERROGATIVE_LIST = """
what which who whom whose when where why how
wer wen wem wessen wann wo wohin woher warum wieso weshalb wie welche welcher welches welchen
qué quién quiénes cuál cuáles cuándo dónde cómo cuánto cuántos cuántas
qui quoi quel quelle quels quelles quand où comment pourquoi combien
"""
_INTERROGATIVES = frozenset(_INTERROGATIVE_LIST.split())
_TERM = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_ASKS = re.compile(r"[^\w\n]{0,9}?[?？؟]+")
_BREAK = re.compile(r"[?？؟\n]")
_SHORT = 3
"""Characters of words whose repetition means nothing: articles and prepositions."""

Word = tuple[str, int, int]
"""Casefolded, with its first character and one past its last."""


def beyond_question(query: str, text: str) -> str:
    """The text without copies of the question; empty if no word is left.

    >>> beyond_question("Where is Rome?", "FAQ: Where is Rome? In Italy.")
    'FAQ: In Italy.'
    """
    words = [word for word, _, _ in _words(query)]
    asked = Counter(words)
    opening = {pair for pair in pairwise(words) if pair[0] in _INTERROGATIVES}
    opening |= {pair for pair in pairwise(words[-2:]) if pair[1] in _INTERROGATIVES}  # "of what?"
    longer = [w for w in asked if len(w) > _SHORT or w.isdigit()]
    longer = [word for word in longer if word not in _INTERROGATIVES]
    kept: list[str] = []
    at = 0
    for run in _runs(asked, text):
        said = Counter(word for word, _, _ in run)
        marks = _ASKS.match(text, run[-1][2])
        asks = marks or not opening.isdisjoint(pairwise(word for word, _, _ in run))
        again = sum(said[word] >= 2 * asked[word] for word in longer)
        stuffed = (
            again >= max(2, STUFFED * len(longer)) and ": " not in text[run[0][1] : run[-1][2]]
        )
        if stuffed or (asks and len(said) >= COPIED * len(asked)):
            kept.append(text[at : run[0][1]].strip())
            at = marks.end() if marks else run[-1][2]
    if not at:
        return text
    left = " ".join(part for part in (*kept, text[at:].strip()) if part)
    return left if _TERM.search(left) else ""


def _words(text: str) -> Iterator[Word]:
    for found in _TERM.finditer(text):
        word = unicodedata.normalize("NFKC", found.group()).casefold()
        yield word, found.start(), found.end()


def _runs(asked: Counter[str], text: str) -> Iterator[list[Word]]:
    """Runs of words of the question, at most one other word between two of them."""
    run: list[Word] = []
    others = 0
    for word, start, end in _words(text):
        if word not in asked:
            others += 1
            continue
        if run and (others > 1 or _BREAK.search(text, run[-1][2], start)):
            yield run
            run = []
        run.append((word, start, end))
        others = 0
    if run:
        yield run
