"""What a statement claims, and so which newer one corrects it; rather misses one than invents one.

A statement claims a value (a number, a day, a name) for the rest of its words if its relation has
one value at a time: "is", "lives in", "costs", and not "likes" or "met". And it claims that it is
so; negated, that it is not. First the words are brought to one form: "moved to" is "lives in", and
"now" is left out. Questions, suppositions, plans, the past and additions claim nothing. Relations
are known in English, and some in German, French and Spanish.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ecs_plugins.common.text import WORD, asks, sentence_spans
from ecs_plugins.memory.wording import IN_WORDS, word_list

_MOST_CHARACTERS = 300  # of a text that is looked at
_MOST_WORDS = 16  # of a sentence
_SHARE = 0.6  # of a text that a sentence makes up, so that the text falls with it

_TOKEN = re.compile(r"\w+(?:'s\b|[.,:/@-]\w+)*")
_ENDING = re.compile(r"(?<=\w\w\w)(?:ing|es|ed|s|e)$")
_LEAD = re.compile(r"^\W*(?:(?:no|yes|well|oh|hey|ok|okay|so|nein|ja|non|oui|sí)\s*[,:!]+\s*)+")
_SHORT = ("can't", "can not"), ("won't", "will not"), ("n't", " not"), ("'m", " am")
_ENDED = re.compile(
    r" (?:no longer|stopped|quit|gave up|nicht mehr|ya no|not(?= .* any ?more | .* any longer )"
    r"|kein(?:e|en)?(?= .*mehr )|ne?(?= .* plus ))(?= )"
)
_MARKS = re.compile(
    " (?:now|currently|actually|any ?more|any longer|these days|from now on|instead|again|sorry"
    "|oops|correction|update|new|the|just|jetzt|nun|inzwischen|mehr|neue[rs]?|maintenant|plus"
    "|ahora|perdón|nuev[oa])(?= )"
)
_NEGATION = re.compile(" (?:do |does )?(?:not|never|no|nicht|keine?n?|nie|ne|n|pas|nunca)(?= )")
_RELATIONS = {
    " moved": "(?:(?:has|have|had|been|is|was|are|were) )*(?:moved|relocated|rescheduled|postponed"
    "|pushed|changed|went up|increased|dropped)(?: back)? (?:in)?to",
    " live": "(?:am |is |are )?(?:lives?|living|based) in|(?:wohn|leb)e?[nt]? in|habite à|vive en",
    " work": "(?:am |is |are )?(?:work(?:s|ing)?|started working|got a job) (?:at|for)|joined"
    "|arbeitet?e? bei|travaille chez",
    " yo moved": "me mudé a",
    " yo live": "vivo en",
    " be": "am|is|are|ist|bin|sind|est|suis|sont|es|está|son",
    " have": "has",
    " prefer": "prefers",
}
_RELATION = re.compile(f" (?:{'|'.join(f'({each})' for each in _RELATIONS.values())})(?= )")
_BECOMES = ("", *_RELATIONS)

_OPEN = word_list(
    """if would could might may maybe perhaps probably wish suppose imagine unless whether will
    plan plans planning want wants hope hoping think guess wonder considering should going used was
    were had did said says told also too another additionally both other nothing nobody none or
    wenn würde vielleicht auch noch war hatte si aussi était peut también quizás otro era"""
)
_UNCLEAR = word_list(
    """it he she they this that these those there here who what which one someone everyone every a
    an some any as but and because when es er sie das dies il elle ce cela esto eso let thanks"""
)
_ONE_VALUE = word_list(
    """be moved live work have prefer cost costs weigh weighs starts ends opens closes begins
    departs leaves arrives meet kostet beginnt heißt coûte commence cuesta empieza"""
)
_MANY = word_list(  # subjects of "is" that are several
    """friend friends colleague brother sister cousin uncle aunt kid child son daughter neighbor
    neighbour hobby answer result score weather temperature question problem topic thing today"""
)
_NAMED = word_list("favorite favourite lieblingsfarbe préféré name address adresse nombre nom")
_OWN = word_list("my our mein meine unser unsere mon ma notre mi nuestro nuestra")
_PREPOSITIONS = word_list("at on in for am um à le el la")
_TAIL = word_list("last this next since because so with as in seit depuis desde")
_FUNCTION = word_list("a an be in at on to of for from do does ein eine einen un une en à de")


class Claim(NamedTuple):
    """What a sentence says of something.

    Attributes:
        key: Of what; two claims of one key with different values contradict each other.
        value: What is said.
        corrects: Whether what was said before falls.
        falls: Whether its text falls with it: it makes up most of that.
    """

    key: str
    value: str
    corrects: bool
    falls: bool


def claims(text: str) -> list[Claim]:
    """What a text claims; nothing if it is long.

    >>> [(claim.key, claim.value) for claim in claims("Ada moved to Oslo last month.")]
    [('ada live name', 'oslo'), ('ada mov oslo last month', 'yes')]
    """
    found: list[Claim] = []
    spans = sentence_spans(text) if len(text) <= _MOST_CHARACTERS else []
    for sentence in (text[start:end].strip() for start, end in spans):
        words = sentence.count(" ") + 1
        if words <= _MOST_WORDS and not asks(sentence):
            falls = words >= _SHARE * (text.count(" ") + 1)
            found += [Claim(*claim, falls) for claim in _claimed(sentence)]
    return found


def _claimed(sentence: str) -> list[tuple[str, str, bool]]:
    text = _LEAD.sub("", sentence.casefold().replace("\u2019", "'"))
    for short, full in _SHORT:
        text = text.replace(short, full)
    said, ended = _ENDED.subn(" not", f" {' '.join(_TOKEN.findall(text))} ")
    said, marks = _MARKS.subn("", said)
    said = _RELATION.sub(lambda found: _BECOMES[found.lastindex or 0], said)
    said, negations = _NEGATION.subn("", said)
    words = said.split()
    names = {word.casefold() for word in WORD.findall(sentence)[1:] if not word.islower()}
    if not _OPEN.isdisjoint({*words} - names) or not _UNCLEAR.isdisjoint(words[:2]):
        return []
    found = [] if negations else _valued(words, names, bool(marks))
    content = [_ENDING.sub("", word) for word in words if word not in _FUNCTION]
    corrects = len(content) > 2 or bool(ended or (marks and not negations))
    if 2 <= len(content) <= 6 and (corrects or not negations):
        found.append((" ".join(content), "no" if negations % 2 else "yes", corrects))
    return found


def _valued(words: list[str], names: set[str], marked: bool) -> list[tuple[str, str, bool]]:
    """The value that a sentence gives its subject, if the relation has one at a time."""
    at = next((at for at, word in enumerate(words[:7]) if at and word in _ONE_VALUE), None)
    if at is None or at + 1 == len(words) or words[at - 1] in _MANY:
        return []
    subject, relation, rest = words[:at], words[at], words[at + 1 :]
    place = rest.pop(0) if len(rest) > 1 and rest[0] in _PREPOSITIONS else ""
    kinds = [_kind(word, names) for word in rest]
    what, is_named = kinds[0], relation == "be" and not _NAMED.isdisjoint(subject)
    corrects = marked or is_named or what != "word"
    end = next((end for end, kind in enumerate(kinds) if kind != what), len(rest))
    what, end = ("name", len(rest)) if is_named else (what, end)
    after = [] if rest[end:] and rest[end] in _TAIL else rest[end:]
    if relation == "moved":
        relation = "live" if what == "name" else "be"
    lives = relation in ("live", "work")
    place = "" if lives or what == "number" else place
    owned = relation == "be" and (place or is_named or not _OWN.isdisjoint(subject))
    known = (
        not lives
        if what == "number"
        else not after and (lives or owned if what == "name" else relation == "prefer")
    )
    key = " ".join(filter(None, [*subject, relation, place, what, *after]))
    return [(key, " ".join(rest[:end]), corrects)] if known and end <= 4 else []


def _kind(word: str, names: set[str]) -> str:
    if word in IN_WORDS or any(map(str.isdigit, word)) or word in {"may", "march"} & names:
        return "number"
    return "word" if names.isdisjoint(WORD.findall(word)) else "name"
