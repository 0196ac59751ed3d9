"""Which words of a text make it state something that a near copy of it does not.

"The meeting is on the 14th in Rome" and "... on the 15th in Oslo" are all but equal for a cosine,
and the difference is what matters. Where near copies are thrown away (redundant passages) or
become one memory, what decides is therefore not the cosine alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WORD = re.compile(r"\w+")


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
