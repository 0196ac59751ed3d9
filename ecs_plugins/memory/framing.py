"""What stands around a statement, and statements that lean on what was said just before.

"As of today I live in Rome" and "Update: I live in Rome" say that I live in Rome now. "Dev is my
manager" says who my manager is. In "My number changed, it's 4711" it is my number.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from ecs_plugins.memory.roles import OWN, ROLE

_SIGNS: Final = re.compile(
    r"\b(?:as (?:of|from)|since|from|starting|effective|beginning|update|correction|change|news"
    r"|heads up|fyi|for good|note|remember|record|mind|know|aware|moment|right now|at present"
    r"|nowadays|lately|as we speak|forward|on(?:wards?)?|seit|ab|depuis|dès|à partir|desde|a "
    r"partir|da|dal)\b",
    re.IGNORECASE,
)
_WHEN: Final = (
    r"(?:now|today|yesterday|tomorrow|tonight|heute|gestern|morgen|sofort|aujourd.hui|hier|hoy|ayer"
    r"|oggi|ieri|(?:this|last|next|the|letzte[rnm]?|diese[rnm]?|nächste[rnm]?|la|le|el|il"
    r"|este|esta|questa|questo) [\w ]{2,24}?|\w+day|january|february|march|april|may|june|july"
    r"|august|september|october|november|december|\d[\w. ]{0,12}|[12]\d\d\d"
    r"|januar|februar|märz|mai|juni|juli|oktober|dezember|\w+tag)(?: (?:on(?:wards?)?|an|ora))?"
)
_SINCE: Final = (
    r"(?:as of|as from|since|from|starting|effective|beginning|seit|ab|depuis|dès|à partir d[eu]"
    r"|desde|a partir de|da|dal)"
)
_LEADS: Final = (
    re.compile(
        r"^(?:(?:a |quick |small |short |good |bad |great |big )*"
        r"(?:update|correction|news|heads up|fyi|(?:\w+ )?change(?: of plans?)?))"
        r"\s*[:,\u2013-]+\s*",
        re.IGNORECASE,
    ),
    re.compile(
        r"^(?:please |can you |could you |can we |just )*(?:note|remember|record|keep in mind|know"
        r"|be aware|noting)(?: that|:) ",
        re.IGNORECASE,
    ),
    re.compile(rf"^{_SINCE} (?!what |here |there )[^,]{{2,40}},\s+", re.IGNORECASE),
    re.compile(
        rf"^{_SINCE} {_WHEN} (?=(?:i|i'm|we|my|our|you|he|she|\w+ (?:ich|wir)|vivo|lavoro|trabajo"
        r"|je|j')\b)",
        re.IGNORECASE,
    ),
)
_TRAILS: Final = (
    re.compile(rf",? {_SINCE} {_WHEN}(?=[.!]*$)", re.IGNORECASE),
    re.compile(r" since (?:i|we|they|he|she|the) [\w ]+(?=[.!]*$)"),
    re.compile(r",? (?:for good|going forward|from here on|once and for all)(?=(?: now)?[.!]*$)"),
    re.compile(r",? (?:at the moment|right now|at present|nowadays|lately|as we speak)(?=[.!]*$)"),
)
_EVENT: Final = re.compile(
    r"\b(?:started|joined|moved|left|quit|cancell?ed|retired|sold|bought|got|became|switched"
    r"|changed"
    r"|stopped|ended|turned|finished|replaced|graduated|migrated|closed|returned|relocated|signed"
    r"|upgraded|gave up|took over|took up|broke|resigned|hired|promoted|married|divorced|began|bin"
    r"|habe|ai|suis|he|empecé|sono|ho)\b",
    re.IGNORECASE,
)
_EVENT_TIME: Final = re.compile(
    r"(?<! to)(?<! for),? (?:yesterday|today|recently|the other day|(?:last|this) [a-z]+(?: "
    r"morning)?"
    r"|(?:on|in|since) (?:last )?(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february"
    r"|march|april|may|june|july|august|september"
    r"|october|november|december|20\d\d)|(?:an?|two|three|\d+) \w+ ago|gestern|heute|letzte \w+"
    r"|hier|ayer|ieri)(?=[.!]*$)",
    re.IGNORECASE,
)
_VERB_FIRST: Final = re.compile(r"^(?P<verb>\w+) (?P<who>ich|wir) ", re.IGNORECASE)
_INVERTED: Final = re.compile(
    r"^(?P<who>[A-Z][\w-]*\.?(?: [A-Z][\w-]*){0,2}) (?:is|became|ist|est|es|è|will be)"
    rf"(?P<now>(?: now| jetzt| nun| maintenant| ahora| adesso)?) (?P<what>{OWN}"
    rf"(?: (?:new|neue?r?|nouve(?:au|lle)|nuev[oa]|nuov[oa]))? {ROLE})"
    r"(?P<tail>(?: now)?)(?=[.!]*$)"
)
_HIRED: Final = re.compile(r"^(?P<where>[A-Z]\S*(?: [A-Z]\S*)?) (?:has |just )*hired me(?=[.!]*$)")
_LINK: Final = re.compile(r"^(?:so|and|but|now) (?=[A-Z])")
_PRONOUN: Final = re.compile(
    r"^(?:and |now )?(?P<pronoun>it|he|she|they|c|elle|il)(?P<verb>(?= (?:leaves|starts|ends"
    r"|costs|opens"
    r"|closes|lives|works|goes|takes|runs|departs|arrives|begins|weighs))|'s| is|'re| are| has| was"
    r"|['\u2019]est| est)(?= )",
    re.IGNORECASE,
)
_VERBS: Final = {" has": " has", "": ""}
_CHANGED: Final = re.compile(
    r"\b(?:changed|rebooked|switched|got (?:a )?new|got an?|is delayed|moved|updated|reset"
    r"|replaced|grew"
    r"|renamed|got promoted|transferred|new)\b",
    re.IGNORECASE,
)
_MARKED: Final = re.compile(
    r"\b(?:now|anymore|no longer|not|instead|because|since|used to)\b", re.IGNORECASE
)
_PERSON: Final = re.compile(r"^(?P<who>(?:my|our) \w+|[A-Z]\w+)(?= )", re.IGNORECASE)
_THING: Final = re.compile(
    r"\b(?P<what>(?:my|our|the|mon|ma|notre|mein|meine|mi|il mio|la mia) [\w-]+(?: [\w-]+){0,2}?)"
    r"(?= (?:changed|has|have|is|was|are|moved|got|a changé|hat|ha|ist)\b|$|,| again\b| today\b"
    r"| yesterday\b)",
    re.IGNORECASE,
)


def unframed(sentence: str) -> str:
    """A sentence without what stands around its statement, which is then marked as new.

    >>> unframed("As of today, I work from Lisbon.")
    'I work from Lisbon now.'
    >>> unframed("Dev is my manager.")
    'my manager is Dev now.'
    """
    said = sentence
    if _SIGNS.search(said) is not None:
        for frame in (*_LEADS, *_TRAILS):
            said = frame.sub("", said, count=1)
    if said != sentence:
        said = _VERB_FIRST.sub(r"\g<who> \g<verb> ", said)
        said = _ending_in_now(said)
    if _EVENT.search(said) is not None:
        said = _EVENT_TIME.sub("", said)
    said = _LINK.sub("", said)
    said = _HIRED.sub(r"I now work at \g<where>", said)
    role = _INVERTED.match(said)
    if role is None:
        return said
    return _ending_in_now(f"{role['what']} is {role['who']}{said[role.end() :]}")


def _ending_in_now(sentence: str) -> str:
    stripped = sentence.rstrip(" .!")
    return f"{stripped} now{sentence[len(stripped) :].strip() or '.'}"


def resolved(parts: list[str]) -> list[str]:
    """The clauses of a sentence, with nouns for the pronouns that lean on the clause before.

    >>> resolved(["My number changed", "it's 4711 now."])
    ['My number changed', 'My number is 4711 now.']
    """
    told = parts[:1]
    for before, said in pairwise(parts):
        part = said
        if _CHANGED.search(before) is not None and _MARKED.search(said) is None:
            part = _ending_in_now(said)
        pronoun = _PRONOUN.match(part)
        meant = None if pronoun is None else _meant(pronoun["pronoun"].casefold(), before)
        if pronoun is None or meant is None:
            told.append(part)
            continue
        verb = _VERBS.get(pronoun["verb"].casefold(), " is")
        told.append(f"{meant}{verb}{part[pronoun.end() :]}")
    return told


def _meant(pronoun: str, before: str) -> str | None:
    """The noun of the clause before that a pronoun stands for; None if there is none."""
    if pronoun in ("he", "she"):
        person = _PERSON.match(before)
        return None if person is None else person["who"]
    things = _THING.findall(before.rstrip(" .!"))
    return things[-1] if things else None
