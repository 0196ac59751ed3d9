"""Plans that a sentence makes or calls off: a plan holds until it is called off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ecs_plugins.memory.statements import Assertion, is_number
from ecs_plugins.memory.wording import IN_WORDS, word_list

EVENTS = word_list(
    """trip flight journey holiday vacation visit party dinner lunch breakfast meeting appointment
    concert call class game match wedding interview date standup conference workshop lesson picnic
    barbecue delivery treffen termin hochzeit abendessen reise
    besprechung konzert réunion dîner déjeuner rendez mariage concert voyage entretien reunión cena
    cita boda fiesta viaje concierto entrevista riunione festa viaggio matrimonio appuntamento
    встреч поездк свадьб вечеринк ужин обед концерт"""
)
_TRAVELS = word_list("flying going travelling traveling driving fly travel trip flight journey")
_CALLED_OFF = re.compile(
    r" (?:cancell?ed|called off|(?:is|are) (?:all )?off|not (?:happening|taking place)|fell through"
    r"|no longer happening|(?:will not|not going to|will no longer) (?:happen|take place)"
    r"|(?:had|have|has) to cancel|scrapped|decided against|backed out of|pulled out of"
    r"|can not (?:make it to|attend|come to)) "
)
_GIVEN_UP = re.compile(r" (?:not|no longer) (?:flying|going|travell?ing|driving) (?:.* )?to ")
_ON_AGAIN = re.compile(r" (?:back on|on again|is on after all) ")
_CALLED_OFF_WORDS = word_list("cancelled canceled off happening")
_MOVES = word_list(
    """cancelled canceled called moved postponed rescheduled pushed shifted changed delayed bumped
    rebooked"""
)
_MOVER = re.compile(
    r"(?P<who>[A-Z]\w+) (?:has |had |just |to |finally )*(?:cancell?ed|called|moved|postponed"
    r"|pushed"
    r"|rescheduled|delayed|shifted|bumped|brought|changed|wants"
    r"|a (?:reporté|déplacé|décalé|avancé|annulé)) "
)
_ANEW = re.compile(r" (?:now|instead|new time|moved to|after all) ")
_EVENT_MODIFIERS = re.compile(
    r" (?:der|die|das|le|la|el|il|mein|meine|mon|ma|mi|mio|mia|the|my|our|a|an|of|on|at|for|with"
    r"|is|was|have|has|cancell?ed) "
)


def plans(text: str, names: set[str]) -> Iterator[Assertion]:
    """That something planned is on, or off, by what `spoken` makes of a clause, and its names."""
    words = text.split()
    event = _event(words)
    if event is None:
        return
    days = [word for word in words if is_number(word, names)]
    with_whom = sorted(names.difference(days, IN_WORDS, {"i"}))
    described = _described(words, event, names)
    about = " ".join([*described, event, *with_whom])
    when = " ".join(days)
    is_off = _is_off(text)
    if when and with_whom and not is_off:
        yield Assertion(f"when {about}", when, _is_moved(text, words))
    value = "off" if is_off else "on"
    corrects = is_off or _ON_AGAIN.search(text) is not None
    if when:
        yield Assertion(f"plan {about} {when}", value, corrects)
    if not when or not corrects:
        yield Assertion(f"plan {about}", value, corrects)


def _is_off(text: str) -> bool:
    """Whether it is said that something planned does not take place."""
    return _CALLED_OFF.search(text) is not None or _GIVEN_UP.search(text) is not None


def _is_moved(text: str, words: list[str]) -> bool:
    """Whether it is said that something planned has another time."""
    return not _MOVES.isdisjoint(words) or _ANEW.search(text) is not None


def mover(clause: str) -> set[str]:
    """Whoever leads a clause and moves a plan or calls it off."""
    led = _MOVER.match(clause)
    return set() if led is None else {led["who"].casefold()}


def _event(words: list[str]) -> str | None:
    """What is planned; a journey only if it says where to."""
    events = [word for word in words if word in EVENTS]
    event = events[0] if events else None
    is_journey = event in _TRAVELS
    if event is None:
        is_journey = not _TRAVELS.isdisjoint(words)
    if not is_journey:
        return event
    return "trip" if "to" in words or not _CALLED_OFF_WORDS.isdisjoint(words) else None


def _described(words: list[str], event: str, names: set[str]) -> list[str]:
    """The word before an event that says which it is, such as "dentist"."""
    if event not in words:
        return []
    at = words.index(event)
    before = words[at - 1] if at else ""
    if before in names or not before.isalpha():
        return []
    if _EVENT_MODIFIERS.fullmatch(f" {before} ") is not None:
        return []
    return [before]
