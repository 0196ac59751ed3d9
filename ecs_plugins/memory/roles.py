"""Who fills a role beside somebody: a manager, a landlord, a girlfriend; one at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ecs_plugins.memory.statements import Assertion
from ecs_plugins.memory.wording import word_list

OWN: Final = (
    r"(?:my|our|the|mein|meine|unser|unsere|mon|ma|notre|mi|nuestro|nuestra|il mio|la mia|mio|mia)"
)
_ROLES: Final = {
    "boss": "boss|chef|chefin|cheffe|jefe|jefa|capo",
    "manager": "manager|managerin|line manager|supervisor",
    "partner": "girlfriend|boyfriend|partner|fiancée?|wife|husband|copine|copain|novia|novio"
    "|fidanzat[ao]|freundin",
    "landlord": "landlord|landlady|vermieter|vermieterin|propriétaire|casero|casera",
    "therapist": "therapist|psychologist|shrink|therapeut|therapeutin",
    "dentist": "dentist|zahnarzt|zahnärztin|dentiste|dentista",
    "doctor": "doctor|gp|physician|hausarzt|hausärztin|médecin|médico|médica|medico",
    "lawyer": "lawyer|attorney|solicitor|anwalt|anwältin|avocate?|abogad[oa]|avvocat[oa]",
    "coach": "coach",
    "trainer": "trainer|personal trainer",
    "mentor": "mentor",
    "ceo": "ceo",
    "cto": "cto",
    "lead": "team lead|tech lead|team leader|project lead|head of \\w+",
    "accountant": "accountant|bookkeeper|tax advisor|steuerberater|steuerberaterin",
    "vet": "vet|veterinarian",
    "hairdresser": "hairdresser|barber",
    "roommate": "roommate|flatmate",
    "assistant": "assistant|secretary",
    "nanny": "nanny",
    "babysitter": "babysitter|childminder",
    "cleaner": "cleaner",
    "president": "president",
    "chair": "chair|chairman|chairwoman",
    "principal": "principal|headmaster",
    "captain": "captain",
}
ROLE: Final = f"(?:{'|'.join(_ROLES.values())})"
_ROLE_OF: Final = [(re.compile(words), role) for role, words in _ROLES.items()]
_TITLES: Final = word_list(
    """dr mr mrs ms prof professor herr frau von van de doctor sir dottor dottoressa docteur doctora
    señor señora monsieur madame signor signora il la el le"""
)
_NEW: Final = r"(?:new|neue?r?|nouve(?:au|lle)|nuev[oa]|nuov[oa])"
_IS: Final = (
    r"(?:is|ist|est|es|è|be|s appelle|se llama|si chiama|heisst|is called|is named|will be|became)"
)
_NOW: Final = r"(?: (?:now|jetzt|nun|maintenant|ahora|adesso))?"
_SAID: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"^{_NOW} {OWN}(?: {_NEW})? (?P<role>{ROLE})(?:'s name)?{_NOW} {_IS}{_NOW} "
        rf"(?P<who>\S+(?: \S+){{0,2}}?){_NOW} $",
        rf"^ (?:i|we) (?:have |just |finally |now )*(?:have|got|found|hired|chose) (?:an? )?{_NEW}"
        rf" (?P<role>{ROLE}) (?:called |named )?(?P<who>\S+(?: \S+){{0,2}}?) $",
        rf"^ (?:i|we) (?:have |just |now )*(?:switched|changed|moved) (?:over )?to "
        rf"(?P<who>\S+(?: \S+){{0,2}}?) as {OWN}(?: {_NEW})? (?P<role>{ROLE}) $",
        rf"^ (?:i|we) (?:have |just |now )*(?:switched|changed) {OWN} (?P<role>{ROLE}) to "
        r"(?P<who>\S+(?: \S+){0,2}?) $",
        rf"^ (?P<who>\S+(?: \S+){{0,2}}?) (?:took over|takes over|stepped in|started|starts) as "
        rf"{OWN}(?: {_NEW})? (?P<role>{ROLE}) $",
        rf"^ (?P<who>\S+(?: \S+){{0,2}}?) (?:replaced|replaces|succeeded|succeeds) \S+(?: \S+)?? "
        r"as "
        rf"{OWN}(?: {_NEW})? (?P<role>{ROLE}) $",
    )
)
_PAIR: Final = re.compile(
    r"^ (?:i am|i ve been|i have been|we are) (?:now |currently )?(?:dating|seeing|going out with"
    r"|married to|engaged to|together with|in a relationship with) (?P<who>\S+)(?: \S+)?? $"
)
_TIME: Final = (
    r"(?: (?:last \w+|yesterday|today|recently|this \w+|in \w+|on \w+|a \w+ ago|two \w+ ago"
    r"|for good|now|vor \w+ \w+|letzte \w+|gestern|hier|ayer|ieri|la semana pasada))?"
)
_PARTED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"^ i am (?:still |now |happily |currently )*(?:single|unattached|divorced|separated)"
        r"(?: now)? $",
        r"^ (?:(?:\w+ and i|we|i and \w+) (?:have |just |finally |recently )*(?:broke up|broken up"
        r"|split up|split|parted ways|separated|called it quits|ended (?:it|things|our "
        r"relationship)"
        rf"|(?:are|am) (?:no longer|not)(?: a couple| together| dating| an item)+(?: any ?more)?)"
        rf"){_TIME} $",
        r"^ i (?:have |just |finally )*(?:broke up with|broken up with|split up with|dumped"
        r"|ended (?:it|things) with) (?:my (?:girlfriend|boyfriend|partner|wife|husband|fiancée?)"
        rf"|\w+){_TIME} $",
        r"^ (?:\w+|my (?:girlfriend|boyfriend|partner|wife|husband|fiancée?)) (?:has |just )*"
        rf"(?:broke up with|broken up with|left|dumped|divorced) me{_TIME} $",
        r"^ (?:\w+ and i|we) (?:have |just )*(?:called off|broke off|ended) (?:the|our) "
        r"(?:engagement|wedding"
        r"|marriage|relationship) $",
        r"^ i am (?:single|on my own|alone) (?:again|now) $",
        rf"^ (?:\w+ und ich|wir) (?:haben uns|sind) (?:\w+ )?getrennt{_TIME} $",
        rf"^ (?:\w+ et moi|nous) (?:on |nous )?(?:s |nous )?(?:est|sommes|avons)? ?(?:séparés"
        rf"|rompu|avons rompu|sommes séparés){_TIME} $",
        rf"^ (?:\w+ y yo|nosotros) (?:ya )?(?:hemos )?(?:terminado|terminamos|rompimos|roto"
        rf"|nos separamos|lo dejamos|cortamos){_TIME} $",
        rf"^ (?:io e \w+|\w+ e io|noi) ci siamo (?:lasciati|lasciate|separati){_TIME} $",
    )
)
_IS_ONESELF: Final = re.compile(rf"^ i am{_NOW} (?:the|our) (?P<role>{ROLE})(?: of .*)?{_NOW} $")
_REPORTS: Final = re.compile(rf"^ i{_NOW} report{_NOW} to (?P<who>\S+(?: \S+)??){_NOW} $")
_HAS_ROLE: Final = re.compile(rf" {ROLE} ")
_NOBODY: Final = "nobody"


def roles(text: str, names: set[str]) -> Iterator[Assertion]:
    """Who fills which role, by what `spoken` makes of a clause, and its names.

    Args:
        text: Words in small letters, each with a space before and behind it.
        names: Those that may be somebody's.
    """
    if _HAS_ROLE.search(text) is not None:
        yield from _filled(text, names)
    reports = _REPORTS.match(text)
    if reports is not None and _is_somebody(reports["who"], names):
        for role in ("boss", "manager"):
            yield Assertion(f"role {role}", _person(reports["who"]))
    pair = _PAIR.match(text)
    if pair is not None and pair["who"] in {*names, "someone", "somebody"}:
        yield Assertion("role partner", pair["who"])
    if any(pattern.match(text) for pattern in _PARTED):
        yield Assertion("role partner", _NOBODY)


def _filled(text: str, names: set[str]) -> Iterator[Assertion]:
    """Who fills the role that a clause names."""
    for pattern in _SAID:
        said = pattern.match(text)
        if said is not None and _is_somebody(said["who"], names):
            yield Assertion(f"role {_role(said['role'])}", _person(said["who"]))
            return
    oneself = _IS_ONESELF.match(text)
    if oneself is not None:
        yield Assertion(f"role {_role(oneself['role'])}", "i")


def _role(wording: str) -> str:
    """The role that a wording in any language means."""
    for pattern, role in _ROLE_OF:
        if pattern.fullmatch(wording) is not None:
            return role
    return wording


def _is_somebody(who: str, names: set[str]) -> bool:
    """Whether words are somebody's name, with or without a title."""
    words = {*who.split()}
    return bool(words & names) and words <= names | _TITLES


def _person(who: str) -> str:
    """Somebody's name without titles."""
    words = [word for word in who.split() if word not in _TITLES]
    return " ".join(words)
