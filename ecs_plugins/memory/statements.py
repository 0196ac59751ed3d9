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
    r"^\W*(?:(?:yes|well|oh|hey|ok|okay|so|and|please|by the way|ja|oui|sí"
    r"|(?:no|nein|non)(?=\s*[,:!]|\s+(?:i|my|we|it|the|that|you|he|she|they)\b))\s*[,:!]*\s+)+",
    re.IGNORECASE,
)
_AND = re.compile(
    r"(?<!\s)\s++(?:and|und|et|y|e)\s++"
    r"(?=(?:(?:i|we|now|just|don't|do|am|have|went|moved|live|work|bought|use"
    r"|switched|started|got|bin|habe|wohne|arbeite|esse|trinke|no longer|never|ora|ahora|jetzt"
    r"|maintenant|sono|vivo|lavoro|trabajo|suis|je|ich)\b|i'm\b|j'))",
    re.IGNORECASE,
)
_AND_ANOTHER = re.compile(
    r"(?<!\s)\s++(?:and|und|et|y|e)\s++"
    r"(?=(?:(?:my|our|the) )?\w+ (?:is|has|was|took|became|will|ist|est|es) )",
    re.IGNORECASE,
)
LINKS = word_list("and und et y e")
_SPEAKERS = word_list("i we ich wir je nous yo io")
_CLAUSE = re.compile(
    r"[,;]\s++(?=(?:the|my|our|it|he|she|they|i|we|je|ich|wir|yo"
    r"|but|her|his|because|since|so|and i|and we|c'est)\b"
    r"|[^\W\d_]+ (?:is|was|has|got|moved|left|died)\b)"
    r"|(?<!\s)\s++(?=(?:but|because|although|though)\s)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?P<label>[^\W\d][\w' ]{2,38}):\s+(?P<value>\S.*)")
_LEAST_WORDS = 2
_CONTRACTED = (
    ("can't", "can not"),
    ("won't", "will not"),
    ("n't", " not"),
    ("'m ", " am "),
    ("'ve ", " have "),
    ("'re ", " are "),
    ("'ll ", " will "),
)
_PRONOUN_IS = re.compile(r"\b(it|he|she|that|there|who|what)'s ")

_CYRILLIC_ENDING = re.compile(r"(?<=[а-яё]{3})[аеёиоуыэюяйь]{1,4}(?=\s|$)")
"""What Russian words are inflected by, mostly."""

_SAME = (
    (" favourite ", " favorite "),
    (" my mobile number ", " my phone number "),
    (" my cell number ", " my phone number "),
    (" our ", " my "),
    (" ma ", " mon "),
    (" j ", " je "),
    (" io ", " yo "),
    (" il mio ", " mio "),
    (" la mia ", " mia "),
)
_ENDED = re.compile(
    r" (?:no longer|stopped|quit|gave up|nicht mehr|ya no|not(?= .* any ?more | .* any longer )"
    r"|kein(?:e|en)?(?= .*mehr )|non?(?= .* più )|ne?(?= .* plus )|больш нет?|لم أعد)(?= )"
)
_MARKS = re.compile(
    " (?:now|currently|actually|any ?more|any longer|these days|from now on|instead|again|sorry"
    "|oops|correction|update|new|the|just|recently|finally|after all|jetzt|nun|inzwischen|mehr"
    "|più|wieder|otra vez|di nuovo|de nuevo|de nouveau|à nouveau|only|usually|normally|from here on"
    "|neue[rs]?|maintenant|nouve(?:au|lle|l)|plus|ahora|perdón|nuev[oa]|nuovo|nuova|ora|adesso"
    "|тепер|сейчас|уже|снов|опят|нов|أصبحت|الآن|مجددا)(?= )"
)
_NO_MARKS = word_list("the just recently finally only usually normally")
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
    "|started a new job|employed) (?:at|for|by)|(?:am |is )?join(?:ed|ing)|arbeitet?e? bei"
    "|travaille chez",
    " yo moved": "(?:yo )?me mudé a",
    " yo live": "(?:yo )?vivo en",
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
_FUNCTION = word_list(
    """a an be in at on to of for from do does ein eine einen un une en à de di du des la le les l
    una uno el los las il lo"""
)


ASIDES = word_list("last this next since because so with as in seit depuis desde and")
"""Words that begin an aside."""


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


def halves(clause: str) -> list[str]:
    """What two verbs of one speaker say, each by itself; nothing if there is but one.

    >>> halves("I sold my guitar and don't play anymore.")
    ['I sold my guitar', "I don't play anymore."]
    """
    if LINKS.isdisjoint(clause.split()):
        return []
    others = _AND_ANOTHER.split(clause)
    if len(others) > 1:
        return others
    parts = _AND.split(clause)
    speaker = clause.split(" ", 1)[0]
    if len(parts) == 1 or speaker.casefold() not in _SPEAKERS | {"i'm", "we're", "j'ai"}:
        return []
    told = parts[:1]
    for part in parts[1:]:
        has_speaker = part.casefold().startswith(
            ("i ", "i'm ", "we ", "we're ", "j'", "je ", "ich ")
        )
        told.append(part if has_speaker else f"{speaker.partition(chr(39))[0]} {part}")
    return told


def spoken(clause: str) -> str:
    """The words of a clause in their plain form, each with a space before and behind it."""
    text = reworded(as_said(clause))
    for one, other in _SAME:
        text = text.replace(one, other)
    return text if text.isascii() else _CYRILLIC_ENDING.sub("", text)


def as_said(clause: str) -> str:
    """The words of a clause in small letters, each with a space before and behind it."""
    text = _LEAD.sub("", clause).casefold().replace("\u2019", "'")
    for short, full in _CONTRACTED:
        text = text.replace(short, full)
    text = _PRONOUN_IS.sub(r"\1 is ", text)
    return f" {' '.join(_TOKEN.findall(text))} "


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
