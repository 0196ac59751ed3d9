"""Copies of the question within a passage, which are not read.

Rankers and likelihoods alike put a passage first that repeats the question, and whoever writes
passages can use that: as a heading, before a false claim, behind a long preamble. So copies of the
question are cut from what is read for ranking and scoring. What is kept is the passage as it is.

A copy is a run of words of the question, another word between two of them allowed, that holds
`COPIED` of them and asks: it ends in a question mark, or has an interrogative of the question and
what follows it there. A sentence that states the same, such as the answer to "Did Anna move?",
does not ask and stays. A run that says `STUFFED` of the question's longer words and numbers twice
is cut too, unless a title and a colon stand between.

What is left answers no question that asks openly (what, who, where ...) if it says nothing that the
question does not, in whatever order: nothing is read of it. Function words, filler and the frame by
which a text speaks of itself say nothing, and neither does a word of the question with its letters
swapped. A question that can be answered in its own words, by yes or no or by one of two that it
names, does not ask openly.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ecs_plugins.common.text import UNSPACED
from ecs_plugins.shaping.framing import Frame, frame_of

COPIED = 0.75
"""Share of the question's words from which on a run of them is a copy."""
STUFFED = 0.65
"""Share of the longer words, two at least, that are said over again in stuffing."""

_INTERROGATIVE_LIST = """
what which who whom whose when where why how
wer wen wem wessen wann wo wohin woher warum wieso weshalb wie welche welcher welches welchen
qué quién quiénes cuál cuáles cuándo dónde cómo cuánto cuántos cuántas
qui quoi quel quelle quels quelles quand où comment pourquoi combien
chi cosa quale quali dove perché quanto quanta quanti quante
"""
_INTERROGATIVES = frozenset(_INTERROGATIVE_LIST.split())
_WITHIN = frozenset("谁什哪怎何几")
"""Characters of Chinese interrogatives, which stand anywhere in a question."""
_TERM = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_ASKS = re.compile(r"[^\w\n]{0,9}?[?？؟]+")
_BREAK = re.compile(r"[?？؟\n]")
_SHORT = 3
"""Characters of words whose repetition means nothing: articles and prepositions."""


_ALTERNATIVES = frozenset(("or", "oder", "ou", "o", "u", "还"))
_CONDITIONS = frozenset(("if", "whether"))
_AUXILIARY_LIST = """
am are is was were be been do does did has have had can could may might must shall should will would
isn aren wasn weren don doesn didn hasn haven hadn can couldn won wouldn shouldn
"""
_AUXILIARIES = frozenset(_AUXILIARY_LIST.split())
"""What English questions begin with that are answered by yes or no."""
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_SWAPPED = 4
"""Letters from which on a word is known with its letters in another order."""
_OPENS = 3
"""Words of a question of which one is its interrogative, if that is not its last; in English it
may stand anywhere."""


class Word(NamedTuple):
    """A casefolded word with its first character and one past its last."""

    text: str
    start: int
    end: int


class _Words(NamedTuple):
    """What of a question tells a copy of it.

    Attributes:
        counts: How often it has each word.
        openings: Pairs of neighbours of which the first, or the last of all, is an interrogative.
        longer: Its words that mean something when they are said again.
        asks_openly: Whether it has no answer in its own words.
        frame: How texts of its language say nothing.
        letters: Of its words that can be swapped, sorted.
    """

    counts: Counter[str]
    openings: frozenset[tuple[str, str]]
    longer: tuple[str, ...]
    asks_openly: bool
    frame: Frame
    letters: frozenset[str]

    @classmethod
    def of(cls, query: str) -> _Words:
        words = [word.text for word in _words(query)]
        counts = Counter(words)
        frame = frame_of(words)
        openings: set[tuple[str, str]] = set()
        for pair in pairwise(words):
            if pair[0] in _INTERROGATIVES:
                openings.add(pair)
        for pair in pairwise(words[-2:]):
            if pair[1] in _INTERROGATIVES:
                openings.add(pair)
        longer: list[str] = []
        for word in counts:
            if word in _INTERROGATIVES:
                continue
            if len(word) > _SHORT or word.isdigit():
                longer.append(word)
        swappable = (_letters(word) for word in words if _can_be_swapped(word))
        return cls(
            counts,
            frozenset(openings),
            tuple(longer),
            asks_openly=_asks_openly(words, frame.language),
            frame=frame,
            letters=frozenset(swappable),
        )

    def nothing_else_in(self, text: str, *, repeats: bool) -> bool:
        """Whether a text repeats the question, and no word of it says what that does not.

        What repeats nothing flatters nobody: "We all did." is a reply.

        Args:
            text: What is left of a passage.
            repeats: Whether a copy of the question was cut from it.
        """
        unframed = self.frame.pattern.sub(" ", text)
        for word in _words(unframed):
            written = unframed[word.start : word.end]
            is_abbreviation = len(written) > 1 and written.isupper()
            is_empty = word.text in self.frame.empty_words and not is_abbreviation
            is_asked = self._asks_for(word.text)
            if not is_asked and not is_empty:
                return False
            repeats = repeats or (is_asked and word.text not in self.frame.empty_words)
        return repeats

    def _asks_for(self, word: str) -> bool:
        """Whether a word is of the question, perhaps with its letters swapped."""
        if word in self.counts:
            return True
        return _can_be_swapped(word) and _letters(word) in self.letters

    def asked_in(self, run: Sequence[Word]) -> bool:
        """Whether a run of these words opens a question as this one does."""
        return not self.openings.isdisjoint(pairwise(word.text for word in run))

    def nearly_all_in(self, run: Sequence[Word]) -> bool:
        """Whether a run holds so many of these words that it is a copy, if it asks."""
        return len({word.text for word in run}) >= COPIED * len(self.counts)

    def stuffed_into(self, run: Sequence[Word]) -> bool:
        """Whether a run says so many of the longer words again that it is stuffing."""
        counts = Counter(word.text for word in run)
        again = sum(counts[word] >= 2 * self.counts[word] for word in self.longer)
        return again >= max(2, STUFFED * len(self.longer))


def beyond_question(query: str, text: str) -> str:
    """The text without copies of the question; empty if no word is left.

    >>> beyond_question("Where is Rome?", "FAQ: Where is Rome? In Italy.")
    'FAQ: In Italy.'
    """
    question = _words_of(query)
    visible = _INVISIBLE.sub("", text)
    left = _without_copies(question, visible)
    is_cut = left != visible
    if question.asks_openly and question.nothing_else_in(left, repeats=is_cut):
        return ""
    # What hides nothing is read as it is: joiners belong to words of some scripts.
    return left if is_cut else text


def _without_copies(question: _Words, text: str) -> str:
    """The text without runs that copy the question; empty if no word is left."""
    kept: list[str] = []
    at = 0
    for run in _runs(question.counts, text):
        start = run[0].start
        end = run[-1].end
        marks = _ASKS.match(text, end)
        is_question = marks is not None or question.asked_in(run)
        is_copy = is_question and question.nearly_all_in(run)
        titled = ": " in text[start:end]
        is_stuffed = question.stuffed_into(run) and not titled
        if not is_copy and not is_stuffed:
            continue
        kept.append(text[at:start].strip())
        at = marks.end() if marks else end
    if not at:
        return text
    kept.append(text[at:].strip())
    left = " ".join(filter(None, kept))
    return left if _TERM.search(left) else ""


def _asks_openly(words: Sequence[str], language: str) -> bool:
    """Whether these are the words of a question that cannot be answered in its own words."""
    if not words or not _ALTERNATIVES.isdisjoint(words):
        return False
    if language == "en" and words[0] in _AUXILIARIES:
        return False
    places = (*words[:_OPENS], *words[-1:])
    if not _INTERROGATIVES.isdisjoint(places) or not _WITHIN.isdisjoint(words):
        return True
    if language != "en" or not _CONDITIONS.isdisjoint(words):
        return False
    return not _INTERROGATIVES.isdisjoint(words)


def _can_be_swapped(word: str) -> bool:
    return len(word) >= _SWAPPED and word.isalpha()


def _letters(word: str) -> str:
    return "".join(sorted(word))


@lru_cache(maxsize=64)
def _words_of(query: str) -> _Words:
    # Split once for all passages: a long question with many of them took minutes otherwise.
    return _Words.of(query)


def _words(text: str) -> Iterator[Word]:
    for term in _TERM.finditer(text):
        word = unicodedata.normalize("NFKC", term.group()).casefold()
        yield Word(word, term.start(), term.end())


def _runs(counts: Counter[str], text: str) -> Iterator[list[Word]]:
    """Runs of words of the question, at most one other word between two of them."""
    run: list[Word] = []
    others = 0
    for word in _words(text):
        if word.text not in counts:
            others += 1
            continue
        if run and (others > 1 or _BREAK.search(text, run[-1].end, word.start)):
            yield run
            run = []
        run.append(word)
        others = 0
    if run:
        yield run
