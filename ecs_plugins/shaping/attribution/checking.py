"""Comparison of a statement with the sentence it is cited to: numbers, names and negations.

Only what can be verified word by word is called consistent, and only in English.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ecs_plugins.shaping.attribution.matching import Claim, Sentence, score
from ecs_plugins.shaping.attribution.quantities import Value
from ecs_plugins.shaping.attribution.wording import (
    Span,
    Word,
    names_of,
    negations_of,
    opposites_of,
    words_of,
)

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


def compare(claim: Claim, sentence: Sentence | None, others: Sequence[Sentence] = ()) -> Finding:
    """Compare a statement with a sentence.

    Args:
        claim: The statement.
        sentence: The sentence it is cited to; None without a citation.
        others: The other sentences of that passage, of which one may hold what is missing.
    """
    if sentence is None or not sentence.is_english or not claim.is_english:
        return Finding(Check.UNVERIFIED)
    covered = covered_share(claim, sentence)
    is_about = covered >= ABOUT_FROM
    conflicts, missing = _values(claim, sentence)
    denied, unknown = _negations(claim, sentence)
    elsewhere = [span for span in conflicts if _stands_in(span, claim, others)]
    conflicts = [span for span in conflicts if span not in elsewhere]
    missing += elsewhere
    if is_about and (conflicts or denied):
        return Finding(Check.CONFLICT, tuple(sorted({*conflicts, *denied})))
    missing += [*conflicts, *denied, *unknown, *_names(claim, sentence)]
    if missing and not denied and not conflicts and not unknown:
        second = _second(claim, sentence, others, missing)
        if second is not None:
            return Finding(Check.CONSISTENT, second=second)
    if not all(map(sentence.has, claim.asked_names)):
        return Finding(Check.UNVERIFIED)
    if missing or covered < COVERED_FROM:
        return Finding(Check.UNVERIFIED, tuple(sorted({*missing})))
    return Finding(Check.CONSISTENT)


def covered_share(claim: Claim, sentence: Sentence) -> float:
    """Return the share of a statement's content words that a sentence and its context have."""
    if not claim.content:
        return 1.0
    return sum(sentence.has(stem) for stem in claim.content) / len(claim.content)


def _values(claim: Claim, sentence: Sentence) -> tuple[list[Span], list[Span]]:
    """Return the spans of values that the sentence has otherwise, and of those it lacks."""
    free = [own for own in sentence.values if not _is_any(own, claim.values)]
    conflicts: list[Span] = []
    missing: list[Span] = []
    for value in claim.values:
        span = (value.start, value.end)
        same = [own for own in sentence.values if value.is_same(own)]
        if same:
            is_ambiguous = any(value.differs_from(own) for own in sentence.values)
            if is_ambiguous and not any(_fits(claim, span, sentence, own) for own in same):
                missing.append(span)
        elif any(value.differs_from(own) for own in free):
            conflicts.append(span)
        elif not value.optional:
            missing.append(span)
    return conflicts, missing


def _is_any(own: Value, values: Sequence[Value]) -> bool:
    return any(value.is_same(own) for value in values)


def _fits(claim: Claim, span: Span, sentence: Sentence, own: Value | Word) -> bool:
    """Return True if a value or a name has a neighbour in common in both texts."""
    run = _run_around(claim, span)
    here = _neighbours(claim.text, claim.words, span, run)
    there = _neighbours(sentence.text, sentence.content, (own.start, own.end), run)
    return not here or not there or bool(here & there)


def _run_around(claim: Claim, span: Span) -> frozenset[str]:
    """Return the stems of the names that stand together with one."""
    run: list[Word] = []
    for name in claim.names:
        if run and name.start > run[-1].end + 1:
            if run[-1].end >= span[1]:
                break
            run = []
        run.append(name)
    is_around = bool(run) and run[0].start <= span[0] and span[1] <= run[-1].end
    return frozenset(name.stem for name in run) if is_around else frozenset()


def _neighbours(
    text: str, words: Sequence[Word], span: Span, run: frozenset[str]
) -> frozenset[str]:
    """Return the stems of the content words next to a span, without those of its own run.

    They stand in the same part of a sentence that a semicolon divides.
    """
    first = text.rfind(";", 0, span[0])
    last = text.find(";", span[1])
    last = len(text) if last < 0 else last
    others = [word for word in words if word.stem not in run and first < word.start < last]
    before = [word.stem for word in others if word.end <= span[0]]
    after = [word.stem for word in others if word.start >= span[1]]
    return frozenset((*before[-NEIGHBOURS:], *after[:NEIGHBOURS]))


def _stands_in(span: Span, claim: Claim, others: Sequence[Sentence]) -> bool:
    """Return True if another sentence with words of the statement has a value."""
    value = next(each for each in claim.values if (each.start, each.end) == span)
    return any(claim.content & other.stems and other.has_value(value) for other in others)


def _names(claim: Claim, sentence: Sentence) -> list[Span]:
    """Return the spans of the names that neither the sentence nor its context has."""
    candidates = list(claim.names)
    if claim.first is not None:
        candidates.append(claim.first)
    return [(name.start, name.end) for name in candidates if not _has_name(claim, name, sentence)]


def _has_name(claim: Claim, name: Word, sentence: Sentence) -> bool:
    span = (name.start, name.end)
    own = [word for word in sentence.words if _is_form(word.stem, name.stem)]
    if any(_fits(claim, span, sentence, word) for word in own):
        return True
    if any(_is_form(stem, name.stem) for stem in sentence.around):
        pronouns = [] if _pronouns(claim.text) else _pronouns(sentence.text)
        if any(_fits(claim, span, sentence, word) for word in pronouns):
            return True
        stems = {word.stem for word in words_of(claim.text)}
        return not own and all(word.stem in stems for word in names_of(sentence.text))
    return not own and name.stem in sentence.stems  # the initials of a name


def _pronouns(text: str) -> list[Word]:
    """Return the first word of a text if it is a pronoun that stands for a name."""
    return [word for word in words_of(text)[:1] if word.text.lower() in _PRONOUNS]


def _is_form(one: str, other: str) -> bool:
    return one == other or _is_demonym(one, other)


def _is_demonym(one: str, other: str) -> bool:
    """Return True for "america" and "american"."""
    shorter, longer = sorted((one, other), key=len)
    return (
        len(shorter) > 3 and longer.startswith(shorter) and len(longer) - len(shorter) <= _DEMONYM
    )


def _negations(claim: Claim, sentence: Sentence) -> tuple[list[Span], list[Span]]:
    """Return the spans whose negation the sentence contradicts, and of those it is silent on."""
    stated = negations_of(claim.text)
    written = negations_of(sentence.text)
    denied_there = {stem for each in written for stem in each.denied}
    denied_here = {stem for each in stated for stem in each.denied}
    conflicts: list[Span] = []
    unknown: list[Span] = []
    for each in stated:
        span = (each.start, each.end)
        heads = [stem for stem in each.denied if sentence.has(stem)]
        if not heads:
            (unknown if written else conflicts).append(span)
        elif denied_there.isdisjoint(heads):
            conflicts.append(span)
    affirmed = _affirmed(sentence, denied_there)
    for each in written:
        head = next(iter(each.denied), "")
        if head in claim.content and head not in denied_here and head not in affirmed:
            conflicts += [
                (word.start, word.end) for word in words_of(claim.text) if word.stem == head
            ]
    alike = sum(word.stem in claim.content for word in sentence.content)
    is_alike = alike >= ALIKE_FROM * len(sentence.content)
    if is_alike and len(stated) % 2 != len(written) % 2 and not conflicts:
        unknown.append((0, len(claim.text)))
    opposite = opposites_of(claim.content, sentence.stems)
    conflicts += [(word.start, word.end) for word in words_of(claim.text) if word.stem in opposite]
    return conflicts, unknown


def _affirmed(sentence: Sentence, denied: set[str]) -> set[str]:
    """Return the stems that also stand where no negation reaches."""
    counts: dict[str, int] = {}
    for word in sentence.words:
        counts[word.stem] = counts.get(word.stem, 0) + 1
    return {stem for stem, count in counts.items() if count > 1 or stem not in denied}


def _second(
    claim: Claim, first: Sentence, others: Sequence[Sentence], missing: Sequence[Span]
) -> Sentence | None:
    """Return a sentence of the passage that has everything the first lacks.

    It adds more than a name, which may be what was changed. So may a name or a value that only the
    first sentence has, or a missing name that stands elsewhere in it.
    """
    stems = {word.stem for word in words_of(claim.text)}
    names = [name for name in claim.names if (name.start, name.end) in missing]
    if any(name.stem not in stems for name in names_of(first.text)):
        return None
    if any(not _is_any(own, claim.values) for own in first.values):
        return None
    if any(_is_form(name.stem, stem) for name in names for stem in first.stems):
        return None
    for other in sorted(others, key=lambda each: (-score(claim, each), each.text)):
        has_values = all(first.has_value(each) or other.has_value(each) for each in claim.values)
        has_names = all(_has_name(claim, name, other) for name in names)
        own = claim.content - {name.stem for name in claim.names}
        adds = any(other.has(stem) and not first.has(stem) for stem in own)
        lacking = sum(not first.has(stem) and not other.has(stem) for stem in claim.content)
        shared = sum(other.has(stem) for stem in claim.content)
        is_covered = lacking <= (1 - COVERED_FROM) * len(claim.content)
        if has_values and has_names and adds and is_covered and shared > 1:
            return other
    return None
