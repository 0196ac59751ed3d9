"""Statements of the same words but for one number or name: said as new, the later one holds.

"I go to the gym on Tuesdays" and "I go to the gym on Mondays now" differ in their days alone. Of a
name only where a verb says where somebody or something is: who uses two tools says so too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ecs_plugins.memory.kinds import CLASSES
from ecs_plugins.memory.statements import Assertion, Statement, is_name, is_number
from ecs_plugins.memory.wording import word_list

_NUMBERS: Final = word_list("one fourth fifth sixth seventh eighth ninth tenth")
_PLACING: Final = word_list("be live work go goes bank sit sleep commute stay study train")
_CLASS_OF: Final = {word: name for name, words in CLASSES.items() for word in words.split()}
_PURPOSES: Final = word_list("for as in on")
_TOOLS: Final = word_list("use uses run runs")
_BETWEEN: Final = word_list("and or over")
_LEAST_WORDS: Final = 2
_MOST_WORDS: Final = 12


def slots(plain: Statement) -> Iterator[Assertion]:
    """What a statement says with its last number left out, and its last name."""
    words = [_singular(word) for word in plain.words]
    if not _LEAST_WORDS < len(words) <= _MOST_WORDS or plain.negations:
        return
    are_numbers = [_is_numeric(word, plain.names) for word in words]
    yield from _slot(words, are_numbers, "#", plain.is_marked)
    classes = [_CLASS_OF.get(word, "") for word in words]
    for name in sorted({*classes[1:]} - {""}):
        are_of_class = [each == name for each in classes]
        yield from _slot(words, are_of_class, name, plain.is_marked)
    yield from _slot(words, _names_that_place(words, plain.names), "@", plain.is_marked)


def _names_that_place(words: list[str], names: set[str]) -> list[bool]:
    """Which names say where something is, or which tool is used for a purpose."""
    are_names = [is_name(word, names) for word in words]
    are_names[0] = False
    verbs = words[1:3]
    if not _PLACING.isdisjoint(verbs):
        return are_names
    purposes = [at for at, word in enumerate(words[3:-1], start=3) if word in _PURPOSES]
    if _TOOLS.isdisjoint(verbs) or not purposes:
        return [False] * len(words)
    return [is_tool and at < purposes[0] for at, is_tool in enumerate(are_names)]


def _slot(words: list[str], fills: list[bool], sign: str, is_marked: bool) -> Iterator[Assertion]:
    """The words with the last run of those that fill a slot left out."""
    if not any(fills):
        return
    end = len(fills) - fills[::-1].index(True)
    start = end - 1
    while start > 1 and (fills[start - 1] or words[start - 1] in _BETWEEN):
        start -= 1
    while words[start] in _BETWEEN:
        start += 1
    key = " ".join([*words[:start], sign, *words[end:]])
    yield Assertion(f"slot {key}", " ".join(words[start:end]), is_marked)


def _is_numeric(word: str, names: set[str]) -> bool:
    return word in _NUMBERS or is_number(word, names)


def _singular(word: str) -> str:
    """A day in the plural as the day."""
    return word[:-1] if word.endswith(("days", "tags", "ochs")) else word
