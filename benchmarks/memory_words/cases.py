"""The cases: pairs of a fact and a question, questions about nothing, and changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent
_PAIRS = _FOLDER / "questions_in_other_words.json"
_CHANGES = _FOLDER / "what_changed.txt"


@dataclass(frozen=True, slots=True)
class Pair:
    """A fact, and a question that it answers."""

    fact: str
    question: str


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked.

    Attributes:
        other_words: By language, pairs that hardly share a word.
        shared_words: Pairs that do.
        nothing: Questions that no fact answers.
    """

    other_words: Mapping[str, tuple[Pair, ...]]
    shared_words: tuple[Pair, ...]
    nothing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Two statements, one after the other.

    Attributes:
        question: Whose answer has changed; empty where both statements hold.
        answer: A word of the later statement, which answers it.
    """

    earlier: str
    later: str
    question: str = ""
    answer: str = ""


def read_questions() -> Questions:
    """The pairs and questions of this benchmark."""
    data = json.loads(_PAIRS.read_text(encoding="utf-8"))
    by_language = {language: _pairs(rows) for language, rows in data["other_words"].items()}
    return Questions(by_language, _pairs(data["shared_words"]), tuple(data["nothing"]))


def _pairs(rows: list[list[str]]) -> tuple[Pair, ...]:
    return tuple(Pair(*row) for row in rows)


def read_changes() -> tuple[list[Change], list[Change]]:
    """The statements that correct an earlier one, and those that only look like it."""
    changed: list[Change] = []
    holding: list[Change] = []
    into = changed
    for line in _CHANGES.read_text(encoding="utf-8").splitlines():
        if line == "[hold]":
            into = holding
        if not line or line[0] in "#[":
            continue
        statements, *asked = line.split(" | ")
        earlier, later = statements.split(" > ")
        into.append(Change(earlier, later, *asked))
    return changed, holding
