"""Numbers, units and dates of an English text, normalised so that two texts can be compared.

Number words are read by text2num and units by pint. A value without a unit that pint knows counts
the nouns next to it.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
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
_DAY_HALVES: Final = {"am": 0, "pm": 12}
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
        if Kind.DATE in (self.kind, other.kind):
            return self._is_in_date(other)
        if Kind.DECADE in (self.kind, other.kind) or Kind.CODE in (self.kind, other.kind):
            return self.kind == other.kind and self.numbers == other.numbers
        if Kind.ORDINAL in (self.kind, other.kind) and self.kind != other.kind:
            return False
        if self.unit and other.unit:
            return self.unit == other.unit and _are_close(self.numbers, other.numbers)
        if Kind.CLOCK in (self.kind, other.kind):
            return bool({_minutes(self)} & {_minutes(other)})
        return _are_close(self.written, other.written)

    @property
    def magnitudes(self) -> frozenset[float]:
        """Its numbers, rounded: two values without one in common are not the same."""
        hours = [each / 60 for each in self.numbers] if self.kind is Kind.CLOCK else []
        numbers = (*self.numbers, *self.written, *hours)
        return frozenset(float(f"{each:.6g}") for each in numbers)

    def differs_from(self, other: Value) -> bool:
        """Return True if both are values of one thing, and not the same; False if unknown."""
        if self.kind != other.kind or self.is_same(other) or other.is_same(self):
            return False
        if self.kind is Kind.DATE:
            pairs = zip(self.numbers, other.numbers, strict=True)
            return any(mine and theirs and mine != theirs for mine, theirs in pairs)
        if self.kind is Kind.AMOUNT:
            if self.unit != other.unit or _overlap(self.numbers, other.numbers):
                return False
            return not (self.unit == "second" and _are_nearly(self, other))
        if self.kind in (Kind.COUNT, Kind.ORDINAL):
            is_bare = not self.nouns and not other.nouns
            return is_bare or bool(self.nouns & other.nouns)
        return True

    def _is_in_date(self, other: Value) -> bool:
        if self.kind is Kind.DECADE:
            year = int(other.numbers[0])
            return year - year % _DECADE_YEARS == self.numbers[0]
        if self.kind != other.kind:
            counts = {self.kind, other.kind} == {Kind.COUNT, Kind.DATE}
            return counts and bool(set(self.numbers) & set(other.numbers) - {0.0})
        pairs = zip(self.numbers, other.numbers, strict=True)
        return all(not mine or mine == theirs for mine, theirs in pairs)


def _are_close(some: Sequence[float], others: Sequence[float]) -> bool:
    if len(some) != len(others):
        return False
    return all(
        abs(one - other) <= 1e-6 * max(abs(one), abs(other))
        for one, other in zip(some, others, strict=True)
    )


def _overlap(some: Sequence[float], others: Sequence[float]) -> bool:
    """Return True if a range and a number or another range have a part in common."""
    is_range = len(some) > 1 or len(others) > 1
    return is_range and max(min(some), min(others)) <= min(max(some), max(others))


def _are_nearly(one: Value, other: Value) -> bool:
    """Return True for durations in different units that nearly agree: a month and 30 days."""
    if one.written == one.numbers or one.numbers[0] == 0:
        return False
    ratio = other.numbers[0] / one.numbers[0]
    factors = [each.numbers[0] / (each.written[0] or 1) for each in (one, other)]
    return factors[0] != factors[1] and abs(ratio - 1) <= _CLOSE


def _minutes(value: Value) -> float:
    return value.numbers[0] if value.kind is Kind.CLOCK else 60 * value.written[0]


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
        self._tokens = [_Token(match.group(), *match.span()) for match in _TOKEN.finditer(text)]
        self._words = [token.word.lower() for token in self._tokens]
        self._text = text
        self._numbers = self._read_numbers()
        self.values: list[Value] = []
        taken = -1
        for place, number in enumerate(self._numbers):
            if number.first < taken:
                continue
            value, taken = self._value(place, number)
            self.values.append(value)
        covered = [(value.start, value.end) for value in self.values]
        self.values += self._without_digits(covered)
        self.values.sort(key=lambda value: value.start)

    def _word(self, place: int) -> str:
        return self._words[place] if 0 <= place < len(self._words) else ""

    def _read_numbers(self) -> list[_Number]:
        from text_to_num import find_numbers

        numbers: list[_Number] = []
        for found in find_numbers(self._tokens, "en", 0):
            if self._is_number_word(found.start):
                number = _Number(found.start, found.end, found.value, found.is_ordinal, True)
                numbers.append(number)
        for place, token in enumerate(self._tokens):
            if token.word[0].isdigit():
                is_ordinal = self._is_joined(place + 1) and self._word(place + 1) in _ORDINAL_ENDS
                last = place + 2 if is_ordinal else place + 1
                written = _plain(token.word)
                amount = float(written) if written.replace(".", "", 1).isdigit() else -1.0
                numbers.append(_Number(place, last, amount, is_ordinal))
        numbers.sort(key=lambda number: number.first)
        return self._joined(numbers)

    def _is_number_word(self, place: int) -> bool:
        """Return False for "no one", and for "second" as a unit of time."""
        word = self._words[place]
        before = self._word(place - 1)
        if word == "one":
            return before not in ("no", "any", "every", "some", "each", "which", "this", "that")
        is_unit = word in ("second", "seconds")
        return not (is_unit and (before[:1].isdigit() or self._word(place - 2)[:1].isdigit()))

    def _joined(self, numbers: Sequence[_Number]) -> list[_Number]:
        """Join "1.5 million", "two thirds" and "two dozen"."""
        joined: list[_Number] = []
        for number in numbers:
            before = joined[-1] if joined else None
            is_next = before is not None and before.last == number.first
            after_hyphen = before is not None and (
                before.last + 1 == number.first and self._words[before.last] in _HYPHENS
            )
            if before is None or not (is_next or after_hyphen) or before.is_ordinal:
                joined.append(number)
            elif number.is_word and is_next and number.number >= 100 and not before.is_word:
                product = before.number * number.number
                joined[-1] = replace(before, last=number.last, number=product)
            elif number.is_ordinal and number.is_word and before.is_word and number.number > 2:
                share = before.number / number.number
                joined[-1] = replace(before, last=number.last, number=share)
            else:
                joined.append(number)
        return joined

    def _is_joined(self, place: int) -> bool:
        """Return True if a token follows the one before without a space."""
        if not 0 < place < len(self._tokens):
            return False
        return self._tokens[place].start == self._tokens[place - 1].end

    def _value(self, place: int, number: _Number) -> tuple[Value, int]:
        """Return the value of a number, and the token after it."""
        for read in (self._code, self._date, self._clock, self._share):
            value = read(number)
            if value is not None:
                return value
        if number.is_ordinal:
            nouns = self._nouns_after(number.last)
            return self._made(number, number.last, Kind.ORDINAL, nouns=nouns), number.last
        return self._measured(place, number)

    def _made(
        self,
        number: _Number,
        last: int,
        kind: Kind,
        numbers: tuple[float, ...] = (),
        **fields: Any,
    ) -> Value:
        written = (number.number,)
        start = self._tokens[number.first].start
        end = self._tokens[min(last, len(self._tokens)) - 1].end
        return Value(start, end, kind, numbers or written, fields.pop("written", written), **fields)

    def _code(self, number: _Number) -> tuple[Value, int] | None:
        """Read an ISO date, a time of day such as 9:30, a version, 12/05/2020."""
        if number.number >= 0 or number.is_word:
            return None
        word = self._tokens[number.first].word
        parts = tuple(float(part) for part in re.findall(r"\d+", word))
        if word.count("-") == 2:
            return self._made(number, number.last, Kind.DATE, parts), number.last
        if ":" in word and len(parts) == 2:
            return self._time_of_day(number, 60 * parts[0] + parts[1])
        if word.count(",") == 1 and _plain(word).isdigit():  # a decimal comma
            amount = float(word.replace(",", "."))
            return self._measured(-1, replace(number, number=amount))
        return self._made(number, number.last, Kind.CODE, parts), number.last

    def _time_of_day(self, number: _Number, minutes: float) -> tuple[Value, int]:
        last = number.last
        half = self._word(last) or ""
        if half in ("a", "p") and self._word(last + 1) == "." and self._word(last + 2) == "m":
            half, last = f"{half}m", last + 3
        elif half in _DAY_HALVES:
            last += 1
        if half in _DAY_HALVES:
            minutes = minutes % 720 + 60 * _DAY_HALVES[half]
        return self._made(number, last, Kind.CLOCK, (minutes,)), last

    def _clock(self, number: _Number) -> tuple[Value, int] | None:
        after = self._words[number.last : number.last + 3]
        is_half = bool(after) and (after[0] in _DAY_HALVES or after[:2] in (["a", "."], ["p", "."]))
        if is_half and number.number <= 12 and (after[0] in _DAY_HALVES or after[2:] == ["m"]):
            return self._time_of_day(number, 60 * number.number)
        if after and after[0] in ("o'clock", "o’clock"):
            value = self._made(number, number.last + 1, Kind.CLOCK, (60 * number.number,))
            return value, number.last + 1
        return None

    def _date(self, number: _Number) -> tuple[Value, int] | None:
        """Read a day or a year with its month, a year alone, or a decade."""
        first, last = number.first, number.last
        if self._word(last) == "s" and self._is_joined(last) and number.number % 10 == 0:
            return self._made(number, last + 1, Kind.DECADE), last + 1
        month_place = last + 1 if self._word(last) == "of" else last
        month = self._month(month_place)
        if month and number.number <= 31:  # 12 May 1934
            year, end = self._year_after(month_place + 1)
            numbers = (year, float(month), number.number)
            return self._made(number, end, Kind.DATE, numbers), end
        before = first - 1
        if self._word(before) == "the" and self._month(before - 1):
            before -= 1
        month = self._month(before)
        if month and number.number <= 31:  # May 12, 1934
            year, end = self._year_after(last)
            numbers = (year, float(month), number.number)
            return self._made(replace(number, first=before), end, Kind.DATE, numbers), end
        if not self._is_year(number):
            return None
        numbers = (number.number, float(month), 0.0)
        begin = before if month else first
        return self._made(replace(number, first=begin), last, Kind.DATE, numbers), last

    def _is_year(self, number: _Number) -> bool:
        is_plain = number.last == number.first + 1 and len(self._words[number.first]) == 4
        if number.is_word or number.is_ordinal or not is_plain:
            return False
        if not 1000 <= number.number <= 2100 or self._currency(number):
            return False
        unit, _ = self._unit_after(number.last)
        before = self._word(number.first - 1)
        is_count = (
            before[:1].isalpha()
            and not is_function_word(before)
            and not self._month(number.first - 1)
        )
        if unit or self._word(number.last) == "%":
            return False
        return not (is_count and self._nouns_after(number.last))

    def _month(self, place: int) -> int:
        """Return the number of a capitalised month; 0 for any other word."""
        word = self._tokens[place].word if 0 <= place < len(self._tokens) else ""
        return _MONTHS.get(word.lower(), 0) if word[:1].isupper() else 0

    def _year_after(self, place: int) -> tuple[float, int]:
        comma = 1 if self._word(place) in (",", ".") else 0
        word = self._word(place + comma)
        if len(word) == 4 and word.isdigit():
            return float(word), place + comma + 1
        return 0.0, place

    def _share(self, number: _Number) -> tuple[Value, int] | None:
        """Read percents, fractions and fractions of an hour."""
        read = self._plain_share(number)
        if read is None:
            return None
        share, last = read
        unit = self._word(last + 2)
        if self._words[last : last + 2] in (["of", "a"], ["of", "an"]) and _is_duration(unit):
            amount, base = _in_base_units(share.numbers[0], unit)
            value = self._made(number, last + 3, Kind.AMOUNT, (amount,), unit=base)
            return value, last + 3
        return read

    def _plain_share(self, number: _Number) -> tuple[Value, int] | None:
        words = self._words[number.last : number.last + 2]
        if words[:1] == ["%"] or words[:1] == ["percent"] or words == ["per", "cent"]:
            last = number.last + (2 if words[:1] == ["per"] else 1)
            numbers = (number.number / 100,)
            return self._made(number, last, Kind.AMOUNT, numbers, unit="share"), last
        if words[:1] in (["quarter"], ["quarters"]) and number.is_word:
            numbers = (number.number / 4,)
            last = number.last + 1
            return self._made(number, last, Kind.AMOUNT, numbers, unit="share"), last
        if number.is_word and 0 < number.number < 1:
            return self._made(number, number.last, Kind.AMOUNT, unit="share"), number.last
        is_third = number.is_ordinal and number.number > 2 and self._word(number.last) == "of"
        if is_third and self._word(number.first - 1) == "a":
            numbers = (1 / number.number,)
            return self._made(number, number.last, Kind.AMOUNT, numbers, unit="share"), number.last
        return None

    def _measured(self, place: int, number: _Number) -> tuple[Value, int]:
        """Read a number or a range with its unit, its currency or what it counts."""
        factor, last = self._magnitude(number)
        written: tuple[float, ...] = (number.number * factor,)
        follower = self._numbers[place + 1] if -1 < place < len(self._numbers) - 1 else None
        if follower and self._is_range(number, last, follower):
            more, last = self._magnitude(follower)
            if factor == 1:
                factor = more
            written = (number.number * factor, follower.number * more)
        currency_after = self._currency_after(last)
        currency = self._currency(number) or currency_after
        if currency:
            last += bool(currency_after)
            return self._made(
                number, last, Kind.AMOUNT, written, unit=currency, written=written
            ), last
        if self._word(last) in ("%", "percent") and len(written) == 2:
            shares = tuple(each / 100 for each in written)
            share = self._made(number, last + 1, Kind.AMOUNT, shares, unit="share", written=written)
            return share, last + 1
        unit, end = self._unit_after(last)
        if unit:
            amounts = [_in_base_units(each, unit) for each in written]
            numbers = tuple(amount for amount, _ in amounts)
            base = amounts[0][1]
            value = self._made(number, end, Kind.AMOUNT, numbers, unit=base, written=written)
            return value, end
        is_time = self._word(number.first - 1) == "at" and written[0] in range(1, 25)
        if is_time and len(written) == 1:
            return self._made(number, last, Kind.CLOCK, (60 * written[0],)), last
        nouns = self._nouns_after(last) or self._noun_before(number.first)
        is_one = number.is_word and written == (1.0,)
        count = self._made(
            number, last, Kind.COUNT, written, written=written, nouns=nouns, optional=is_one
        )
        return count, last

    def _magnitude(self, number: _Number) -> tuple[float, int]:
        """Return the factor of a letter as in $1.5M or 20k, and the token after it."""
        word = self._word(number.last)
        is_letter = self._is_joined(number.last) and word in _MAGNITUDES
        is_money = self._currency(number) or self._currency_after(number.last + 1)
        if is_letter and (word == "k" or is_money):
            return _MAGNITUDES[word], number.last + 1
        return 1.0, number.last

    def _is_range(self, number: _Number, last: int, follower: _Number) -> bool:
        if follower.first != last + 1 or follower.is_ordinal or self._is_year(follower):
            return False
        link = self._words[last]
        if link == "and" and self._word(number.first - 1) != "between":
            return False
        return link in _RANGE_WORDS and 0 <= number.number < follower.number

    def _currency(self, number: _Number) -> str:
        """Return the currency whose sign stands before a number."""
        return _currency_of(self._tokens[number.first - 1].word) if number.first else ""

    def _currency_after(self, place: int) -> str:
        if place >= len(self._tokens):
            return ""
        word = self._tokens[place].word
        if len(word) == 3 and word.isupper() and word.isascii():
            return _currency_of(word)
        if word in ("US",) and place + 1 < len(self._tokens):
            word = self._tokens[place + 1].word
        return _currency_of(word)

    def _unit_after(self, place: int) -> tuple[str, int]:
        """Return the unit within the next two words, and the token after it."""
        if self._word(place) in _HYPHENS:
            place += 1
        if self._word(place) == "°" and self._word(place + 1) in ("c", "f"):
            scale = "degC" if self._word(place + 1) == "c" else "degF"
            return scale, place + 2
        for at in (place, place + 1):
            word = self._tokens[at].word if at < len(self._tokens) else ""
            if not word or not word[0].isalpha() or is_function_word(word):
                break
            if _is_unit(word):
                return word, at + 1
        return "", place

    def _nouns_after(self, place: int) -> frozenset[str]:
        nouns: list[str] = []
        if self._word(place) in _HYPHENS:
            place += 1
        for word in self._words[place : place + 2]:
            if not word[0].isalpha() or is_function_word(word):
                break
            nouns.append(stem(word))
        return frozenset(nouns)

    def _noun_before(self, place: int) -> frozenset[str]:
        word = self._word(place - 1)
        is_noun = word[:1].isalpha() and not is_function_word(word)
        return frozenset((stem(word),)) if is_noun else frozenset()

    def _without_digits(self, covered: Sequence[tuple[int, int]]) -> list[Value]:
        """Read "half", "a dozen", "a week" and months that stand alone."""
        values: list[Value] = []
        spans = sorted(covered)
        following = end = 0
        for place, token in enumerate(self._tokens):
            while following < len(spans) and spans[following][0] <= token.start:
                end = max(end, spans[following][1])
                following += 1
            value = None if token.start < end else self._without_digit(place)
            if value is not None:
                values.append(value)
                end = value.end
        return values

    def _without_digit(self, place: int) -> Value | None:
        word, after = self._words[place], self._word(place + 1)
        one = _Number(place, place + 1, 1.0, is_word=True)
        if word == "half":
            unit_place = place + (2 if after in ("a", "an") else 1)
            half = replace(one, number=0.5)
            unit, end = self._unit_after(unit_place)
            if unit:
                amount, base = _in_base_units(0.5, unit)
                return self._made(half, end, Kind.AMOUNT, (amount,), unit=base)
            return self._made(half, place + 1, Kind.AMOUNT, unit="share")
        if word == "dozen":
            dozen = replace(one, number=12.0)
            return self._made(dozen, place + 1, Kind.COUNT, nouns=self._nouns_after(place + 1))
        if place and len(word) > 2 and self._month(place):
            return self._made(one, place + 1, Kind.DATE, (0.0, float(self._month(place)), 0.0))
        if word in ("a", "an") and _is_duration(after) and not self._is_rate(place):
            amount, base = _in_base_units(1.0, after)
            return self._made(one, place + 2, Kind.AMOUNT, (amount,), unit=base)
        return None

    def _is_rate(self, place: int) -> bool:
        """Return True after what happens or costs so much "a day"."""
        if not place:
            return False
        before = self._tokens[place - 1].word
        if before in _RATE or before[0].isdigit() or _currency_of(before):
            return True
        return not is_function_word(before) and _is_unit(before)


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
    if len(word) < 3 or not word.isalpha() or not _is_unit(word):
        return False
    return _in_base_units(1.0, word)[1] == "second"


def _in_base_units(amount: float, unit: str) -> tuple[float, str]:
    registry = _registry()
    if unit in ("decade", "decades"):  # pint's is a logarithm
        amount, unit = amount * _DECADE_YEARS, "year"
    quantity = registry.Quantity(amount, registry.parse_units(unit)).to_root_units()
    return round(float(quantity.magnitude), 9), str(quantity.units)


@cache
def _currency_of(word: str) -> str:
    """Return the English name of a currency by its sign, its ISO code or its name.

    The third letter of an ISO code is the initial of the currency: USD, GBP, JPY. Codes become
    their first two letters and that initial, so that signs of several currencies stay apart.
    """
    if len(word) == 1 and unicodedata.category(word) == "Sc":
        return _sign_name(word)
    if len(word) == 3 and word in _ISO_CODES:
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
