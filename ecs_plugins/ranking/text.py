"""Where the sentences of a text end, and which of its words a near copy must not change.

"The meeting is on the 14th in Rome" and "... on the 15th in Oslo" are all but equal for a cosine,
and the difference is what matters: `names_and_numbers` finds it, where near copies are thrown away
(redundant passages) or become one memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WORD = re.compile(r"\w+")

_ABBREVIATION_LIST = """
mr mrs ms dr prof st sr jr vs etc eg ie e.g i.e cf al fig figs eq nos vol pp ed eds approx est
dept univ inc ltd co corp gen col sgt capt lt rev hon gov sen rep pres mt ft jan feb mar apr jun
jul aug sep sept oct nov dec u.s u.k u.n a.m p.m ph.d z.b d.h bzw nr ca usw mme mlle p.ej sra dra
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
_END = re.compile(
    r"""\n+                                         # a turn or a line
      | (?<![.!?…]) [.!?…]++ ["')\]»”’]*+ (?P<space>[^\S\n]+)  # a sentence, with what closes it
      | [。！？｡]+ [」』”’）)]* [^\S\n]*              # the same where no space follows
    """,
    re.VERBOSE,
)
_LETTER = re.compile(r"[^\W\d_]")
_WORD_BACKWARDS = re.compile(r"[\w.]*")
_LONGEST_WORD = 24  # characters before a full stop that are looked at


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Character spans of sentences and lines; they partition the text.

    A full stop ends no sentence after an abbreviation or a single initial, nor where a lower-case
    word follows. White space belongs to the sentence before it.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if match["space"] and not _ends_sentence(text, match):
            continue
        if text[start : match.end()].strip() or not spans:
            spans.append((start, match.end()))
        else:
            spans[-1] = (spans[-1][0], match.end())
        start = match.end()
    if start < len(text):
        if text[start:].strip() or not spans:
            spans.append((start, len(text)))
        else:
            spans[-1] = (spans[-1][0], len(text))
    return spans


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    following = text[match.end() : match.end() + 1]
    if following.islower():
        return False
    mark = match.group().rstrip()
    if mark != ".":
        return True
    before = _last_word(text[max(0, match.start() - _LONGEST_WORD) : match.start()])
    if not before:
        return True
    # A single capital is an initial ("J. Smith"), but "I" and "A" also end sentences.
    initial = len(before) == 1 and before.isupper() and before != "I"
    return not initial and before.lower() not in _ABBREVIATIONS


def _last_word(text: str) -> str:
    """The word that a text ends with, from its first letter on; blank if it ends with none."""
    backwards = _WORD_BACKWARDS.match(text[::-1])
    run = backwards.group()[::-1] if backwards else ""
    letter = _LETTER.search(run)
    return run[letter.start() :] if letter else ""


def names_and_numbers(text: str) -> list[str]:
    """Numbers, words with a capital, and words of a script that has no lower case, casefolded.

    They stand in the order of the text. Any other word is left out.

    >>> names_and_numbers("Ada met Bob on May 4")
    ['ada', 'bob', 'may', '4']
    """
    return stating(WORD.findall(text))


def stating(words: Iterable[str]) -> list[str]:
    """`names_and_numbers` of a text whose words are these."""
    return [word.casefold() for word in words if not word.islower()]
