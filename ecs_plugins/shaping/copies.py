"""Copies of the question within a passage, which are not read.

Rankers and likelihoods put a passage first that repeats the question, and an author of passages can
use that. So copies of the question are left out of the text that is ranked and scored. The passage
that is kept stays as it is.

One rule, without word lists, looks at the rest of a passage once the question's words are taken
out. A run of the question's words is a copy if it ends in a question mark, if it repeats the whole
question in order with nothing else inside, or if it says most of the question twice between two
punctuation marks. (A title that the first sentence repeats has one between.) A passage without any
other word is not read at all. Two kinds of true answers have no other word and are read: "Anna did
move." moves the first word of the question, and "The inn is older." lacks one of two alternatives.

A short query without a question mark is a search for words: only marked copies of it are cut.

Not noticed are swapped letters and the question's words in a sentence with other words.
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

COPIED = 0.75
"""Share of the question's distinct words that a copy before a question mark holds."""
STUFFED = 0.65
"""Share of the question's longer words, at least two, that a passage says twice to be stuffing."""
LONG_SEARCH = 5
"""Words of a query that is taken for a question even without a question mark."""
LONGER = 4
"""Characters of words whose repetition means something; numbers always do."""

_TERM = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_QUESTION_MARKS = "?？؟"
_MARK = re.compile(r"[^\w\n]{0,9}?[?？؟]+")
_BREAK = re.compile(r"[?？؟\n]")
_CLAUSE = re.compile(r"\s[-/>]\s|[^\w\s,،、'’/>-]")
"""Punctuation, but no comma between keywords and nothing within a word."""
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")


class Word(NamedTuple):
    """A casefolded word, its first character, one past its last, and its number in the text."""

    text: str
    start: int
    end: int
    number: int


class _Asked(NamedTuple):
    """The words of a question in order, how often it has each, and its longer ones.

    ``asks`` is False for a search for words.
    """

    words: tuple[str, ...]
    counts: Counter[str]
    longer: frozenset[str]
    asks: bool

    def first_of_copy(
        self, run: Sequence[Word], clauses: Sequence[int], *, has_mark: bool
    ) -> int | None:
        """Return the place in a run of these words where a copy begins; None without one.

        ``clauses`` are the places in the run where clauses begin.
        """
        said = Counter(word.text for word in run)
        if has_mark and len(said) >= COPIED * len(self.counts):
            return 0
        size = len(self.words)
        for start in range(len(run) - size + 1):
            part = run[start : start + size]
            is_unbroken = part[-1].number - part[0].number == size - 1
            if self.asks and is_unbroken and tuple(word.text for word in part) == self.words:
                return start
        parts = zip(clauses, [*clauses[1:], len(run)], strict=True)
        return next((start for start, end in parts if self._stuffs(run[start:end])), None)

    def _stuffs(self, clause: Sequence[Word]) -> bool:
        said = Counter(word.text for word in clause)
        twice = sum(said[word] >= 2 * self.counts[word] for word in self.longer)
        return twice >= max(2, STUFFED * len(self.longer))

    def says_all_of(self, words: Sequence[str]) -> bool:
        """Return True if a text of these words says nothing that the question does not."""
        said = set(words)
        if not self.asks or not said <= self.counts.keys():
            return False
        is_moved = self.words[0] in words[1:] and len(said) == len(words)
        longer = self.longer or self.counts.keys()
        return not is_moved and len(longer & said) >= COPIED * len(longer)


def beyond_question(query: str, text: str) -> str:
    """Return the text without copies of the question; empty if it says nothing else.

    >>> beyond_question("Where is Rome?", "FAQ: Where is Rome? In Italy.")
    'FAQ: In Italy.'
    """
    asked = _asked(query)
    visible = _INVISIBLE.sub("", text)
    parts: list[str] = []
    end = 0
    for run in _runs(asked.counts, visible):
        mark = _MARK.match(visible, run[-1].end)
        first = asked.first_of_copy(run, _clauses(run, visible), has_mark=mark is not None)
        if first is not None:
            parts.append(visible[end : run[first].start].strip())
            end = mark.end() if mark else run[-1].end
    parts.append(visible[end:].strip())
    left = " ".join(filter(None, parts)) if end else visible
    words = [word.text for word in _words(left)]
    if words and asked.says_all_of(words):
        return ""
    if not end:  # invisible joiners belong to words of some scripts
        return text
    return left if words else ""


@lru_cache(maxsize=64)
def _asked(query: str) -> _Asked:
    # Once for all passages: a long question with many of them took minutes otherwise.
    words = tuple(word.text for word in _words(query))
    longer = (word for word in words if len(word) >= LONGER or word.isdigit())
    asks = any(mark in query for mark in _QUESTION_MARKS) or len(words) >= LONG_SEARCH
    return _Asked(words, Counter(words), frozenset(longer), asks)


def _words(text: str) -> Iterator[Word]:
    for number, term in enumerate(_TERM.finditer(text)):
        word = unicodedata.normalize("NFKC", term.group()).casefold()
        yield Word(word, term.start(), term.end(), number)


def _clauses(run: Sequence[Word], text: str) -> list[int]:
    """Return the places in a run where clauses begin."""
    pairs = enumerate(pairwise(run), start=1)
    return [0, *(place for place, (a, b) in pairs if _CLAUSE.search(text, a.end, b.start))]


def _runs(counts: Counter[str], text: str) -> Iterator[list[Word]]:
    """Yield runs of the question's words, with at most one other word between two of them."""
    run: list[Word] = []
    for word in _words(text):
        if word.text not in counts:
            continue
        if run:
            is_far = word.number - run[-1].number > 2
            if is_far or _BREAK.search(text, run[-1].end, word.start):
                yield run
                run = []
        run.append(word)
    if run:
        yield run
