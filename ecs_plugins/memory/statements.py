"""What a sentence says in its plain form, so that statements of one thing have the same words.

Behind everyday wordings (`ecs_plugins.memory.everyday`), relations are brought to one form:
"relocated to" becomes "moved", "now" is left out and remembered as a mark of a change.
Relations are known in English, and some in German, French, Spanish, Italian and Russian.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ecs_plugins.common.text import WORD
from ecs_plugins.memory.everyday import CHANGING, reworded
from ecs_plugins.memory.wording import IN_WORDS, word_list

_TOKEN = re.compile(r"\w+(?:'s\b|[.,:/@-]\w+)*")
_ENDING = re.compile(r"(?<=\w\w\w)(?:ing|es|ed|s|e)$")
_LEAD = re.compile(
    r"^\W*(?:(?:no|yes|well|oh|hey|ok|okay|so|please|by the way|nein|ja|non|oui|sí)\s*[,:!]*\s+)+",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"[,;]\s++(?=(?:the|my|our|it|he|she|they|i|we|but|because|since|so|and i|and we)\b)"
    r"|(?<!\s)\s++(?=(?:but|because|although|though)\s)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?P<label>[^\W\d][\w' ]{2,38}):\s+(?P<value>\S.*)")
_LEAST_WORDS = 3
_CONTRACTED = (
    ("can't", "can not"),
    ("won't", "will not"),
    ("n't", " not"),
    ("'m ", " am "),
    ("'ve ", " have "),
)

_CYRILLIC_ENDING = re.compile(r"(?<=[а-яё]{3})[аеёиоуыэюяйь]{1,4}(?=\s|$)")
"""What Russian words are inflected by, mostly."""

_SAME = ((" our ", " my "), (" il mio ", " mio "), (" la mia ", " mia "))
_ENDED = re.compile(
    r" (?:no longer|stopped|quit|gave up|nicht mehr|ya no|not(?= .* any ?more | .* any longer )"
    r"|kein(?:e|en)?(?= .*mehr )|ne?(?= .* plus )|больш нет?|لم أعد)(?= )"
)
_MARKS = re.compile(
    " (?:now|currently|actually|any ?more|any longer|these days|from now on|instead|again|sorry"
    "|oops|correction|update|new|the|just|recently|finally|after all|jetzt|nun|inzwischen|mehr"
    "|neue[rs]?|maintenant|nouve(?:au|lle|l)|plus|ahora|perdón|nuev[oa]|nuovo|nuova|ora|adesso"
    "|тепер|сейчас|уже|снов|опят|нов|أصبحت|الآن|مجددا)(?= )"
)
_NO_MARKS = word_list("the just recently finally")
_NEGATION = re.compile(
    " (?:do |does )?(?:not|never|no|nicht|keine?n?|nie|ne|n|pas|nunca|нет?|لا|لست)(?= )"
)
_RELATIONS = {
    " moved": "(?:am |are )moving to|(?:(?:has|have|had|been|is|was|are|were|got) )*(?:(?:"
    + CHANGING
    + ")(?: back| over| away| forward)?|brought forward) (?:in)?to",
    " live": "(?:am |is |are )?(?:lives?|living|resides?|based) in"
    "|(?:wohn|leb)e?[nt]? in|habite à|vive en",
    " work": "(?:am |is |are )?(?:work(?:s|ing)?|started working|started a job|got a job"
    "|started a new job|employed) (?:at|for|by)|joined|arbeitet?e? bei|travaille chez",
    " yo moved": "me mudé a",
    " yo live": "vivo en",
    " be": "am|is|are|ist|bin|sind|est|suis|sont|es|está|son|è",
    " have": "has",
    " prefer": "prefers",
}
_RELATION = re.compile(f" (?:{'|'.join(f'({each})' for each in _RELATIONS.values())})(?= )")
_PLAIN_RELATIONS = ("", *_RELATIONS)

UNREAL = word_list(
    """if would could might may maybe perhaps probably wish suppose imagine unless whether hope
    hoping think guess wonder considering said says told kidding joking wenn würde vielleicht si
    peut quizás se есл бы может возможн наверн дума надеюс"""
)
_NOT_NOW = word_list(
    """will plan plans planning want wants going should used was were had did also too another
    additionally both other nothing nobody none or auch noch war hatte aussi était también otro
    era был буд будет хоч хотел тож такж раньш собираюс أريد سوف كنت"""
)
_UNCLEAR = word_list(
    """it he she they this that these those there here who what which one someone everyone every a
    an some any as but and because when es er sie das dies il elle ce cela esto eso let thanks
    он она оно они эт это هو هي"""
)
_FUNCTION = word_list("a an be in at on to of for from do does ein eine einen un une en à de di")


class Statement(NamedTuple):
    """A sentence in its plain form.

    Attributes:
        words: Its words, without negations and marks of a change.
        names: Those that the sentence writes large, casefolded, its first word aside.
        negations: How many there were.
        has_ended: Whether it says that something is so no longer.
        is_marked: Whether it says that something is so now.
    """

    words: list[str]
    names: set[str]
    negations: int
    has_ended: bool
    is_marked: bool

    @property
    def content(self) -> list[str]:
        """The words that say something, without their endings."""
        return [stem(word) for word in self.words if word not in _FUNCTION]


class Assertion(NamedTuple):
    """A claim before its sentence is weighed against the text."""

    key: str
    value: str
    corrects: bool = True


def stem(word: str) -> str:
    """A word without its English ending."""
    return _ENDING.sub("", word)


def clauses(sentence: str) -> list[str]:
    """A sentence's parts that say something of their own; a label counts as a subject.

    >>> clauses("I can eat gluten again, the doctor was wrong.")
    ['I can eat gluten again', 'the doctor was wrong.']
    >>> clauses("Office address: 12 Mill Lane.")
    ['Our Office address is 12 Mill Lane.']
    """
    label = _LABEL.fullmatch(sentence)
    if label is not None and not label["label"].istitle():  # which is somebody's name
        return [f"Our {label['label']} is {label['value']}"]
    parts: list[str] = []
    for part in _CLAUSE.split(sentence):
        if parts and len(parts[-1].split()) < _LEAST_WORDS:  # such as "Sorry", no clause of its own
            parts[-1] += f", {part}"
        else:
            parts.append(part)
    return parts


def spoken(clause: str) -> str:
    """The words of a clause in small letters, each with a space before and behind it."""
    text = _LEAD.sub("", clause).casefold().replace("\u2019", "'")
    for short, full in _CONTRACTED:
        text = text.replace(short, full)
    text = f" {' '.join(_TOKEN.findall(text))} "
    text = reworded(text)
    for one, other in _SAME:
        text = text.replace(one, other)
    return text if text.isascii() else _CYRILLIC_ENDING.sub("", text)


def names_in(clause: str) -> set[str]:
    """The words that a clause writes large, as they are spoken, its first word aside."""
    names = [word.casefold() for word in WORD.findall(clause)[1:] if not word.islower()]
    return {_CYRILLIC_ENDING.sub("", name) for name in names}


def statement(as_spoken: str, names: set[str]) -> Statement | None:
    """What a clause says; None if it says nothing of what is so now, or of something unclear.

    Args:
        as_spoken: What `spoken` makes of a clause.
        names: What `names_in` finds in it.
    """
    text, endings = _ENDED.subn(" not", as_spoken)
    marks = {mark.strip() for mark in _MARKS.findall(text)} - _NO_MARKS
    text = _MARKS.sub("", text)
    text = _RELATION.sub(_plain_relation, text)
    text, negations = _NEGATION.subn("", text)
    words = text.split()
    if not _NOT_NOW.isdisjoint({*words} - names):
        return None
    if not _UNCLEAR.isdisjoint(words[:2]):
        return None
    return Statement(words, names, negations, bool(endings), bool(marks))


def _plain_relation(wording: re.Match[str]) -> str:
    return _PLAIN_RELATIONS[wording.lastindex or 0]


def is_number(word: str, names: set[str]) -> bool:
    """Whether a word is a figure, an address with @, a number or a day in words, or a month."""
    if word in IN_WORDS or "@" in word or any(map(str.isdigit, word)):
        return True
    return word in {"may", "march"} & names


def is_name(word: str, names: set[str]) -> bool:
    """Whether a word is, or holds, one that the sentence writes large."""
    return not names.isdisjoint(WORD.findall(word))


def without_tail(words: list[str], tail: frozenset[str]) -> Iterator[str]:
    """Words up to the first that begins an aside."""
    for word in words:
        if word in tail:
            return
        yield word
