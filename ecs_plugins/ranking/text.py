"""How text becomes terms and sentences, and which of its words a near copy must not change.

"The meeting is on the 14th in Rome" and "... on the 15th in Oslo" are all but equal for a cosine,
and the difference is what matters: `names_and_numbers` finds it, where near copies are thrown away
(redundant passages) or become one memory.

Terms are runs of letters and digits after NFKC normalisation and case folding. Scripts that
are written without spaces have no such words, so a run of them becomes its character bigrams
(the practice of Lucene's CJK analyser). There is no stop-word list and no stemming: both are
tied to one language, and inverse document frequency already discounts what is everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# Thai and Lao, Khmer, Hiragana and Katakana, CJK ideographs with extensions.
UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
UNSPACED += "\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+(?:['’][^\W{UNSPACED}]+)?")
_IS_UNSPACED = re.compile(rf"[{UNSPACED}]")
WORD = re.compile(r"\w+")

_ABBREVIATION_LIST = """
mr mrs ms dr prof st sr jr vs etc eg ie e.g i.e cf al fig figs eq nos vol pp ed eds approx est
dept univ inc ltd co corp gen col sgt capt lt rev hon gov sen rep pres mt ft jan feb mar apr jun
jul aug sep sept oct nov dec u.s u.k u.n a.m p.m ph.d z.b d.h bzw nr ca usw mme mlle p.ej sra dra
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
_END = re.compile(
    r"""\n+                                         # a turn or a line
      | [.!?…]+ ["')\]»”’]* (?P<space>[^\S\n]+)     # a sentence, with what closes it
      | [。！？｡]+ [」』”’）)]* [^\S\n]*              # the same where no space follows
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"([^\W\d_](?:[\w.]*[\w])?)$")


def terms(text: str) -> list[str]:
    """The terms of a text, in order.

    >>> terms("Anna's train, 9:30")
    ["anna's", 'train', '9', '30']
    >>> terms("東京都へ")
    ['東京', '京都', '都へ']
    """
    out: list[str] = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
        if len(run) > 1 and _IS_UNSPACED.match(run):
            out.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            out.append(run)
    return out


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
    word = _LAST_WORD.search(text, max(0, match.start() - 24), match.start())
    if word is None:
        return True
    before = word.group(1)
    # A single capital is an initial ("J. Smith"), but "I" and "A" also end sentences.
    initial = len(before) == 1 and before.isupper() and before != "I"
    return not initial and before.lower() not in _ABBREVIATIONS


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
