"""What a passage says beyond the question: a copy of the question answers nothing.

Rankers and likelihoods alike put a passage first that repeats the question, and whoever writes
passages can use that: as a heading, before a false claim, behind a long preamble. So copies of the
question are cut from what is read for ranking and scoring. What is kept is the passage as it is.

A copy is a run of words of the question, another word between two of them allowed, that holds
`COPIED` of them and asks: it ends in a question mark, or has an interrogative of the question and
what follows it there. A sentence that states the same, such as the answer to "Did Anna move?",
does not ask and stays. A run that says `STUFFED` of the question's longer words and numbers twice
is cut too, unless a title and a colon stand between.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from ecs_plugins.common.text import UNSPACED

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
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
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
    return left if _WORD.search(left) else ""


def _words(text: str) -> Iterator[Word]:
    for found in _WORD.finditer(text):
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
