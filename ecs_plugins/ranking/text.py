"""How text becomes terms for the lexical rankers.

Words are runs of letters and digits after NFKC normalisation and case folding. Scripts that
are written without spaces have no such words, so a run of them becomes its character bigrams
(the practice of Lucene's CJK analyser). There is no stop-word list and no stemming: both are
tied to one language, and inverse document frequency already discounts what is everywhere.
"""

from __future__ import annotations

import re
import unicodedata

# Thai and Lao, Khmer, Hiragana and Katakana, CJK ideographs with extensions.
UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
UNSPACED += "\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+(?:['’][^\W{UNSPACED}]+)?")
_IS_UNSPACED = re.compile(rf"[{UNSPACED}]")


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
