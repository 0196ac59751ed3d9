"""What a sentence says in its plain form, so that statements of one thing have the same words.

Everyday wordings are brought to one form: "relocated to" and "based in" become "lives in", "they
changed the code to" becomes "the code is", "now" is left out and remembered as a mark of a change.
Relations are known in English, and some in German, French, Spanish, Italian and Russian.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ecs_plugins.common.text import WORD
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
_CONTRACTED = ("can't", "can not"), ("won't", "will not"), ("n't", " not"), ("'m ", " am ")

_CHANGING = (
    "moved|relocated|rescheduled|postponed|pushed|changed|upgraded|switched|migrated|updated|raised"
    "|lowered|cut|extended|increased|dropped|rose|went up|went down"
)
_PUT_OFF = "postponed|rescheduled|moved|pushed|shifted|delayed|brought forward"
_HAVE_NEW = "(?:just |have |now )*(?:got|have) an? new"
_THINGS = "laptop|computer|phone|car|bike|tablet|camera|printer|motorbike|scooter"
_RUSSIAN: Final = (
    (r"^ (?:our )?(?=мо[йяё] |наш)", " "),  # behind a label
    (r"^ мы (?=переехали |развелись |поженились )", " я "),
    (r"^ our у меня нов(?:ый|ая|ое) (?P<what>\D+?) is ", r" мой \g<what> is now "),
    (r" номер телефона | телефон(?= (?:is )?\d)", " номер "),
    (r"^ (?P<what>мой (?:\w+ ){0,2}номер) (?=\d)", r" \g<what> is "),
    (r" (?:живу|живём|живем|живёт|живет) в ", " lives in "),
    (r" переехал[аи]? в ", " moved to "),
    (r" работа(?:ю|ет) в ", " works at "),
    (r" (?:устроил(?:ся|ась)|переш(?:ёл|ел|ла)) (?:на работу )?в ", " now works at "),
    (r" (?:уволил(?:ся|ась)) из ", " no longer works at "),
    (r"^ я (?:холост|не женат|не замужем) ", " я is single "),
    (r"^ я (?:женился|вышла замуж|женат|замужем|поженились) ", " я is married "),
    (r"^ я (?:разв[её]лся|развелась|развелись|в разводе) ", " я is divorced "),
    (r"^ я бросила? курить ", " я больше не курю "),
    (r" (?:отменен[аоы]?|отмен[её]н[аоы]?|отменили|не состоится) ", " is off "),
    (r" перенес(?:ен[аоы]?|ён|ли) на ", " moved to "),
    (
        r"^ (?P<what>(?:встреча|приём|прием|ужин|обед|концерт)(?: с \w+)?) в (?=\d)",
        r" \g<what> is ",
    ),
)
_ARABIC: Final = (
    (r"^ لم أعد (\w+?)ا? $", r" أنا no longer \1 "),
    (r"^ (?=لا [أآ])", " أنا "),
    (r"^ أصبحت ", " أنا الآن "),
    (r"^ (أ\w+) $", r" أنا \1 "),
)
_CYRILLIC_ENDING = re.compile(r"(?<=[а-яё]{3})[аеёиоуыэюяйь]{1,4}(?=\s|$)")
"""What Russian words are inflected by, mostly."""

_SAME = ((" our ", " my "), (" il mio ", " mio "), (" la mia ", " mia "))


class _EverydayWording(NamedTuple):
    """An everyday wording and its plain form.

    Attributes:
        signs: Words one of which a sentence has that is worded so; the others are not looked at.
        pattern: The wording.
        plain: What takes its place.
    """

    signs: frozenset[str]
    pattern: re.Pattern[str]
    plain: str


def _worded(signs: str, pattern: str, plain: str) -> _EverydayWording:
    return _EverydayWording(frozenset(re.findall(r"\w+", signs)), re.compile(pattern), plain)


_EVERYDAY: Final = (
    # Who found out is no part of what is so.
    _worded(
        "test tests doctor result results vet",
        r" the (?:test|tests|doctor|results?|vet) (?:says?|said|shows?|showed)(?: that)? ",
        " ",
    ),
    _worded("out", r" it (?:turns|turned) out(?: that)? ", " "),
    # Somebody changed it.
    _worded(
        "changed updated reset",
        r" (?:they|we|i|someone|he|she|the \w+) (?:have |has |just )*(?:changed|updated|reset) "
        r"(?P<what>(?:the|my|our) \S+(?: \S+){0,5}?) to ",
        r" \g<what> is now ",
    ),
    _worded(
        "change",
        r"^ change (?P<what>(?:the|my|our) \S+(?: \S+){0,3}?) to ",
        r" \g<what> is now ",
    ),
    # What one has one of
    _worded(
        _THINGS,
        rf"^ my (?P<what>new |)(?P<thing>{_THINGS}) is an? ",
        r" my \g<what>\g<thing> is ",
    ),
    _worded("drive own ride", r"^ i (?:drive|own|ride) an? ", " i have a "),
    _worded(
        "traded swapped exchanged",
        r"^ (?:i|we) (?:traded|swapped|exchanged) (?:in )?my (?P<old>\w+) for .* $",
        r" i no longer have a \g<old> ",
    ),
    _worded(
        "size",
        r"^ i (?:am|wear|take)(?: a| now)? size (?=\w+ (?:now )?$)",
        " my size is ",
    ),
    _worded(
        "plan",
        r"^ (?:i|we) (?:am|are) on (?:the|an?) (?P<plan>\w+) plan ",
        r" my tier is \g<plan> ",
    ),
    _worded(
        "plan",
        r"^ (?:i|we) (?:have |just )*(?:up|down)graded to (?:the|an?) (?P<plan>\w+) plan ",
        r" my tier is now \g<plan> ",
    ),
    # Somebody put it off.
    _worded(
        _PUT_OFF,
        r" (?:they|we|i|someone|he|she|the \w+) (?:have |has |had |just |to )*"
        rf"(?:{_PUT_OFF}) (?P<what>(?:the|my|our) \S+(?: \S+){{0,3}}?) "
        r"(?:back |forward |out )?to ",
        r" \g<what> moved to ",
    ),
    # There is a new one.
    _worded(
        "new",
        rf"^ our (?:i|we) {_HAVE_NEW} (?P<what>\S+(?: \S+){{0,2}}?) is ",
        r" my \g<what> is now ",
    ),
    _worded(
        "new",
        rf"^ (?:i|we) {_HAVE_NEW} (?P<what>\w+(?: (?:number|address|code))?) (?=\S*[\d@])",
        r" my \g<what> is now ",
    ),
    _worded(
        "use",
        r"^ use (?P<value>\S+(?: \S+){0,2}?) as (?P<what>(?:my|our|the) \S+(?: \S+)?) "
        r"(?:from now on |instead |now )*$",
        r" \g<what> is now \g<value> ",
    ),
    _worded(_CHANGING, rf" (?P<verb>{_CHANGING}) from \S+(?: \S+){{0,2}}? to ", r" \g<verb> to "),
    # Health
    _worded(
        "allergy",
        r" (?:outgrew|got over|lost) (?:my|the) (\w+) allergy ",
        r" am not allergic to \1 ",
    ),
    _worded("allergy", r" (?:have|has) an? (\w+) allergy ", r" am allergic to \1 "),
    # Habits
    _worded(
        "started began took", r" (?:have |has )?(?:started|began|took up) (?=\w+ing )", " now "
    ),
    # Marriage
    _worded(
        "divorced separated married engaged",
        r"^ \w+ and i (?:have |are |were |got )*(?=(?:divorced|separated|married|engaged) )",
        " i am ",
    ),
    _worded(
        "up",
        r"^ \w+ and i (?:have |are |were |got )*(?:split up|broke up) ",
        " i am separated ",
    ),
    _worded("got", r" got (?=divorced |separated |married |engaged )", " am "),
    # Work
    _worded(
        "quit resigned retired laid",
        r" (?:quit my job at|resigned from|retired from|(?:was |got )?laid off (?:from|by)) ",
        " no longer work at ",
    ),
    _worded(
        "hired employed switched",
        r" (?:(?:was|got) (?:hired|employed) (?:by|at)|switched to a job at) ",
        " work at ",
    ),
    _worded("left", r"^ i (?:have |just )*left (?=\w+ $)", " i no longer work at "),
    # Names
    _worded("call", r"^ call me ", " my call name is "),
    # Homes in other languages
    _worded("bin", r" bin (?:\w+ ){0,2}nach (\w+) (?:um)?gezogen ", r" moved to \1 "),
    _worded("ai", r" ai déménagé à ", " moved to "),
    _worded("mi", r" mi sono trasferit[oa] a ", " io live "),
    _worded("abito vivo", r" (?:abito|vivo) a ", " io live "),
    _worded(
        "ich",
        r"^ ich (?:habe geheiratet|bin (?:jetzt )?verheiratet) ",
        " ich is married ",
    ),
    _worded(
        "ich",
        r"^ ich (?:bin (?:jetzt )?geschieden|habe mich scheiden lassen) ",
        " ich is divorced ",
    ),
    _worded("ich", r"^ ich bin (?:single|ledig) ", " ich is single "),
)
_EVERYDAY_IN_OTHER_SCRIPTS: Final = tuple(
    (re.compile(pattern), plain) for pattern, plain in (*_RUSSIAN, *_ARABIC)
)
_ENDED = re.compile(
    r" (?:no longer|stopped|quit|gave up|nicht mehr|ya no|not(?= .* any ?more | .* any longer )"
    r"|kein(?:e|en)?(?= .*mehr )|ne?(?= .* plus )|больш нет?|لم أعد)(?= )"
)
_MARKS = re.compile(
    " (?:now|currently|actually|any ?more|any longer|these days|from now on|instead|again|sorry"
    "|oops|correction|update|new|the|just|recently|jetzt|nun|inzwischen|mehr|neue[rs]?|maintenant"
    "|plus|ahora|perdón|nuev[oa]|nuovo|nuova|ora|adesso"
    "|тепер|сейчас|уже|снов|опят|нов|أصبحت|الآن|مجددا)(?= )"
)
_NO_MARKS = word_list("the just recently")
_NEGATION = re.compile(
    " (?:do |does )?(?:not|never|no|nicht|keine?n?|nie|ne|n|pas|nunca|нет?|لا|لست)(?= )"
)
_RELATIONS = {
    " moved": "(?:am |are )moving to|(?:(?:has|have|had|been|is|was|are|were|got) )*(?:(?:"
    + _CHANGING
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
    text = _reworded(text)
    if not text.isascii():
        for pattern, plain in _EVERYDAY_IN_OTHER_SCRIPTS:
            text = pattern.sub(plain, text)
    for one, other in _SAME:
        text = text.replace(one, other)
    return text if text.isascii() else _CYRILLIC_ENDING.sub("", text)


def _reworded(text: str) -> str:
    """A text with everyday wordings in their plain form."""
    words = {*text.split()}
    for wording in _EVERYDAY:
        if not wording.signs.isdisjoint(words):
            text = wording.pattern.sub(wording.plain, text)
            words.update(text.split())
    return text


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
