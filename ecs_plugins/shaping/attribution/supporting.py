"""How likely the passages together make a statement: one number that means the same everywhere.

A statement rests on two passages at most: the best one, and the one that adds most to it. What they
do to its tokens, above all to those of its numbers, names and negations, and which of its words
they have are joined by a logistic function. It was learned from true statements and from false ones
that differ from them in a name, a number or a negation, or whose evidence was taken out, by
``python -m benchmarks support``; ``support.json`` holds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ecs_plugins.common.text import terms
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.attribution.shift import HIGHEST, Shift
from ecs_plugins.shaping.attribution.statements import AnswerStatement, without_marks
from ecs_plugins.shaping.attribution.wording import (
    Span,
    held_words,
    is_negated,
    nearest_is_negated,
    nearest_sentence,
    turning_words,
)
from ecs_plugins.shaping.probability import ProbabilityFit

Nats: TypeAlias = npt.NDArray[np.float64]
Shifts: TypeAlias = Mapping[int, Shift]
"""By place of a passage that was scored."""

UNKNOWN: Final = 0.5
"""Support of what can neither be supported nor denied by it: a bare yes or no."""
_LEARNED = json.loads(resources.files(__package__).joinpath("support.json").read_bytes())
SUPPORT: Final = ProbabilityFit(_LEARNED["intercept"], _LEARNED["weights"])
"""That passages support a statement, by `support_features`."""

_YES_OR_NO = re.compile(r"\W*(?:yes|no)\W*", re.IGNORECASE)
_SURPRISING = 10.0  # nats of what remains; more says no more
_DOUBTFUL = 5.0  # nats of a word that a statement turns on
_LOST = 0.5  # nats by which such a word becomes less likely where passages speak against it


@dataclass(frozen=True, slots=True)
class TurningWord:
    """A number, a name or a negation of a statement.

    Attributes:
        text: The word.
        first: Its first token in the statement.
        last: One past its last.
    """

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ReadStatement:
    """A statement, and what the model says of it behind each passage.

    Attributes:
        query: The question.
        statement: Of the answer.
        turning: Its numbers, names and negations.
        texts: Of all passages.
        shifts: At least one.
    """

    query: str
    statement: AnswerStatement
    turning: Sequence[TurningWord]
    texts: Sequence[str]
    shifts: Shifts


@dataclass(frozen=True, slots=True)
class Support:
    """What is said of one statement.

    Attributes:
        probability: That the passages support it, in [0, 1].
        turns_on: Spans in the answer of its numbers, names and negations that what it rests on
            does not have, or not there.
        speaks_against: Whether such a word is less likely behind the passages than without them.
    """

    probability: float
    turns_on: tuple[Span, ...]
    speaks_against: bool


def turning_in(
    model: LanguageModel, statements: Sequence[AnswerStatement]
) -> list[list[TurningWord]]:
    """The numbers, names and negations of every statement, with their tokens."""
    ends: list[str] = []
    for statement in statements:
        for start, end in turning_words(statement.text):
            ends += [_read(statement.text[:start]), _read(statement.text[:end])]
    counts = iter(model.count_tokens(ends) if ends else ())
    turning: list[list[TurningWord]] = []
    for statement in statements:
        words: list[TurningWord] = []
        for start, end in turning_words(statement.text):
            first, last = next(counts), next(counts)
            words.append(TurningWord(statement.text[start:end], first, max(first + 1, last)))
        turning.append(words)
    return turning


def support_of(read: ReadStatement, answer: str) -> Support:
    """Whether passages support a statement of an answer."""
    if _YES_OR_NO.fullmatch(read.statement.text):
        return Support(UNKNOWN, (), speaks_against=False)
    ground = ground_of(read)
    features = support_features(read, ground)
    return Support(
        probability=SUPPORT.of(features) or 0.0,
        turns_on=tuple(_doubtful(read, ground, answer)),
        speaks_against=features["turning_gain"] <= -_LOST,
    )


def ground_of(read: ReadStatement) -> list[int]:
    """Places of what a statement rests on most: the best passage, and what adds most to it."""
    own = _own_terms(read)
    ground: list[int] = []
    while len(ground) < min(2, len(read.shifts)):
        worth: dict[int, float] = {}
        for place in read.shifts:
            if place not in ground:
                together = [*ground, place]
                covered = _share(own, together, read.texts)
                worth[place] = covered + _explained(read.shifts, together)
        ground.append(max(worth, key=lambda place: worth[place]))
    return ground


def support_features(read: ReadStatement, ground: Sequence[int]) -> dict[str, float]:
    """What says whether passages support a statement; all of it is a share or in nats."""
    without, behind = _surprise(read.shifts, ground)
    gain = np.clip(without - behind, -HIGHEST, HIGHEST)
    remaining = np.minimum(behind, _SURPRISING)
    turning = [(word.first, word.last) for word in read.turning if word.first < len(gain)]
    worst = [float(remaining[first:last].max()) for first, last in turning]
    lost = [float(gain[first:last].min()) for first, last in turning]
    own = _own_terms(read)
    asked = set(terms(read.query))
    return {
        "remaining": float(remaining.mean()),
        "lost": max(0.0, -float(gain.min())),
        "covered": _share(own, ground, read.texts),
        "covered_by_best": _share(own, ground[:1], read.texts),
        "question_covered": _share(asked, ground, read.texts),
        "question_shift": max(read.shifts[place].question for place in ground),
        "turning_worst": max(worst, default=0.0),
        "turning_mean": sum(worst) / max(1, len(worst)),
        "turning_gain": min(lost, default=0.0),
        **_other_words(read, ground),
    }


def _other_words(read: ReadStatement, ground: Sequence[int]) -> dict[str, float]:
    """Whether a number or a negation is another one, and which names the nearest sentences lack."""
    text = read.statement.text
    words = [word.text for word in read.turning]
    held = held_words(text, words, [read.texts[place] for place in ground])
    other = [word for word, is_held in zip(words, held, strict=True) if not is_held]
    numbers = [word for word in other if word[0].isdigit()]
    names: set[str] = set()
    for word in words:
        if word[0].isupper():
            names.update(terms(word))
    nearest: set[str] = set()
    for place in ground:
        start, end = nearest_sentence(text, read.texts[place])
        nearest.update(terms(read.texts[place][start:end]))
    is_denied = nearest_is_negated(text, read.texts[ground[0]])
    return {
        "other_number": float(bool(numbers)),
        "names_elsewhere": len(names - nearest) / max(1, len(names)),
        "other_negation": float(is_negated(text) != is_denied),
    }


def _doubtful(read: ReadStatement, ground: Sequence[int], answer: str) -> list[Span]:
    """Where in the answer the words stand that are not in what the statement rests on.

    A word that is there counts as well where the model does not expect it: a name in the place of
    another one.
    """
    statement = read.statement
    text = without_marks(answer[statement.start : statement.end])
    spans = turning_words(text)
    if len(spans) != len(read.turning):
        return []
    _, behind = _surprise(read.shifts, ground)
    words = [word.text for word in read.turning]
    held = held_words(statement.text, words, [read.texts[place] for place in ground])
    doubtful: list[Span] = []
    for (start, end), word, is_held in zip(spans, read.turning, held, strict=True):
        surprise = behind[word.first : word.last].max(initial=0.0)
        if not is_held or surprise >= _DOUBTFUL:
            doubtful.append((statement.start + start, statement.start + end))
    return doubtful


def _read(text: str) -> str:
    """The beginning of a statement as the prompt has it: behind a space."""
    begun = text.rstrip()
    return f" {begun}" if begun else ""


def _own_terms(read: ReadStatement) -> set[str]:
    """The terms of a statement that are not the question's; all of them if there are none."""
    stated = set(terms(read.statement.text))
    return stated - set(terms(read.query)) or stated


def _share(wanted: set[str], places: Sequence[int], texts: Sequence[str]) -> float:
    """Of the terms, those that the passages of these places have together."""
    known: set[str] = set()
    for place in places:
        known.update(terms(texts[place]))
    return len(wanted & known) / max(1, len(wanted))


def _surprise(shifts: Shifts, places: Sequence[int]) -> tuple[Nats, Nats]:
    """Nats of every token without passages, and behind the one that explains it best."""
    best = np.max([shifts[place].behind for place in places], axis=0)
    without = -shifts[places[0]].without.astype(np.float64)
    return without, -best.astype(np.float64)


def _explained(shifts: Shifts, places: Sequence[int]) -> float:
    """The share of the surprise that passages take away, at least -1."""
    without, behind = _surprise(shifts, places)
    left = float(behind.sum()) / max(1e-6, float(without.sum()))
    return max(-1.0, 1.0 - left)
