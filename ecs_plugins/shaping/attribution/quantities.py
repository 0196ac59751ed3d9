"""Numbers, units and dates of an English text, normalised so that two texts can be compared.

text2num reads number words and pint reads units. A number without a unit counts the nouns next to
it.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from typing import Any, Final

from ecs_plugins.shaping.attribution.wording import is_function_word, stem

DATE: Final = "date"
"""The unit of dates; their numbers are year, month and day, of which 0 is not given."""
_SHARE: Final = "dimensionless"
_MONTHS: Final = {
    name: number
    for names in (calendar.month_name, calendar.month_abbr)
    for number, name in enumerate(names)
    if name
}
_DATE: Final = re.compile(
    rf"""\b(?:(?P<first>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?)?
        (?P<month>{"|".join(_MONTHS)})\b\.?
        (?:\s(?:the\s)?(?P<last>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:))?
        (?:\s?,?\s(?P<year>\d{{4}})\b)?
      |\b(?P<iso>\d{{4}}-\d\d-\d\d)\b""",
    re.VERBOSE,
)
_TOKEN: Final = re.compile(r"\d+(?:[.,:/]\d+)*|[ap]\.m\.|[^\W\d_]+(?:['’][^\W\d_]+)?|[^\w\s]", re.I)
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_HYPHENS: Final = frozenset("-‐‑–—")
_FRACTIONS: Final = {"half": 1 / 2, "quarter": 1 / 4, "quarters": 1 / 4}
_MAGNITUDES: Final = {"k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9, "b": 1e9}
_BEFORE_PRONOUN: Final = frozenset(("no", "any", "every", "some", "each", "which", "this", "that"))
"""Words after which "one" is no number."""
_RATES: Final = {"once": 1.0, "twice": 2.0, "thrice": 3.0}
_CURRENCIES: Final = {"USD": "dollar", "EUR": "euro", "GBP": "sterling", "JPY": "yen"}
_SIGNS: Final = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen"}
_CLOSE: Final = 0.1
"""Relative difference up to which amounts in different units are not told apart."""
_YEARS: Final = range(1000, 2101)


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a text.

    Attributes:
        start: Its first character.
        end: One past its last.
        numbers: In the base unit: one number, or the two ends of a range.
        unit: The base unit, after the word that qualifies it; empty for a number without a unit.
        written: The numbers before conversion; empty if a plain number cannot say the same.
        nouns: Stems of the words that are counted or numbered.
        optional: True for "one", which is often no number.
    """

    start: int
    end: int
    numbers: tuple[float, ...]
    unit: str = ""
    written: tuple[float, ...] = ()
    nouns: frozenset[str] = frozenset()
    optional: bool = False

    def is_same(self, other: Value) -> bool:
        """Return True if the other value says this one."""
        if self.unit == other.unit == DATE:
            pairs = zip(self.numbers, other.numbers, strict=True)
            return all(mine in (0, theirs) for mine, theirs in pairs)
        if self.unit and other.unit:
            return self.unit == other.unit and self.numbers == other.numbers
        return bool(self.written) and self.written == other.written

    def differs_from(self, other: Value) -> bool:
        """Return True if both are values of one thing, and not the same; False if unknown."""
        if self.unit != other.unit or self.is_same(other) or other.is_same(self):
            return False
        if self.unit == DATE:
            pairs = zip(self.numbers, other.numbers, strict=True)
            return any(mine and theirs and mine != theirs for mine, theirs in pairs)
        counted = self.nouns | other.nouns
        if counted:
            return bool(self.nouns & other.nouns)
        return not (_overlap(self, other) or _may_be_equal(self, other))


def _overlap(one: Value, other: Value) -> bool:
    """Return True if a range has a part in common with a number or another range."""
    if len(one.numbers) == len(other.numbers) == 1:
        return False
    first = max(min(one.numbers), min(other.numbers))
    last = min(max(one.numbers), max(other.numbers))
    return first <= last


def _may_be_equal(one: Value, other: Value) -> bool:
    """Return True for amounts in different units that nearly agree: a month and 30 days."""
    if not one.written or not other.written:
        return False
    first, second = one.numbers[0], other.numbers[0]
    mine, theirs = first * other.written[0], second * one.written[0]
    is_one_unit = abs(mine - theirs) <= 1e-6 * abs(mine)
    return abs(first - second) <= _CLOSE * abs(first) and not is_one_unit


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, a sign or a number, in the form that text2num takes."""

    word: str
    start: int
    end: int
    number: float | None = None
    is_ordinal: bool = False
    is_spelt: bool = False
    is_part: bool = False

    def text(self) -> str:
        return self.word.encode(errors="replace").decode()

    def nt_separated(self, previous: Any) -> bool:
        del previous
        return False

    def not_a_number_part(self) -> bool:
        return False


def values_of(text: str) -> list[Value]:
    """Return the values of a text, in order."""
    plain = text.replace("per cent", "percent ")
    dates = list(_dates_in(plain))
    masked = plain
    for date in dates:
        blank = "\n" * (date.end - date.start)
        masked = masked[: date.start] + blank + masked[date.end :]
    values = [*dates, *_Reader(masked).values()]
    return sorted(values, key=lambda value: value.start)


def _dates_in(text: str) -> Iterator[Value]:
    """Yield dates with a month; a month that begins the text needs a day or a year."""
    for match in _DATE.finditer(text):
        start, end = match.span()
        if match["iso"]:
            year, month, day = map(float, match["iso"].split("-"))
        else:
            month = _MONTHS[match["month"]]
            day = float(match["first"] or match["last"] or 0)
            year = float(match["year"] or 0)
        if start or day or year:
            yield Value(start, end, (year, month, day), DATE)


def _tokens_of(text: str) -> list[_Token]:
    """Return words, signs and numbers; a number of several words is one token."""
    from text_to_num import find_numbers

    split = [_Token(match.group(), *match.span()) for match in _TOKEN.finditer(text)]
    spelt = {each.start: each for each in find_numbers(split, "en", 0)}
    tokens: list[_Token] = []
    place = 0
    while place < len(split):
        token = split[place]
        before = tokens[-1] if tokens else _Token("", 0, 0)
        found = spelt.get(place)
        if found and _is_number(token, before):
            token = replace(
                token,
                end=split[found.end - 1].end,
                number=found.value,
                is_ordinal=found.is_ordinal,
                is_spelt=True,
            )
            place = found.end
        else:
            token = _with_number(token)
            place += 1
        if before.word in _HYPHENS and len(tokens) > 1 and _is_part_of(token, tokens[-2]):
            tokens.pop()
            before = tokens[-1]
        joined = _joined(before, token)
        if joined is None:
            tokens.append(token)
        else:
            tokens[-1:] = [joined]
    return tokens


def _is_number(token: _Token, before: _Token) -> bool:
    """Return False for "no one", and for "second" as a unit of time."""
    word = token.word.lower()
    if word == "one":
        return before.word.lower() not in _BEFORE_PRONOUN
    return word != "second" or before.number is None


def _with_number(token: _Token) -> _Token:
    """Return a token with the number that its digits are; codes such as 1.2.3 have none."""
    word = token.word.lower()
    if word in _FRACTIONS:
        return replace(token, number=_FRACTIONS[word], is_spelt=True, is_part=True)
    if word in _RATES:
        return replace(token, number=_RATES[word], is_spelt=True)
    if word == "dozen":
        return replace(token, number=12.0, is_spelt=True)
    if _THOUSANDS.fullmatch(word):
        word = word.replace(",", "")
    is_decimal = word.isascii() and word.replace(".", "", 1).isdigit()
    return replace(token, number=float(word)) if is_decimal else token


def _is_part_of(token: _Token, before: _Token) -> bool:
    """Return True for the "thirds" of "two thirds"."""
    is_third = token.is_ordinal and (token.number or 0) > 2
    return before.is_spelt and not before.is_ordinal and is_third


def _joined(before: _Token, token: _Token) -> _Token | None:
    """Return "1.5 million", "two thirds", "two dozen" or "7th" as one token; None for two."""
    if before.number is None or before.is_ordinal:
        return None
    if token.start == before.end and token.word in ("st", "nd", "rd", "th"):
        return replace(before, end=token.end, is_ordinal=True)
    if token.number is None or not token.is_spelt:
        return None
    if _is_part_of(token, before):
        amount = before.number / token.number
        return replace(before, end=token.end, number=amount, is_part=True)
    if token.is_part or (token.number >= 12 and not token.is_ordinal and not before.is_part):
        amount = before.number * token.number
        return replace(before, end=token.end, number=amount, is_part=token.is_part)
    return None


class _Reader:
    """Reads the values of one text without its dates."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens_of(text)

    def values(self) -> Iterator[Value]:
        """Yield the values."""
        end = 0
        for place, token in enumerate(self._tokens):
            if token.start >= end:
                value = self._value(place, token)
                if value is not None:
                    yield value
                    end = value.end

    def _value(self, place: int, token: _Token) -> Value | None:
        if token.number is None:
            if token.word[0].isdecimal():
                return self._code(place, token)
            return self._duration(place)
        if token.is_ordinal:
            is_part = self._word(place - 1) == "a" and self._word(place + 1) == "of"
            if is_part and token.number > 2:
                return self._made(place, place, (1 / token.number,), _SHARE)
            nouns = self._nouns_after(place + 1)
            return self._made(place, place, (token.number,), "ordinal", nouns=nouns)
        return self._measured(place, token)

    def _written(self, place: int) -> str:
        """Return the token at a place as it is written; empty outside of the text."""
        return self._tokens[place].word if 0 <= place < len(self._tokens) else ""

    def _word(self, place: int) -> str:
        return self._written(place).lower()

    def _is_joined(self, place: int) -> bool:
        """Return True if a token follows the one before without a space."""
        token, before = self._tokens[place : place + 1], self._tokens[place - 1]
        return any(each.start == before.end for each in token)

    def _made(
        self,
        first: int,
        last: int,
        numbers: tuple[float, ...],
        unit: str = "",
        **fields: Any,
    ) -> Value:
        """Return a value from the first token to the last, with nine digits of its numbers."""
        start, end = self._tokens[first].start, self._tokens[last].end
        rounded = tuple(float(f"{number:.9g}") for number in numbers)
        return Value(start, end, rounded, unit, **fields)

    def _code(self, place: int, token: _Token) -> Value:
        """Return the value of a time of day (9:30), a version, or a date (12/05/2020)."""
        digits = re.findall(r"\d+", token.word)
        half = self._half(place + 1)
        return self._made(place, place, tuple(map(float, digits)), f"code {half}")

    def _half(self, place: int) -> str:
        """Return "am" or "pm" if it is written at a place."""
        half = self._word(place).replace(".", "")
        return half if half in ("am", "pm") else ""

    def _duration(self, place: int) -> Value | None:
        """Read "a week", but not in "twice a week" and "9 EUR a week"."""
        before, word = self._written(place - 1), self._written(place + 1)
        if self._word(place) not in ("a", "an") or not _is_noun(word):
            return None
        factor, unit = _unit_of(word)
        is_rate = before in _RATES or before == "times" or before[:1].isdigit() or _is_unit(before)
        if unit != "second" or is_rate:
            return None
        return self._made(place, place + 1, (factor,), unit, written=(1.0,))

    def _measured(self, place: int, token: _Token) -> Value:
        """Read a number or a range with its unit, its currency or what it counts."""
        written, last = self._ends(place)
        currency = _SIGNS.get(self._written(place - 1), "")
        if currency:
            return self._made(place, last, written, currency, written=written)
        if self._is_joined(last + 1) and self._word(last + 1) == "s":
            return self._made(place, last + 1, written, "decade")
        factor, unit, end = self._unit_after(last + 1, token)
        if unit:
            numbers = tuple(factor * each for each in written)
            return self._made(place, end, numbers, unit, written=written)
        if token.is_part:
            return self._made(place, last, written, _SHARE, written=written)
        is_rate = token.word.lower() in _RATES
        nouns = frozenset([stem("times")]) if is_rate else self._nouns_after(last + 1)
        if self._is_year(place, token, nouns):
            return self._made(place, last, (*written, 0, 0), DATE, written=written)
        return self._made(
            place,
            last,
            written,
            written=written,
            nouns=nouns or self._noun_at(place - 1),
            optional=token.is_spelt and written == (1.0,),
        )

    def _ends(self, place: int) -> tuple[tuple[float, ...], int]:
        """Return a number or the two ends of its range, and its last token."""
        number, last = self._magnified(place)
        link, before = self._word(last + 1), self._word(place - 1)
        is_range = link in ("to", *_HYPHENS) or (link == "and" and before == "between")
        follower = self._tokens[last + 2 : last + 3] if is_range else []
        if not follower or follower[0].number is None or follower[0].is_ordinal:
            return (number,), last
        upper, end = self._magnified(last + 2)
        if number >= upper or upper in _YEARS:
            return (number,), last
        if last == place:  # 2 to 3k
            number *= upper / follower[0].number
        return (number, upper), end

    def _magnified(self, place: int) -> tuple[float, int]:
        """Return a number times its suffix letter ($1.5M, 20k), and the index of its last token."""
        token = self._tokens[place]
        number = token.number or 0.0
        letter = self._word(place + 1)
        if letter not in _MAGNITUDES or not self._is_joined(place + 1):
            return number, place
        if letter == "k" or self._written(place - 1) in _SIGNS:
            return number * _MAGNITUDES[letter], place + 1
        return number, place

    def _unit_after(self, place: int, token: _Token) -> tuple[float, str, int]:
        """Return the factor to the base unit, that unit with its qualifier, and the last token."""
        words = ("of", "a", "an") if token.is_part else _HYPHENS
        while self._word(place) in words:
            place += 1
        word, after = self._written(place), self._written(place + 1)
        half = self._half(place)
        if half:
            return 1.0, half, place
        if word == "°" and after:
            return 1.0, f"{word}{after}", place + 1
        if word in ("square", "cubic"):
            return *_unit_of(f"{word} {after}"), place + 1
        if word == "%" or (_is_noun(word) and _is_unit(word)):
            return *_unit_of(word), place
        if _is_noun(word) and _is_noun(after) and _is_unit(after):
            factor, unit = _unit_of(after)
            return factor, f"{stem(word)} {unit}", place + 1
        return 0.0, "", place

    def _is_year(self, place: int, token: _Token, nouns: frozenset[str]) -> bool:
        is_plain = len(token.word) == 4 and token.word.isdigit()
        is_counted = nouns and self._noun_at(place - 1)
        return is_plain and token.number in _YEARS and not is_counted

    def _nouns_after(self, place: int) -> frozenset[str]:
        if self._word(place) in _HYPHENS:
            place += 1
        following = [self._word(place), self._word(place + 1)]
        return frozenset(map(stem, takewhile(_is_noun, following)))

    def _noun_at(self, place: int) -> frozenset[str]:
        word = self._word(place)
        return frozenset([stem(word)] if _is_noun(word) else ())


def _is_noun(word: str) -> bool:
    """Return True for a word that is no function word."""
    return word[:1].isalpha() and not is_function_word(word)


@cache
def _registry() -> Any:
    import pint

    registry: Any = pint.UnitRegistry()
    for code, name in _CURRENCIES.items():
        registry.define(f"{name} = [{name}] = {code}")
    return registry


def _is_unit(word: str) -> bool:
    _, unit = _unit_of(word)
    return bool(unit)


@cache
def _unit_of(word: str) -> tuple[float, str]:
    """Return the factor and the base unit of a unit that pint knows; empty for any other word."""
    import pint

    is_word = word.replace(" ", "").isalpha()
    is_capital = len(word) == 1 and word.isupper()
    if is_capital or not (is_word or word == "%"):
        return 0.0, ""
    try:
        units = _registry().parse_units(word)
        base = _registry().Quantity(1.0, units).to_root_units()
    except (pint.PintError, AttributeError, ValueError, TypeError):
        return 0.0, ""
    return float(base.magnitude), str(base.units)
