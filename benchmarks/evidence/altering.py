"""Statements in other words, and with one number, name or negation changed, by rule.

The rules know English. What they cannot change gives None.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

NUMBER = re.compile(r"(?<![\w.,-])(?:\d{1,3}(?:,\d{3})+|\d+)(?![\w-])")
"""A whole number, with commas or without."""
NAME = re.compile(r"[A-Z][\w'’-]+(?:(?: of| de| the| von| van)?(?: [A-Z][\w'’.-]*\w))*")
"""Capitalised words in a row."""


def _words(text: str) -> list[str]:
    return text.split()


_MONTHS = _words(
    "January February March April May June July August September October November December"
)
_DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_OPENERS = _words(
    "the a an it he she they we you i in on at of for from by to with this that these those there "
    "his her its their our my as and but or who what when where which why how after before during "
    "while since although because if many most some such both all one two however"
)
_AUXILIARY = re.compile(
    r"\b(is|was|are|were|has|had|have|did|does|do|can|could|will|would|may|must|should)\b"
)
_PAST = re.compile(r"(?<=[a-z’'.\w] )([a-z]{2,}ed|became|began|won|wrote|made|took|held|led)\b")
_DENIED = re.compile(r"\b(not|never)\b ?")
_SPELT = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)
_DATE = re.compile(rf"\b({'|'.join(_MONTHS)}) (\d{{1,2}}),? (\d{{4}})\b")
_DATE_OF_DAY_FIRST = re.compile(rf"\b(\d{{1,2}}) ({'|'.join(_MONTHS)}),? (\d{{4}})\b")
_BEGINS = re.compile(r"(?:^|[.!?:\"“]\s*)\Z")
_BRACKETS = re.compile(r"\s*\([^()]*\)")
FRAMES = (
    "{}",
    "{}",
    "According to the sources, {}",
    "It appears that {}",
    "As far as is known, {}",
    "The passages say that {}",
)
"""What a statement in other words may be introduced by."""
OTHER_WORDS: dict[str, str] = {
    "about": "roughly",
    "also": "as well",
    "approximately": "about",
    "area": "region",
    "began": "started",
    "begin": "start",
    "big": "large",
    "built": "constructed",
    "called": "named",
    "city": "town",
    "constructed": "built",
    "created": "made",
    "died": "passed away",
    "during": "in the course of",
    "ended": "finished",
    "film": "movie",
    "films": "movies",
    "first": "earliest",
    "found": "discovered",
    "founded": "established",
    "got": "received",
    "group": "band",
    "had": "possessed",
    "home": "house",
    "important": "significant",
    "in order to": "to",
    "job": "work",
    "killed": "slain",
    "known": "recognised",
    "large": "big",
    "largest": "biggest",
    "lived": "resided",
    "located": "situated",
    "made": "created",
    "main": "chief",
    "many": "a lot of",
    "married": "wed",
    "movie": "film",
    "near": "close to",
    "new": "recent",
    "number": "count",
    "often": "frequently",
    "people": "persons",
    "picture": "image",
    "played": "took on",
    "produced": "made",
    "published": "brought out",
    "released": "issued",
    "said": "stated",
    "small": "little",
    "song": "track",
    "started": "began",
    "used": "employed",
    "won": "took",
    "wrote": "penned",
    "written": "penned",
    "years": "yrs",
}
"""What a word is replaced by in a statement in other words."""
_REPLACED = re.compile(rf"\b({'|'.join(OTHER_WORDS)})\b")


def reworded(text: str) -> str:
    """The same in other words: synonyms, dates the other way round, small numbers spelt out."""
    changed = _BRACKETS.sub("", text)
    changed = _DATE.sub(r"\2 \1 \3", changed)
    if changed == text:
        changed = _DATE_OF_DAY_FIRST.sub(r"\2 \1, \3", changed)
    changed = _REPLACED.sub(lambda match: OTHER_WORDS[match[1]], changed)
    return NUMBER.sub(_spelt, changed)


def framed(text: str, frame: str) -> str:
    """A statement behind one of `FRAMES`."""
    clause = text if frame.startswith("{}") else _as_clause(text)
    return frame.replace("{}", clause)


def with_other_number(text: str, draw: random.Random) -> str | None:
    """One number is another one of as many digits."""
    matches = list(NUMBER.finditer(text))
    if not matches:
        return None
    match = draw.choice(matches)
    return _put(text, match.span(), _other_number(match.group(), draw))


def with_other_name(text: str, names: Sequence[str], draw: random.Random) -> str | None:
    """One name is another one, of those given, that shares no word with the text."""
    spans = names_in(text)
    words = set(text.lower().split())
    others = [name for name in names if words.isdisjoint(name.lower().split())]
    if not spans or not others:
        return None
    return _put(text, draw.choice(spans), draw.choice(others))


def negated(text: str) -> str | None:
    """The opposite: a negation is put behind the first verb that takes one, or taken out."""
    if _DENIED.search(text):
        return _DENIED.sub("", text, count=1)
    match = _AUXILIARY.search(text)
    if match:
        return f"{text[: match.end()]} not{text[match.end() :]}"
    match = _PAST.search(text)
    if match:
        return f"{text[: match.start()]}never {text[match.start() :]}"
    return None


def names_in(text: str) -> list[tuple[int, int]]:
    """Where capitalised words stand that are neither dates nor the first word of a sentence."""
    spans: list[tuple[int, int]] = []
    for match in NAME.finditer(text):
        words = match.group().split()
        first, last = match.span()
        if words[0].lower() in _OPENERS:
            first += len(words[0]) + 1
            words = words[1:]
        is_date = any(word in _MONTHS or word in _DAYS for word in words)
        begins = _BEGINS.search(text, 0, match.start()) is not None
        is_alone = begins and len(words) == 1 and first == match.start()
        if words and not is_date and not is_alone and first < last:
            spans.append((first, last))
    return spans


def answer_kind(answer: str) -> str:
    """What an answer is by its look: ``date``, ``number``, ``name`` or ``phrase``."""
    if any(month in answer for month in _MONTHS) or re.fullmatch(r"\W*[12]\d{3}s?\W*", answer):
        return "date"
    if re.search(r"\d", answer) or answer.lower().split()[0] in _SPELT:
        return "number"
    capitals = [word for word in answer.split() if word[:1].isupper()]
    return "name" if len(capitals) * 2 >= len(answer.split()) else "phrase"


def _put(text: str, span: tuple[int, int], other: str) -> str:
    start, end = span
    return f"{text[:start]}{other}{text[end:]}"


def _other_number(digits: str, draw: random.Random) -> str:
    number = int(digits.replace(",", ""))
    if 1000 <= number <= 2100 and "," not in digits:  # a year
        away = draw.choice((-30, -12, -7, -3, -2, -1, 1, 2, 3, 7, 12, 30))
        return str(number + away)
    low = 10 ** (len(str(number)) - 1)
    other = number
    while other == number:
        other = draw.randrange(low, 10 * low) if number > 9 else draw.randrange(2, 13)
    return f"{other:,}" if "," in digits else str(other)


def _spelt(match: re.Match[str]) -> str:
    digits = match.group()
    small = digits.isdigit() and int(digits) < len(_SPELT)
    before = match.string[: match.start()].split()[-1:]
    behind = match.string[match.end() :].split()[:1]
    of_date = any(word.strip(",") in _MONTHS for word in (*before, *behind))
    return _SPELT[int(digits)] if small and not of_date else digits


def _as_clause(text: str) -> str:
    """Without a capital where its first word has one only because it is the first."""
    first, _, rest = text.partition(" ")
    return f"{first.lower()} {rest}" if first.lower() in _OPENERS else text
