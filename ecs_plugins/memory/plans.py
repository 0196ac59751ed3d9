"""Plans that a sentence makes or calls off: a plan holds until it is called off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ecs_plugins.memory.statements import Assertion, is_number
from ecs_plugins.memory.wording import IN_WORDS, word_list

EVENTS = word_list(
    """trip flight journey holiday vacation visit party dinner lunch breakfast meeting appointment
    concert call class game match wedding interview date standup conference workshop lesson picnic
    barbecue delivery встреч поездк свадьб вечеринк ужин обед концерт"""
)
_TRAVELS = word_list("flying going travelling traveling driving fly travel trip flight journey")
_CALLED_OFF = re.compile(r" (?:cancell?ed|called off|is off|not happening|fell through) ")
_GIVEN_UP = re.compile(r" (?:not|no longer) (?:flying|going|travell?ing|driving) (?:.* )?to ")
_ON_AGAIN = re.compile(r" (?:back on|on again|is on after all) ")
_EVENT_MODIFIERS = re.compile(r" (?:the|my|our|a|an|of|on|at|for|with|is|was|have|has|cancell?ed) ")


def plans(text: str, names: set[str]) -> Iterator[Assertion]:
    """That something planned is on, or off, by what `spoken` makes of a clause, and its names."""
    words = text.split()
    if words[1:2] in (["cancelled"], ["canceled"]):  # by whoever leads the sentence
        names = {*names, words[0]}
    event = _event(words)
    if event is None:
        return
    days = [word for word in words if is_number(word, names)]
    with_whom = sorted(names.difference(days, IN_WORDS, {"i"}))
    described = _described(words, event)
    key = " ".join(["plan", *described, event, *with_whom])
    is_off = bool(_CALLED_OFF.search(text) or _GIVEN_UP.search(text))
    is_on_again = not is_off and bool(_ON_AGAIN.search(text))
    value = "off" if is_off else "on"
    corrects = is_off or is_on_again
    if days:
        dated = " ".join([key, *days])
        yield Assertion(dated, value, corrects)
    if not days or not corrects:
        yield Assertion(key, value, corrects)


def _event(words: list[str]) -> str | None:
    """What is planned; a journey only if it says where to."""
    events = [word for word in words if word in EVENTS]
    event = events[0] if events else None
    is_journey = event in _TRAVELS
    if event is None:
        is_journey = not _TRAVELS.isdisjoint(words)
    if not is_journey:
        return event
    return "trip" if "to" in words else None


def _described(words: list[str], event: str) -> list[str]:
    """The word before an event that says which it is, such as "dentist"."""
    if event not in words:
        return []
    at = words.index(event)
    before = words[at - 1] if at else ""
    if not before.isalpha() or _EVENT_MODIFIERS.fullmatch(f" {before} "):
        return []
    return [before]
