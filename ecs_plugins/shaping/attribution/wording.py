"""Words of an English text that decide whether a statement holds: content words, names, negations.

Function words come from the lists of bm25s, which tell English from other languages, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int]

_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
_INTRODUCTION: Final = re.compile(
    r"""\W*(?:
        (?:according\ to|based\ on|as\ far\ as)\b[^,.]{0,60},
      | (?:it\ (?:seems|appears|is\ (?:said|likely|possible|known))
         |i\ (?:think|believe|guess|assume|am\ (?:not\ )?sure)|i'm\ (?:not\ )?sure
         |(?:the|these|your|this)\ (?:given\ |provided\ )?
           (?:passages?|contexts?|documents?|sources?|texts?|articles?)
           \ (?:says?|states?|mentions?|indicates?|notes?|suggests?|shows?)
        )(?:\ that)?\b
      | (?:probably|perhaps|maybe|apparently|presumably|possibly)\b,?
      | (?:yes|no|sure|well),
    )\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_TABLE_ROW: Final = re.compile(r"^.*\|.*\|.*$", re.MULTILINE)
_SENTENCE_BEGINS: Final = re.compile(r"(?:^|[.!?:;…\"“„«(|*•#>\-–—])\s*\Z")
_SHORTEST_LIST = """
a i am an as at be by do he if in is it me my no of on or so to up we
"""
_SHORTEST: Final = frozenset(_SHORTEST_LIST.split())
_AUXILIARIES_LIST = """
am is are was were be been being do does did has have had can could will would shall should may
might must
"""
_AUXILIARIES: Final = frozenset(_AUXILIARIES_LIST.split())
_LIGHT_VERBS_LIST = """
take takes took taken taking make makes made making give gives gave given giving get gets got
also however within every each
"""
_LIGHT_VERBS: Final = frozenset(_LIGHT_VERBS_LIST.split())
_SUFFIX: Final = re.compile(r"(?<=\w{3})(?:ies|ied|ing|ed|es|s|e|y)$")
_NEGATIONS_LIST = """
not no never none nobody nothing nowhere neither nor without cannot non
"""
_NEGATIONS: Final = frozenset(_NEGATIONS_LIST.split())
_DETERMINERS: Final = frozenset(("no", "without", "non"))
_PREFIXES: Final = ("un", "non", "in", "im", "ir", "il", "dis")
_REACH: Final = 3
"""Content words after a negation that it may deny."""
_BOUNDARY: Final = re.compile(
    r"[,;:.!?()–—|]|\b(?:but|although|though|while|whereas|because|that|whether|if|which|who|"
    r"unless|until|except|and|or)\b",
    re.IGNORECASE,
)
_LONG: Final = 4
"""Letters of a stem that a prefix may negate."""
_SHORT: Final = 8
"""Words up to which a text may have no English function word and still be English."""
_LEAST_ENGLISH: Final = 0.15
"""Share of function words from which on a longer text is English."""


class Word(NamedTuple):
    """A word of a text: its place, its stem, and whether it says something by itself."""

    start: int
    end: int
    text: str
    stem: str
    is_content: bool


@cache
def _english_words() -> frozenset[str]:
    """Return the function words of English; loading them takes a moment."""
    from bm25s import stopwords

    listed = frozenset(stopwords.STOPWORDS_EN_PLUS)
    # Without parts of contractions: "won" and "don" are also words of their own.
    whole = [word for word in listed if f"{word}'t" not in listed]
    return frozenset(word for word in whole if len(word) > 2 or word in _SHORTEST)


@cache
def _other_languages() -> tuple[frozenset[str], ...]:
    """Return the function words of each other language that bm25s knows."""
    from bm25s import stopwords

    names = [name for name in dir(stopwords) if name.startswith("STOPWORDS_")]
    others = [name for name in names if not name.startswith("STOPWORDS_EN")]
    return tuple(frozenset(getattr(stopwords, name)) for name in others)


def is_function_word(word: str) -> bool:
    """Return True for an English word such as "the" or "of"."""
    lower = word.lower().replace("’", "'")
    return lower in _english_words() or lower in _AUXILIARIES or lower in _LIGHT_VERBS


@cache
def stem(word: str) -> str:
    """Return a word without accents and English endings, for comparing two texts.

    >>> stem("Refunded"), stem("deliveries"), stem("Nîmes")
    ('refund', 'deliver', 'nim')
    """
    folded = word.casefold().replace("’", "'")
    decomposed = unicodedata.normalize("NFKD", folded)
    letters = [each for each in decomposed if not unicodedata.combining(each)]
    plain = "".join(letters)
    own = plain.removesuffix("'s")
    return _SUFFIX.sub("", own)


def words_of(text: str) -> list[Word]:
    """Return the words of a text, in order."""
    words: list[Word] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        written = match.group()
        word = Word(
            start,
            end,
            written,
            stem(written),
            _is_content(written),
        )
        words.append(word)
    return words


def _is_content(word: str) -> bool:
    if word.lower() in _NEGATIONS or word.lower().endswith(("n't", "n’t")):
        return False
    is_capital = word.isupper() and word.isalpha()
    is_acronym = is_capital and len(word) > 1
    return is_acronym or not is_function_word(word)


class Negation(NamedTuple):
    """A negation of a text, and the stems of the content words that it may deny, nearest first."""

    start: int
    end: int
    denied: tuple[str, ...]


def is_english(text: str) -> bool:
    """Return True if a text has more function words of English than of another language.

    Tables do not count; neither do short texts without any function word.
    """
    running = _TABLE_ROW.sub("", text)
    found = _LETTERS.findall(running)
    words = [word.lower() for word in found]
    if not words:
        return True
    ascii_words = sum(map(str.isascii, words))
    if ascii_words < len(words) * (1 - _LEAST_ENGLISH):
        return False
    english = _count_in(words, _english_words())
    for other in _other_languages():
        if _count_in(words, other) > english:
            return False
    is_short = len(words) <= _SHORT
    return is_short or english >= _LEAST_ENGLISH * len(words)


def _count_in(words: Iterable[str], listed: frozenset[str]) -> int:
    return sum(word in listed for word in words)


def introduction_of(text: str) -> int:
    """Return where a statement begins after a hedge or the naming of its source."""
    match = _INTRODUCTION.match(text)
    end = match.end() if match else 0
    return end if end < len(text) else 0


def names_of(text: str) -> list[Word]:
    """Return capitalised words that are no function words, and words of code, in order.

    The first word of a sentence counts only if a capitalised word follows or it has another
    capital.
    """
    words = words_of(text)
    names: list[Word] = []
    for place, word in enumerate(words):
        is_code = text.endswith("`", 0, word.start)
        if not (is_code or _is_capitalised(word)):
            continue
        is_marked = is_code or any(map(str.isupper, word.text[1:]))
        is_first = begins_sentence(text, word)
        if is_marked or not is_first or _leads_name(text, words, place):
            names.append(word)
    return names


def _is_capitalised(word: Word) -> bool:
    """Return True for a content word with a capital."""
    return word.is_content and word.text[0].isupper()


def begins_sentence(text: str, word: Word) -> bool:
    """Return True if this word is the first of its sentence."""
    near = max(0, word.start - 3)
    found = _SENTENCE_BEGINS.search(text, near, word.start)
    return found is not None


def _leads_name(text: str, words: Sequence[Word], place: int) -> bool:
    if place + 1 == len(words):
        return False
    word, following = words[place], words[place + 1]
    between = text[word.end : following.start]
    return between == " " and _is_capitalised(following)


def negations_of(text: str) -> list[Negation]:
    """Return the negations of an English text, in order."""
    words = words_of(text)
    negations: list[Negation] = []
    for place, word in enumerate(words):
        if not _is_negation(words, place):
            continue
        if word.text.istitle() and not begins_sentence(text, word):
            continue  # a name, such as the option "None"
        denied = _denied(text, words, place)
        negation = Negation(word.start, word.end, denied)
        negations.append(negation)
    return negations


def _is_negation(words: Sequence[Word], place: int) -> bool:
    """Return True for a negation, unless it is the first word of "not only"."""
    lower = words[place].text.lower()
    if lower.endswith(("n't", "n’t")):
        return True
    following = words[place + 1 : place + 2]
    is_only = [word.text.lower() for word in following] == ["only"]
    if lower == "not" and is_only:
        return False
    return lower in _NEGATIONS


def _denied(text: str, words: Sequence[Word], place: int) -> tuple[str, ...]:
    negation = words[place]
    is_determiner = negation.text.lower() in _DETERMINERS
    boundary = _BOUNDARY.search(text, negation.end)
    end = boundary.start() if boundary else len(text)
    denied: list[str] = []
    for word in words[place + 1 :]:
        is_verb = word.text.lower() in _AUXILIARIES
        if word.start >= end or (is_determiner and is_verb):
            break
        is_number = word.text[0].isdigit() or word.stem == "one"
        if word.is_content and not is_number:
            denied.append(word.stem)
    return tuple(denied[:_REACH])


def opposites_of(stems: Iterable[str], others: frozenset[str]) -> set[str]:
    """Return the stems of which the other text has the negated form, or the other way round."""
    opposite: set[str] = set()
    for each in stems:
        if len(each) < _LONG:
            continue
        denied = {prefix + each for prefix in _PREFIXES}
        affirmed = {each.removeprefix(prefix) for prefix in _PREFIXES}
        long = {other for other in affirmed if len(other) >= _LONG}
        is_opposite = bool(others & (denied | long))
        if is_opposite and each not in others:
            opposite.add(each)
    return opposite
