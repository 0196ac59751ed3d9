"""How much a text has to tell: the prior of its utility, before anybody asked for it.

In a chat most turns carry little: greetings, applause, questions back. Few turns have been asked
for by the time when they must be judged, and earlier questions hardly show which ones will be;
how much a text says can be seen at once. The measure is crude and costs nothing: the log of the
number of distinct words, in nats, to be added to the log of the rate of demand.
"""

from __future__ import annotations

import math
import re

from ecs_plugins.ranking.lexical import UNSPACED

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_PLAIN_WORD = re.compile(r"\w+")  # the same for a text without such scripts, in half the time


def information(text: str) -> float:
    """``ln(1 + distinct words)``, in nats; 0 for a text without words."""
    return math.log1p(distinct_words(text))


def distinct_words(text: str) -> int:
    """How many different words a text has, whatever their case.

    In a script that is written without spaces every character counts as one.
    """
    pattern = _PLAIN_WORD if text.isascii() else _WORD
    return len(set(pattern.findall(text.casefold())))
