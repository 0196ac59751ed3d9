"""Comparison of a statement with the sentence it is cited to: numbers, names and negations.

Only what can be verified word by word is called consistent, and only in English.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import filterfalse
from typing import Final, TypeAlias

from ecs_plugins.shaping.attribution.matching import Claim, Sentence, score
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

COVERED_FROM: Final = 0.6
"""Share of a statement's content words from which on it can be consistent."""
ABOUT_FROM: Final = 0.4
"""Share of its words and names from which on a sentence is about the same thing."""
NEIGHBOURS: Final = 3
"""Content words on each side of a name or value, of which one must stand there in both texts."""
ALIKE_FROM: Final = 0.8
"""Share of a sentence's content words in the statement from which on both say the same."""
_PRONOUNS: Final = frozenset(["he", "she", "it", "they", "his", "her", "its", "their"])
_DEMONYM: Final = 2
"""Letters that "American" has more than "America"."""


class Check(StrEnum):
    """Result of comparing a statement with its sources."""

    CONSISTENT = "consistent"
    CONFLICT = "conflict"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Finding:
    """A result, the spans of the statement that decided it, and a second sentence it rests on."""

    check: Check
    decided_by: tuple[Span, ...] = ()
    second: Sentence | None = None


def compare(
    claim: Claim,
    sentence: Sentence | None,
    others: Sequence[Sentence] = (),
) -> Finding:
    """Compare a statement with a sentence.

    Args:
        claim: The statement.
        sentence: The sentence it is cited to; None without a citation.
        others: The other sentences of that passage, of which one may hold what is missing.
    """
    if sentence is None:
        return Finding(Check.UNVERIFIED)
    if not sentence.is_english or not claim.is_english:
        return Finding(Check.UNVERIFIED)
    covered = covered_share(claim, sentence)
    changed, missing = _values(claim, sentence)
    denied, unknown = _negations(claim, sentence)
    conflicts = set(denied)
    for value in changed:
        if _stands_in(value, claim, others):
            missing.append(_span(value))
        else:
            conflicts.add(_span(value))
    if conflicts and covered >= ABOUT_FROM:
        return Finding(Check.CONFLICT, tuple(sorted(conflicts)))
    missing += _names(claim, sentence)
    doubts = conflicts.union(unknown)
    if missing and not doubts:
        second = _second(claim, sentence, others, missing)
        if second is not None:
            return Finding(Check.CONSISTENT, second=second)
    if not all(map(sentence.has, claim.asked_names)):
        return Finding(Check.UNVERIFIED)
    doubts.update(missing)
    if doubts or covered < COVERED_FROM:
        return Finding(Check.UNVERIFIED, tuple(sorted(doubts)))
    return Finding(Check.CONSISTENT)


def covered_share(claim: Claim, sentence: Sentence) -> float:
    """Return the share of a statement's content words that a sentence and its context have."""
    if not claim.content:
        return 1.0
    found = sum(map(sentence.has, claim.content))
    return found / len(claim.content)


def _values(claim: Claim, sentence: Sentence) -> tuple[list[Value], list[Span]]:
    """Return the values that the sentence has otherwise, and the spans of those it lacks."""
    free = _values_beyond(claim, sentence)
    changed: list[Value] = []
    missing: list[Span] = []
    for value in claim.values:
        span = _span(value)
        same = list(filter(value.is_same, sentence.values))
        if same:
            is_ambiguous = any(map(value.differs_from, sentence.values))
            if is_ambiguous and not _fits_any(claim, value, sentence, same):
                missing.append(span)
        elif any(map(value.differs_from, free)):
            changed.append(value)
        elif not value.optional:
            missing.append(span)
    return changed, missing


def _values_beyond(claim: Claim, sentence: Sentence) -> list[Value]:
    """Return the values of a sentence that a statement does not have."""

    def is_stated(own: Value) -> bool:
        return any(value.is_same(own) for value in claim.values)

    return list(filterfalse(is_stated, sentence.values))


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
    run = _run_around(claim, part)
    here = _neighbours(claim.text, claim.words, part, run)
    for own in found:
        there = _neighbours(sentence.text, sentence.content, own, run)
        if not here or not there:
            return True
        if here & there:
            return True
    return False


def _run_around(claim: Claim, part: Part) -> frozenset[str]:
    """Return the stems of the names that stand together with one."""
    run: list[Word] = []
    for name in claim.names:
        is_apart = bool(run) and name.start > run[-1].end + 1
        if is_apart and run[-1].end >= part.end:
            break
        if is_apart:
            run = []
        run.append(name)
    if not run:
        return frozenset()
    is_around = run[0].start <= part.start and part.end <= run[-1].end
    return frozenset(name.stem for name in run if is_around)


def _neighbours(
    text: str,
    words: Sequence[Word],
    part: Part,
    run: frozenset[str],
) -> frozenset[str]:
    """Return the stems of the content words next to a part, without those of its own run.

    They stand in the same part of a sentence that a semicolon divides.
    """
    first = text.rfind(";", 0, part.start)
    last = text.find(";", part.end)
    if last < 0:
        last = len(text)
    before: list[str] = []
    after: list[str] = []
    for word in words:
        is_near = first < word.start < last
        if word.stem in run or not is_near:
            continue
        if word.end <= part.start:
            before.append(word.stem)
        if word.start >= part.end:
            after.append(word.stem)
    nearest = before[-NEIGHBOURS:] + after[:NEIGHBOURS]
    return frozenset(nearest)


def _stands_in(value: Value, claim: Claim, others: Sequence[Sentence]) -> bool:
    """Return True if another sentence with words of the statement has a value."""
    related = [other for other in others if claim.content & other.stems]
    return any(other.has_value(value) for other in related)


def _names(claim: Claim, sentence: Sentence) -> list[Span]:
    """Return the spans of the names that neither the sentence nor its context has."""
    candidates = list(claim.names)
    if claim.first is not None:
        candidates.append(claim.first)
    lacking = [name for name in candidates if not _has_name(claim, name, sentence)]
    return list(map(_span, lacking))


def _has_name(claim: Claim, name: Word, sentence: Sentence) -> bool:
    own = [word for word in sentence.words if _is_form(word.stem, name.stem)]
    if own and _fits_any(claim, name, sentence, own):
        return True
    if any(_is_form(stem, name.stem) for stem in sentence.around):
        pronouns = _pronouns(sentence.text)
        has_pronoun = bool(_pronouns(claim.text))
        if not has_pronoun and _fits_any(claim, name, sentence, pronouns):
            return True
        return not own and not _has_other_name(sentence, claim)
    return not own and name.stem in sentence.stems  # the initials of a name


def _has_other_name(sentence: Sentence, claim: Claim) -> bool:
    """Return True if a sentence has a name that a statement does not have as a word."""
    stems = {word.stem for word in words_of(claim.text)}
    return any(name.stem not in stems for name in names_of(sentence.text))


def _pronouns(text: str) -> list[Word]:
    """Return the first word of a text if it is a pronoun that stands for a name."""
    first = words_of(text)[:1]
    return [word for word in first if word.text.lower() in _PRONOUNS]


def _is_form(one: str, other: str) -> bool:
    return one == other or _is_demonym(one, other)


def _is_demonym(one: str, other: str) -> bool:
    """Return True for "america" and "american"."""
    shorter, longer = sorted((one, other), key=len)
    if len(shorter) <= 3 or not longer.startswith(shorter):
        return False
    return len(longer) - len(shorter) <= _DEMONYM


def _negations(claim: Claim, sentence: Sentence) -> tuple[list[Span], list[Span]]:
    """Return the spans whose negation the sentence contradicts, and of those it is silent on."""
    stated = negations_of(claim.text)
    written = negations_of(sentence.text)
    conflicts, unknown = _unwritten(stated, written, sentence)
    unstated = _unstated(stated, written, claim, sentence)
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
    sentence: Sentence,
) -> set[str]:
    """Return the stems that a sentence denies and a statement does not."""
    nearest = {each.denied[0] for each in written if each.denied}
    affirmed = _affirmed(sentence, _denied_by(written))
    heads = nearest & claim.content
    return heads - _denied_by(stated) - affirmed


def _denied_by(negations: Iterable[Negation]) -> set[str]:
    denied: set[str] = set()
    for each in negations:
        denied.update(each.denied)
    return denied


def _are_alike(claim: Claim, sentence: Sentence) -> bool:
    """Return True if a statement has nearly all content words of a sentence."""
    alike = sum(word.stem in claim.content for word in sentence.content)
    return alike >= ALIKE_FROM * len(sentence.content)


def _affirmed(sentence: Sentence, denied: set[str]) -> set[str]:
    """Return the stems that also stand where no negation reaches."""
    counts = Counter(word.stem for word in sentence.words)
    repeated = {stem for stem, count in counts.items() if count > 1}
    return repeated | (counts.keys() - denied)


def _second(
    claim: Claim,
    first: Sentence,
    others: Sequence[Sentence],
    missing: Sequence[Span],
) -> Sentence | None:
    """Return a sentence of the passage that has everything the first lacks.

    It adds more than a name, which may be what was changed. So may a name or a value that only the
    first sentence has, or a missing name that stands elsewhere in it.
    """
    names = [name for name in claim.names if _span(name) in missing]
    if _values_beyond(claim, first) or _has_other_name(first, claim):
        return None
    for name in names:
        if any(_is_form(name.stem, stem) for stem in first.stems):
            return None

    def rank(sentence: Sentence) -> tuple[float, str]:
        return -score(claim, sentence), sentence.text

    for other in sorted(others, key=rank):
        if _completes(claim, first, other, names):
            return other
    return None


def _completes(
    claim: Claim,
    first: Sentence,
    other: Sentence,
    names: Sequence[Word],
) -> bool:
    """Return True if a second sentence has what the first lacks, and more than names."""
    shared = set(filter(other.has, claim.content))
    lacking = set(filterfalse(first.has, claim.content))
    names_too = lacking & shared
    added = names_too.difference(name.stem for name in claim.names)
    most_lacking = (1 - COVERED_FROM) * len(claim.content)
    if not added or len(shared) < 2:
        return False
    if len(lacking - shared) > most_lacking:
        return False
    for value in claim.values:
        if not first.has_value(value) and not other.has_value(value):
            return False
    return all(_has_name(claim, name, other) for name in names)
