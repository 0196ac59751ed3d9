"""States that exclude each other, such as "married" and "divorced", or "paid" and "unpaid"."""

from __future__ import annotations

from collections.abc import Iterator

from ecs_plugins.memory.statements import ASIDES, Assertion, Statement, without_tail
from ecs_plugins.memory.wording import word_list

_STATES = (
    "single married divorced separated engaged widowed",
    "open closed locked shut unlocked",
    "online offline up down",
    "on off",
    "employed unemployed retired",
    "full empty",
    "enabled disabled",
    "active inactive paused",
    "public private",
    "paid unpaid overdue",
    "draft published",
    "sick ill healthy recovered",
    "available sold reserved",
    "broken fixed repaired",
    "failing passing",
    "pending approved rejected merged",
    "open fixed resolved",
    "prepared processed packed shipped delivered returned",
    "blocked unblocked",
    "busy free",
    "free basic starter standard plus pro premium business enterprise",
)
_STATES_OF: dict[str, list[int]] = {}
for number, words in enumerate(_STATES):
    for word in words.split():
        _STATES_OF.setdefault(word, []).append(number)
_MARRIAGE = 0
_WORKLESS = word_list("unemployed retired")


def is_state(word: str) -> bool:
    """Whether a word names one of the states that exclude each other."""
    return word in _STATES_OF


def states(plain: Statement) -> Iterator[Assertion]:
    """Which of the states that exclude each other something is in."""
    words = plain.words
    if "be" not in words[1:5]:
        return
    at = words.index("be", 1)
    subject = words[:at]
    rest = words[at + 1 :]
    if not rest:
        return
    state = rest[0]
    aside = list(without_tail(rest[1:], ASIDES))
    for group in _STATES_OF.get(state, ()):
        if not aside or group == _MARRIAGE:
            key = " ".join([*subject, "state", str(group)])
            yield Assertion(key, state)
    if state in _WORKLESS:
        workplace = " ".join([*subject, "work", "name"])
        yield Assertion(workplace, "nowhere")


def employment(plain: Statement) -> Iterator[Assertion]:
    """That somebody who works somewhere has work."""
    words = plain.words
    if "work" in words[1:3] and len(words) > 2:
        subject = words[: words.index("work")]
        for group in _STATES_OF["employed"]:
            key = " ".join([*subject, "state", str(group)])
            yield Assertion(key, "employed", plain.is_marked)
