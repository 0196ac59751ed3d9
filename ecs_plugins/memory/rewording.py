"""A wording, the signs by which it is looked for, and the plain form that takes its place."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class EverydayWording(NamedTuple):
    """An everyday wording and its plain form.

    Attributes:
        signs: Words one of which a sentence has that is worded so; the others are not looked at.
        pattern: The wording.
        plain: What takes its place.
    """

    signs: frozenset[str]
    pattern: re.Pattern[str]
    plain: str


def worded(signs: str, pattern: str, plain: str) -> EverydayWording:
    """A wording, with its signs as the words of a text or the alternatives of a pattern."""
    return EverydayWording(frozenset(re.findall(r"\w+", signs)), re.compile(pattern), plain)


class SignIndex:
    """Which of several wordings a text may be worded in, by the signs that are among its words."""

    def __init__(self, signs: Iterable[frozenset[str]]) -> None:
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, words in enumerate(signs):
            for word in words:
                self._places[word].append(place)

    def places(self, text: str) -> list[int]:
        """The places of those wordings, in order."""
        met: set[int] = set()
        for word in text.split():
            if word in self._places:
                met.update(self._places[word])
        return sorted(met)


class Rewordings:
    """Wordings in the order in which they are brought to their plain form."""

    def __init__(self, wordings: Sequence[EverydayWording]) -> None:
        self.wordings = wordings
        self._index = SignIndex(wording.signs for wording in wordings)

    def applied(self, text: str) -> str:
        """A text in its plain form.

        Args:
            text: Words in small letters, each with a space before and behind it.
        """
        waiting = self._index.places(text)
        while waiting:
            place = waiting.pop(0)
            wording = self.wordings[place]
            plain = wording.pattern.sub(wording.plain, text)
            if plain != text:
                text = plain
                waiting = [later for later in self._index.places(text) if later > place]
        return text
