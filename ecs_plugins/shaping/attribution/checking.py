"""Comparison of a statement with the sentence it is cited to: numbers, names and negations.

Only what can be verified word by word is called consistent, and only in English.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from ecs_plugins.shaping.attribution.matching import Claim, Sentence
from ecs_plugins.shaping.attribution.quantities import Value
from ecs_plugins.shaping.attribution.wording import (
    Negation,
    Span,
    Word,
    names_of,
    negations_of,
    opposites_of,
    words_of,
)

Part: TypeAlias = Value | Word
"""A value or a word of a text."""

COVERED_FROM: Final = 0.75
"""Share of a statement's content words and values from which on it can be consistent."""
ABOUT_FROM: Final = 0.4
"""Share of its words and names from which on a sentence is about the same thing."""
NEIGHBOURS: Final = 3
"""Content words on each side of a name or value, of which one must stand there in both texts."""
ALIKE_FROM: Final = 0.8
"""Share of a sentence's content words in the statement from which on both say the same."""


class Check(StrEnum):
    """Result of comparing a statement with its sources."""

    CONSISTENT = "consistent"
    CONFLICT = "conflict"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Finding:
    """A result, and the spans of the statement that decided it."""

    check: Check
    decided_by: tuple[Span, ...] = ()


def compare(
    claim: Claim,
    sentence: Sentence | None,
    others: Sequence[Sentence] = (),
) -> Finding:
    """Compare a statement with a sentence.

    Args:
        claim: The statement.
        sentence: The sentence it is cited to; None without a citation.
        others: The other sentences of that passage. A value of a related one is no conflict.
    """
    if sentence is None or not sentence.is_english or not claim.is_english:
        return Finding(Check.UNVERIFIED)
    covered = covered_share(claim, sentence)
    changed, missing = _values(claim, sentence, others)
    denied, unknown = _negations(claim, sentence)
    conflicts = {*denied, *changed}
    if conflicts and covered >= ABOUT_FROM:
        return Finding(Check.CONFLICT, tuple(sorted(conflicts)))
    doubts = {*conflicts, *unknown, *missing, *_names(claim, sentence), *_moved(claim, sentence)}
    is_answered = all(map(sentence.has, claim.asked_names))
    parts = len(claim.content) + len(claim.values)
    found = covered * len(claim.content) + len(claim.values)  # without doubts it has all values
    if doubts or found < COVERED_FROM * parts or not is_answered:
        return Finding(Check.UNVERIFIED, tuple(sorted(doubts)))
    return Finding(Check.CONSISTENT)


def covered_share(claim: Claim, sentence: Sentence) -> float:
    """Return the share of a statement's content words that a sentence and its context have."""
    if not claim.content:
        return 1.0
    found = sum(map(sentence.has, claim.content))
    return found / len(claim.content)


def _values(
    claim: Claim,
    sentence: Sentence,
    others: Sequence[Sentence],
) -> tuple[list[Span], list[Span]]:
    """Return the spans of values that the sentence has otherwise, and of those it lacks."""
    related = [other for other in others if claim.content & other.stems]
    changed: list[Span] = []
    missing: list[Span] = []
    for value in claim.values:
        span = _span(value)
        different = list(filter(value.differs_from, sentence.values))
        counted = frozenset[str]().union(*(own.nouns for own in different)) & value.nouns
        same = [own for own in sentence.values if value.is_same(own) and counted <= own.nouns]
        free = [own for own in different if not any(each.is_same(own) for each in claim.values)]
        is_elsewhere = any(other.has_value(value) for other in related)
        if same:
            if different and not _fits_any(claim, value, sentence, same):
                missing.append(span)
        elif free and not is_elsewhere:
            changed.append(span)
        elif free or not value.optional:
            missing.append(span)
    return changed, missing


def _span(part: Part | Negation) -> Span:
    return part.start, part.end


def _spans_of(text: str, stems: Container[str]) -> list[Span]:
    """Return the spans of the words of a text that have one of some stems."""
    return [_span(word) for word in words_of(text) if word.stem in stems]


def _fits_any(
    claim: Claim,
    part: Part,
    sentence: Sentence,
    found: Iterable[Part],
) -> bool:
    """Return True if a value or a name has a neighbour in common in both texts."""
    here = _neighbours(claim.text, claim.words, part)
    for own in found:
        there = _neighbours(sentence.text, sentence.content, own)
        if not here or not there:
            return True
        if here & there:
            return True
    return False


def _neighbours(text: str, words: Sequence[Word], part: Part) -> frozenset[str]:
    """Return the stems of the nearest content words of the same clause."""
    first = text.rfind(";", 0, part.start)
    last = text.find(";", part.end)
    if last < 0:
        last = len(text)
    before = [word.stem for word in words if first < word.start and word.end <= part.start]
    after = [word.stem for word in words if part.end <= word.start < last]
    return frozenset(before[-NEIGHBOURS:] + after[:NEIGHBOURS])


def _names(claim: Claim, sentence: Sentence) -> list[Span]:
    """Return the spans of the names that neither the sentence nor its context has."""
    first = () if claim.first is None else (claim.first,)
    candidates = (*claim.names, *first)
    return [_span(name) for name in candidates if not _has_name(claim, name, sentence)]


def _moved(claim: Claim, sentence: Sentence) -> list[Span]:
    """Return the names, and the values of a unit, that the same words have in another order."""
    if not _are_alike(claim, sentence):
        return []
    moved = _moved_names(claim, sentence)
    for unit in {value.unit for value in claim.values}:
        values = [value for value in claim.values if value.unit == unit]
        same = [next(filter(value.is_same, sentence.values), None) for value in values]
        starts = [own.start for own in same if own is not None]
        if starts != sorted(starts):
            moved += map(_span, values)
    return moved


def _moved_names(claim: Claim, sentence: Sentence) -> list[Span]:
    """Return the names that a sentence has in another order, of those that both have once."""
    first = () if claim.first is None else (claim.first,)
    stems = [word.stem for word in sentence.words]
    own = [word.stem for word in words_of(claim.text)]
    names = [
        name
        for name in (*first, *claim.names)
        if stems.count(name.stem) == own.count(name.stem) == 1
    ]
    places = [stems.index(name.stem) for name in names]
    return [] if places == sorted(places) else [_span(name) for name in names]


def _has_name(claim: Claim, name: Word, sentence: Sentence) -> bool:
    own = [word for word in sentence.words if word.stem == name.stem]
    if own:
        return _fits_any(claim, name, sentence, own)
    return name.stem in sentence.around and not _has_other_name(sentence, claim)


def _has_other_name(sentence: Sentence, claim: Claim) -> bool:
    """Return True if a sentence has a name that a statement does not have as a word."""
    stems = {word.stem for word in words_of(claim.text)}
    return any(name.stem not in stems for name in names_of(sentence.text))


def _negations(claim: Claim, sentence: Sentence) -> tuple[list[Span], list[Span]]:
    """Return the spans whose negation the sentence contradicts, and of those it is silent on."""
    stated = negations_of(claim.text)
    written = negations_of(sentence.text)
    conflicts, unknown = _unwritten(stated, written, sentence)
    unstated = _unstated(stated, written, claim)
    conflicts += _spans_of(claim.text, unstated)
    is_odd = len(stated) % 2 != len(written) % 2
    if is_odd and not conflicts and _are_alike(claim, sentence):
        unknown.append((0, len(claim.text)))
    opposite = opposites_of(claim.content, sentence.stems)
    conflicts += _spans_of(claim.text, opposite)
    return conflicts, unknown


def _unwritten(
    stated: Sequence[Negation],
    written: Sequence[Negation],
    sentence: Sentence,
) -> tuple[list[Span], list[Span]]:
    """Return the negations of a statement that its sentence lacks, and those nobody knows."""
    denied = _denied_by(written)
    conflicts: list[Span] = []
    unknown: list[Span] = []
    for each in stated:
        heads = set(filter(sentence.has, each.denied))
        if written and not heads:
            unknown.append(_span(each))
        elif not heads & denied:
            conflicts.append(_span(each))
    return conflicts, unknown


def _unstated(
    stated: Sequence[Negation],
    written: Sequence[Negation],
    claim: Claim,
) -> set[str]:
    """Return the stems that a sentence denies and a statement does not."""
    nearest = {each.denied[0] for each in written if each.denied}
    return (nearest & claim.content) - _denied_by(stated)


def _denied_by(negations: Iterable[Negation]) -> set[str]:
    denied: set[str] = set()
    for each in negations:
        denied.update(each.denied)
    return denied


def _are_alike(claim: Claim, sentence: Sentence) -> bool:
    """Return True if a statement has nearly all content words of a sentence."""
    alike = sum(word.stem in claim.content for word in sentence.content)
    return alike >= ALIKE_FROM * len(sentence.content)
