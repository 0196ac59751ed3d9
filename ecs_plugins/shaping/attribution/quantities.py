"""Numbers, units and dates of an English text, normalised so that two texts can be compared.

Number words are read by text2num and units by pint. A value without a unit that pint knows counts
the nouns next to it.
"""

from __future__ import annotations

import calendar
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import takewhile
from typing import Any, Final

from ecs_plugins.shaping.attribution.wording import is_function_word, stem

_TOKEN: Final = re.compile(
    r"""\d{4}-\d{2}-\d{2}(?!\d)             # a date
      |\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)   # thousands
      |\d+(?:[.,:/]\d+)*                    # any other number
      |[^\W\d_]+(?:['’][^\W\d_]+)?          # a word
      |[^\w\s]""",
    re.VERBOSE,
)
_MONTHS: Final = {
    name.lower(): number
    for names in (calendar.month_name, calendar.month_abbr)
    for number, name in enumerate(names)
    if name
}
_HYPHENS: Final = frozenset("-‐‑–—")
_RANGE_WORDS: Final = frozenset(("to", "and", *_HYPHENS))
_MAGNITUDES: Final = {"k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9, "b": 1e9}
_ORDINAL_ENDS: Final = frozenset(("st", "nd", "rd", "th"))
_RATE: Final = frozenset(("once", "twice", "times", "per", "every", "each"))
_BEFORE_PRONOUN: Final = frozenset(("no", "any", "every", "some", "each", "which", "this", "that"))
"""Words after which "one" is no number."""
_DAY_HALVES: Final = {"am": 0, "pm": 12}
_SCALES: Final = {"c": "degC", "f": "degF"}
_CLOSE: Final = 0.1
"""Relative difference of two durations up to which months and days are not compared."""
_DECADE_YEARS: Final = 10


class Kind(StrEnum):
    """Sort of a value; two values of different sorts are not compared."""

    AMOUNT = "amount"  # with a unit that pint knows, a currency or a share
    COUNT = "count"
    ORDINAL = "ordinal"
    DATE = "date"
    DECADE = "decade"
    CLOCK = "clock"
    CODE = "code"  # versions, telephone numbers and the like


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a text.

    Attributes:
        start: Its first character.
        end: One past its last.
        kind: Its sort.
        numbers: Normalised: one number, or the two ends of a range; of a date year, month and day,
            of which 0 is not given.
        written: The numbers before units were converted.
        unit: The base unit or the currency; empty without one.
        nouns: Stems of the words that are counted or numbered.
        optional: True for "one" and "a week", which are often no numbers.
    """

    start: int
    end: int
    kind: Kind
    numbers: tuple[float, ...]
    written: tuple[float, ...]
    unit: str = ""
    nouns: frozenset[str] = frozenset()
    optional: bool = False

    def is_same(self, other: Value) -> bool:
        """Return True if the other value says this one."""
        kinds = {self.kind, other.kind}
        if Kind.DATE in kinds:
            return self._is_in_date(other)
        if Kind.DECADE in kinds or Kind.CODE in kinds:
            return len(kinds) == 1 and self.numbers == other.numbers
        if Kind.ORDINAL in kinds and len(kinds) > 1:
            return False
        if self.unit and other.unit:
            is_of_unit = self.unit == other.unit
            return is_of_unit and _are_close(self.numbers, other.numbers)
        if Kind.CLOCK in kinds:
            return _minutes(self) == _minutes(other)
        return _are_close(self.written, other.written)

    @property
    def magnitudes(self) -> frozenset[float]:
        """Its numbers, rounded: two values without one in common are not the same."""
        numbers = [*self.numbers, *self.written]
        if self.kind is Kind.CLOCK:
            numbers += [each / 60 for each in self.numbers]
        rounded = [f"{each:.6g}" for each in numbers]
        return frozenset(map(float, rounded))

    def differs_from(self, other: Value) -> bool:
        """Return True if both are values of one thing, and not the same; False if unknown."""
        if self.kind != other.kind:
            return False
        if self.is_same(other) or other.is_same(self):
            return False
        match self.kind:
            case Kind.DATE:
                return self._differs_in_date(other)
            case Kind.AMOUNT:
                return self._differs_in_amount(other)
            case Kind.COUNT | Kind.ORDINAL:
                if self.nouns or other.nouns:
                    return bool(self.nouns & other.nouns)
        return True

    def _differs_in_date(self, other: Value) -> bool:
        for mine, theirs in zip(self.numbers, other.numbers, strict=True):
            are_given = mine and theirs
            if are_given and mine != theirs:
                return True
        return False

    def _differs_in_amount(self, other: Value) -> bool:
        if self.unit != other.unit:
            return False
        if _overlap(self.numbers, other.numbers):
            return False
        is_duration = self.unit == "second"
        return not (is_duration and _are_nearly(self, other))

    def _is_in_date(self, other: Value) -> bool:
        if self.kind is Kind.DECADE:
            year = int(other.numbers[0])
            decade = year - year % _DECADE_YEARS
            return decade == self.numbers[0]
        if self.kind is other.kind:
            pairs = zip(self.numbers, other.numbers, strict=True)
            return all(not mine or mine == theirs for mine, theirs in pairs)
        if Kind.COUNT not in (self.kind, other.kind):
            return False
        common = set(self.numbers).intersection(other.numbers)
        return bool(common - {0.0})


def _are_close(some: Sequence[float], others: Sequence[float]) -> bool:
    if len(some) != len(others):
        return False
    pairs = zip(some, others, strict=True)
    return all(math.isclose(one, other, rel_tol=1e-6) for one, other in pairs)


def _overlap(some: Sequence[float], others: Sequence[float]) -> bool:
    """Return True if a range and a number or another range have a part in common."""
    if len(some) == 1 and len(others) == 1:
        return False
    first = max(min(some), min(others))
    last = min(max(some), max(others))
    return first <= last


def _are_nearly(one: Value, other: Value) -> bool:
    """Return True for durations in different units that nearly agree: a month and 30 days."""
    first, *_ = one.numbers
    second, *_ = other.numbers
    if one.written == one.numbers or first == 0:
        return False
    if _factor(one) == _factor(other):
        return False
    ratio = second / first
    return abs(ratio - 1) <= _CLOSE


def _factor(value: Value) -> float:
    """Return how many base units the unit of a value is."""
    amount = value.numbers[0]
    written = value.written[0]
    return amount / (written or 1)


def _minutes(value: Value) -> float:
    if value.kind is Kind.CLOCK:
        return value.numbers[0]
    return 60 * value.written[0]


@dataclass(frozen=True, slots=True)
class _Token:
    """A token in the form that text2num takes."""

    word: str
    start: int
    end: int

    def text(self) -> str:
        return self.word.encode(errors="replace").decode()

    def nt_separated(self, previous: Any) -> bool:
        del previous
        return False

    def not_a_number_part(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _Number:
    """A number among the tokens: from `first` up to `last`, which is excluded."""

    first: int
    last: int
    number: float
    is_ordinal: bool = False
    is_word: bool = False


def values_of(text: str) -> list[Value]:
    """Return the values of a text, in order."""
    return _Reader(text).values


def _plain(word: str) -> str:
    return word.replace(",", "")


class _Reader:
    """Reads the values of one text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[_Token] = []
        for match in _TOKEN.finditer(text):
            token = _Token(match.group(), *match.span())
            self._tokens.append(token)
        self._words = [token.word.lower() for token in self._tokens]
        self._numbers = self._read_numbers()
        self.values: list[Value] = []
        end = 0
        for place, number in enumerate(self._numbers):
            token = self._tokens[number.first]
            if token.start < end:
                continue
            value = self._value(place, number)
            end = value.end
            self.values.append(value)
        self._add_without_digits()
        self.values.sort(key=lambda value: value.start)

    def _written(self, place: int) -> str:
        """Return the token at a place as it is written; empty outside of the text."""
        is_inside = 0 <= place < len(self._tokens)
        return self._tokens[place].word if is_inside else ""

    def _word(self, place: int) -> str:
        return self._written(place).lower()

    def _read_numbers(self) -> list[_Number]:
        from text_to_num import find_numbers

        numbers: list[_Number] = []
        for found in find_numbers(self._tokens, "en", 0):
            if self._is_number_word(found.start):
                number = _Number(
                    found.start,
                    found.end,
                    found.value,
                    found.is_ordinal,
                    is_word=True,
                )
                numbers.append(number)
        for place, token in enumerate(self._tokens):
            if token.word[0].isdigit():
                number = self._digits(place)
                numbers.append(number)
        numbers.sort(key=lambda number: number.first)
        return self._joined(numbers)

    def _digits(self, place: int) -> _Number:
        """Return the number of a token of digits; -1 if it is no decimal number."""
        written = _plain(self._words[place])
        is_decimal = written.replace(".", "", 1).isdigit()
        amount = float(written) if is_decimal else -1.0
        last = place + 1
        is_ordinal = self._is_joined(last) and self._word(last) in _ORDINAL_ENDS
        if is_ordinal:
            last += 1
        return _Number(place, last, amount, is_ordinal)

    def _is_number_word(self, place: int) -> bool:
        """Return False for "no one", and for "second" as a unit of time."""
        word = self._words[place]
        before = self._word(place - 1)
        if word == "one":
            return before not in _BEFORE_PRONOUN
        if word not in ("second", "seconds"):
            return True
        two_before = self._word(place - 2)
        is_unit = before[:1].isdigit() or two_before[:1].isdigit()
        return not is_unit

    def _joined(self, numbers: Sequence[_Number]) -> list[_Number]:
        """Join "1.5 million", "two thirds" and "two dozen"."""
        joined: list[_Number] = []
        for number in numbers:
            both = self._both(joined[-1], number) if joined else None
            if both is None:
                joined.append(number)
            else:
                joined[-1] = both
        return joined

    def _both(self, before: _Number, number: _Number) -> _Number | None:
        """Return two numbers as one, or None if they are two."""
        if before.is_ordinal or not number.is_word:
            return None
        is_next = before.last == number.first
        is_hyphen = self._word(before.last) in _HYPHENS
        is_after_hyphen = is_hyphen and before.last + 1 == number.first
        if is_next and number.number >= 100 and not before.is_word:
            amount = before.number * number.number
            return replace(before, last=number.last, number=amount)
        is_part = number.is_ordinal and number.number > 2
        if (is_next or is_after_hyphen) and is_part and before.is_word:
            amount = before.number / number.number
            return replace(before, last=number.last, number=amount)
        return None

    def _is_joined(self, place: int) -> bool:
        """Return True if a token follows the one before without a space."""
        if not 0 < place < len(self._tokens):
            return False
        token, before = self._tokens[place], self._tokens[place - 1]
        return token.start == before.end

    def _value(self, place: int, number: _Number) -> Value:
        for read in (self._code, self._date, self._clock, self._share):
            value = read(number)
            if value is not None:
                return value
        if number.is_ordinal:
            nouns = self._nouns_after(number.last)
            return self._made(number, number.last, Kind.ORDINAL, nouns=nouns)
        return self._measured(place, number)

    def _made(
        self,
        number: _Number,
        last: int,
        kind: Kind,
        numbers: tuple[float, ...] = (),
        **fields: Any,
    ) -> Value:
        """Return a value from the first token of a number up to `last`, which is excluded."""
        written = (number.number,)
        fields.setdefault("written", written)
        last = min(last, len(self._tokens))
        start = self._tokens[number.first].start
        end = self._tokens[last - 1].end
        return Value(start, end, kind, numbers or written, **fields)

    def _amount(self, number: _Number, last: int, amount: float, unit: str) -> Value:
        """Return a value in the base units of its unit."""
        amount, base = _in_base_units(amount, unit)
        return self._made(number, last, Kind.AMOUNT, (amount,), unit=base)

    def _code(self, number: _Number) -> Value | None:
        """Read an ISO date, a time of day such as 9:30, a version, 12/05/2020."""
        if number.number >= 0 or number.is_word:
            return None
        word = self._words[number.first]
        digits = re.findall(r"\d+", word)
        parts = tuple(map(float, digits))
        if word.count("-") == 2:
            return self._made(number, number.last, Kind.DATE, parts)
        if ":" in word and len(parts) == 2:
            hour, minute = parts
            return self._time_of_day(number, 60 * hour + minute)
        if word.count(",") == 1 and _plain(word).isdigit():  # a decimal comma
            amount = float(word.replace(",", "."))
            return self._measured(-1, replace(number, number=amount))
        return self._made(number, number.last, Kind.CODE, parts)

    def _time_of_day(self, number: _Number, minutes: float) -> Value:
        half, last = self._day_half(number.last)
        if half:
            minutes = minutes % 720 + 60 * _DAY_HALVES[half]
        return self._made(number, last, Kind.CLOCK, (minutes,))

    def _day_half(self, place: int) -> tuple[str, int]:
        """Return "am" or "pm" if it is written at a place, and the token after it."""
        word = self._word(place)
        if word in _DAY_HALVES:
            return word, place + 1
        following = self._words[place + 1 : place + 3]
        if word in ("a", "p") and following == [".", "m"]:
            return f"{word}m", place + 3
        return "", place

    def _clock(self, number: _Number) -> Value | None:
        half, _ = self._day_half(number.last)
        minutes = 60 * number.number
        if half and number.number <= 12:
            return self._time_of_day(number, minutes)
        if self._word(number.last) in ("o'clock", "o’clock"):
            return self._made(number, number.last + 1, Kind.CLOCK, (minutes,))
        return None

    def _date(self, number: _Number) -> Value | None:
        """Read a day or a year with its month, a year alone, or a decade."""
        first, last = number.first, number.last
        after = self._word(last)
        is_round = number.number % _DECADE_YEARS == 0
        if after == "s" and is_round and self._is_joined(last):
            return self._made(number, last + 1, Kind.DECADE)
        is_day = number.number <= 31
        month_place = last + 1 if after == "of" else last
        month = self._month(month_place)
        if month and is_day:  # 12 May 1934
            return self._day(number, month, month_place + 1)
        before = first - 1
        if self._word(before) == "the" and self._month(before - 1):
            before -= 1
        month = self._month(before)
        whole = replace(number, first=before) if month else number
        if month and is_day:  # May 12, 1934
            return self._day(whole, month, last)
        if not self._is_year(number):
            return None
        numbers = (number.number, float(month), 0.0)
        return self._made(whole, last, Kind.DATE, numbers)

    def _day(self, number: _Number, month: int, last: int) -> Value:
        year, end = self._year_after(last)
        numbers = (year, float(month), number.number)
        return self._made(number, end, Kind.DATE, numbers)

    def _is_year(self, number: _Number) -> bool:
        is_plain = len(self._words[number.first]) == 4
        if number.is_word or number.is_ordinal or not is_plain:
            return False
        is_in_range = 1000 <= number.number <= 2100
        if not is_in_range or self._currency(number):
            return False
        unit, _ = self._unit_after(number.last)
        if unit or self._word(number.last) == "%":
            return False
        place = number.first - 1
        is_after_noun = _is_noun(self._word(place)) and not self._month(place)
        return not (is_after_noun and self._nouns_after(number.last))

    def _month(self, place: int) -> int:
        """Return the number of a capitalised month; 0 for any other word."""
        word = self._written(place)
        is_capitalised = word[:1].isupper()
        return _MONTHS.get(word.lower(), 0) if is_capitalised else 0

    def _year_after(self, place: int) -> tuple[float, int]:
        is_comma = self._word(place) in (",", ".")
        year_place = place + 1 if is_comma else place
        word = self._word(year_place)
        if len(word) == 4 and word.isdigit():
            return float(word), year_place + 1
        return 0.0, place

    def _share_value(self, number: _Number, last: int, share: float) -> Value:
        return self._made(number, last, Kind.AMOUNT, (share,), unit="share")

    def _share(self, number: _Number) -> Value | None:
        """Read percents, fractions and fractions of an hour."""
        share, last = self._part(number)
        if share is None:
            return None
        unit = self._word(last + 2)
        is_of = self._word(last) == "of"
        is_article = self._word(last + 1) in ("a", "an")
        if is_of and is_article and _is_duration(unit):
            return self._amount(number, last + 3, share, unit)
        return self._share_value(number, last, share)

    def _part(self, number: _Number) -> tuple[float | None, int]:
        """Return the part of a whole that a number is, or None, and the token after it."""
        last = number.last
        word, after = self._word(last), self._word(last + 1)
        if word in ("%", "percent"):
            return number.number / 100, last + 1
        if word == "per" and after == "cent":
            return number.number / 100, last + 2
        if word in ("quarter", "quarters") and number.is_word:
            return number.number / 4, last + 1
        if number.is_word and 0 < number.number < 1:
            return number.number, last
        is_third = number.is_ordinal and number.number > 2
        before = self._word(number.first - 1)
        if is_third and before == "a" and word == "of":
            return 1 / number.number, last
        return None, last

    def _measured(self, place: int, number: _Number) -> Value:
        """Read a number or a range with its unit, its currency or what it counts."""
        written, last = self._ends(place, number)
        before, after = self._currency(number), self._currency_after(last)
        currency = before or after
        if currency:
            end = last + 1 if after else last
            return self._made(
                number,
                end,
                Kind.AMOUNT,
                written,
                unit=currency,
                written=written,
            )
        is_range = len(written) == 2
        if is_range and self._word(last) in ("%", "percent"):
            numbers = tuple(each / 100 for each in written)
            return self._made(
                number,
                last + 1,
                Kind.AMOUNT,
                numbers,
                unit="share",
                written=written,
            )
        unit, end = self._unit_after(last)
        if unit:
            amounts = [_in_base_units(each, unit) for each in written]
            numbers = tuple(amount for amount, _ in amounts)
            _, base = amounts[0]
            return self._made(
                number,
                end,
                Kind.AMOUNT,
                numbers,
                unit=base,
                written=written,
            )
        is_time = self._word(number.first - 1) == "at"
        hour = written[0]
        if is_time and not is_range and hour in range(1, 25):
            minutes = 60 * hour
            return self._made(number, last, Kind.CLOCK, (minutes,))
        nouns = self._nouns_after(last) or self._noun_before(number.first)
        is_one = number.is_word and written == (1.0,)
        return self._made(
            number,
            last,
            Kind.COUNT,
            written,
            written=written,
            nouns=nouns,
            optional=is_one,
        )

    def _ends(self, place: int, number: _Number) -> tuple[tuple[float, ...], int]:
        """Return a number or the two ends of its range, and the token after them."""
        factor, last = self._magnitude(number)
        is_last = place < 0 or place + 1 == len(self._numbers)
        follower = None if is_last else self._numbers[place + 1]
        if follower is None or not self._is_range(number, last, follower):
            return (number.number * factor,), last
        more, last = self._magnitude(follower)
        if factor == 1:
            factor = more
        lower, upper = number.number * factor, follower.number * more
        return (lower, upper), last

    def _magnitude(self, number: _Number) -> tuple[float, int]:
        """Return the factor of a letter as in $1.5M or 20k, and the token after it."""
        word = self._word(number.last)
        last = number.last
        is_letter = self._is_joined(last) and word in _MAGNITUDES
        if not is_letter:
            return 1.0, last
        before = self._currency(number)
        after = self._currency_after(last + 1)
        if word == "k" or before or after:
            return _MAGNITUDES[word], last + 1
        return 1.0, last

    def _is_range(self, number: _Number, last: int, follower: _Number) -> bool:
        is_near = follower.first == last + 1
        if not is_near or follower.is_ordinal:
            return False
        if self._is_year(follower):
            return False
        link = self._words[last]
        before = self._word(number.first - 1)
        if link == "and" and before != "between":
            return False
        is_rising = 0 <= number.number < follower.number
        return is_rising and link in _RANGE_WORDS

    def _currency(self, number: _Number) -> str:
        """Return the currency whose sign stands before a number."""
        sign = self._written(number.first - 1)
        return _currency_of(sign)

    def _currency_after(self, place: int) -> str:
        word = self._written(place)
        if word == "US":
            word = self._written(place + 1)
        return _currency_of(word)

    def _unit_after(self, place: int) -> tuple[str, int]:
        """Return the unit within the next two words, and the token after it."""
        if self._word(place) in _HYPHENS:
            place += 1
        scale = _SCALES.get(self._word(place + 1))
        if scale and self._word(place) == "°":
            return scale, place + 2
        for at in (place, place + 1):
            word = self._written(at)
            if not _is_noun(word):
                break
            if _is_unit(word):
                return word, at + 1
        return "", place

    def _nouns_after(self, place: int) -> frozenset[str]:
        if self._word(place) in _HYPHENS:
            place += 1
        following = self._words[place : place + 2]
        return frozenset(map(stem, takewhile(_is_noun, following)))

    def _noun_before(self, place: int) -> frozenset[str]:
        word = self._word(place - 1)
        return frozenset([stem(word)] if _is_noun(word) else ())

    def _add_without_digits(self) -> None:
        """Read "half", "a dozen", "a week" and months that stand alone."""
        spans = sorted((value.start, value.end) for value in self.values)
        following = end = 0
        for place, token in enumerate(self._tokens):
            while following < len(spans) and spans[following][0] <= token.start:
                end = max(end, spans[following][1])
                following += 1
            value = None if token.start < end else self._without_digit(place)
            if value is not None:
                self.values.append(value)
                end = value.end

    def _without_digit(self, place: int) -> Value | None:
        word, after = self._words[place], self._word(place + 1)
        one = _Number(place, place + 1, 1.0, is_word=True)
        if word == "half":
            half = replace(one, number=0.5)
            unit_place = place + 2 if after in ("a", "an") else place + 1
            unit, end = self._unit_after(unit_place)
            if unit:
                return self._amount(half, end, 0.5, unit)
            return self._share_value(half, place + 1, 0.5)
        if word == "dozen":
            dozen = replace(one, number=12.0)
            nouns = self._nouns_after(place + 1)
            return self._made(dozen, place + 1, Kind.COUNT, nouns=nouns)
        month = self._month(place)
        if month and place and len(word) > 2:
            numbers = (0.0, float(month), 0.0)
            return self._made(one, place + 1, Kind.DATE, numbers)
        is_article = word in ("a", "an")
        if is_article and _is_duration(after) and not self._is_rate(place):
            return self._amount(one, place + 2, 1.0, after)
        return None

    def _is_rate(self, place: int) -> bool:
        """Return True after what happens or costs so much "a day"."""
        if not place:
            return False
        before = self._tokens[place - 1].word
        is_price = before[0].isdigit() or _currency_of(before)
        if before in _RATE or is_price:
            return True
        return not is_function_word(before) and _is_unit(before)


def _is_noun(word: str) -> bool:
    """Return True for a word that is no function word."""
    return word[:1].isalpha() and not is_function_word(word)


@cache
def _registry() -> Any:
    import pint

    return pint.UnitRegistry()


@cache
def _is_unit(word: str) -> bool:
    """Return True for a unit that pint knows, such as days, km or GB."""
    import pint

    if len(word) == 1 and not word.islower():
        return False
    try:
        _registry().parse_units(word)
    except (pint.PintError, AttributeError, ValueError, TypeError):
        return False
    return True


@cache
def _is_duration(word: str) -> bool:
    is_long_word = len(word) >= 3 and word.isalpha()
    if not is_long_word or not _is_unit(word):
        return False
    _, base = _in_base_units(1.0, word)
    return base == "second"


def _in_base_units(amount: float, unit: str) -> tuple[float, str]:
    registry = _registry()
    if unit in ("decade", "decades"):  # pint's is a logarithm
        amount, unit = amount * _DECADE_YEARS, "year"
    units = registry.parse_units(unit)
    quantity = registry.Quantity(amount, units).to_root_units()
    magnitude = float(quantity.magnitude)
    return round(magnitude, 9), str(quantity.units)


@cache
def _currency_of(word: str) -> str:
    """Return the English name of a currency by its sign, its ISO code or its name.

    The third letter of an ISO code is the initial of the currency: USD, GBP, JPY. Codes become
    their first two letters and that initial, so that signs of several currencies stay apart.
    """
    is_sign = len(word) == 1 and unicodedata.category(word) == "Sc"
    if is_sign:
        return _sign_name(word)
    if word in _ISO_CODES:
        return _ISO_CODES[word]
    name = word.lower().removesuffix("s")
    return name if name in _CURRENCY_NAMES else ""


def _sign_name(sign: str) -> str:
    """Return the last word of a sign's Unicode name without SIGN: "€" is a euro."""
    *words, _ = unicodedata.name(sign).lower().split()
    return words[-1] if words else ""


_ISO_CODES: Final = {
    "EUR": "euro",
    "USD": "dollar",
    "GBP": "pound",
    "JPY": "yen",
    "CHF": "franc",
    "CNY": "yuan",
    "INR": "rupee",
}
_CURRENCY_NAMES: Final = frozenset(_ISO_CODES.values()) - {"pound"}
