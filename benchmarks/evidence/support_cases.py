"""Statements of which it is known whether passages support them, made of public questions by rule.

True are: the gold answer, question and answer as a sentence, both in other words, a sentence of the
evidence, in other words or not, and a sentence of another passage. False are: the same with the
answer of another question of the same look, and with one number, name or negation changed.
Evidence that is taken out makes false of what is true; that costs no further pass.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.evidence.altering import (
    FRAMES,
    answer_kind,
    framed,
    names_in,
    negated,
    reworded,
    with_other_name,
    with_other_number,
)
from benchmarks.evidence.citations import is_short_text, stated
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.common.text import sentence_spans, terms
from ecs_plugins.ranking.lexical import BM25Ranker

PASSAGES = 4
"""Passages that statements are held against, as far as there is no more evidence."""
LONGEST_PASSAGE = 60
"""Words of a passage, cut between sentences around the evidence."""
SENTENCE_WORDS = (6, 30)
"""Words of a sentence of a passage that is held against passages."""

TRUE = ("answer", "sentence", "reworded", "copied", "retold", "elsewhere")
"""Kinds of statements that passages support."""
OF_OTHERS = ("other answer", "other sentence")
"""Kinds with the answer of another question."""
CHANGES = ("number", "name", "negation")
"""What is changed in a statement; its kind has the name of what was changed before it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement.

    Attributes:
        text: Of it.
        kind: One of `TRUE` and `OF_OTHERS`, or one of `TRUE` and what of `CHANGES` was changed.
        is_true: Whether the passages support it.
        rests_on: Indices of the passages without which they do not.
    """

    text: str
    kind: str
    is_true: bool
    rests_on: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SupportCase:
    """A question, passages, and statements that are held against them."""

    dataset: str
    id: str
    question: str
    passages: tuple[str, ...]
    evidence: tuple[int, ...]
    claims: tuple[Claim, ...]


def support_cases(
    dataset: str,
    questions: Sequence[EvidenceQuestion],
    chosen: Iterable[EvidenceQuestion],
    seed: int,
) -> list[SupportCase]:
    """The cases of those questions whose answer is a short text.

    Args:
        dataset: Its name.
        questions: All of it, of which answers are borrowed.
        chosen: The questions that become cases.
        seed: Of what is drawn.
    """
    answers: dict[str, list[str]] = {}
    for question in questions:
        answer = _answer_of(question)
        if is_short_text(answer):
            answers.setdefault(answer_kind(answer), []).append(answer)
    made: list[SupportCase] = []
    for question in chosen:
        answer = _answer_of(question)
        if is_short_text(answer):
            draw = random.Random(f"{seed}:{question.id}")
            made.append(_case(dataset, question, answer, answers[answer_kind(answer)], draw))
    return made


def _answer_of(question: EvidenceQuestion) -> str:
    return question.answers[0].strip().rstrip(".") if question.answers else ""


def _case(
    dataset: str,
    question: EvidenceQuestion,
    answer: str,
    answers: Sequence[str],
    draw: random.Random,
) -> SupportCase:
    evidence = list(question.evidence)
    order = BM25Ranker().rank(question.question, question.units).scores
    best_first = sorted(range(len(question.units)), key=lambda index: -order[index])
    others = [index for index in best_first if index not in question.evidence]
    others = [index for index in others if not _holds(question.units[index], answer)]
    wanted = max(2, PASSAGES - len(evidence))
    units = evidence + others[:wanted]
    draw.shuffle(units)
    passages = tuple(_cut(question.units[index], answer) for index in units)
    gold = tuple(place for place, index in enumerate(units) if index in question.evidence)
    claims = _claims(question.question, answer, answers, passages, gold, draw)
    return SupportCase(dataset, question.id, question.question, passages, gold, tuple(claims))


def _claims(
    question: str,
    answer: str,
    answers: Sequence[str],
    passages: Sequence[str],
    gold: Sequence[int],
    draw: random.Random,
) -> list[Claim]:
    other = _other_answer(question, answer, answers, passages, draw)
    names = _names_of(passages)
    sentence = stated(question, answer)
    claims = [Claim(answer, "answer", True, tuple(gold))]
    claims.append(Claim(sentence, "sentence", True, tuple(gold)))
    claims += _retold(sentence, "reworded", gold, names, draw)
    if other:
        claims.append(Claim(other, "other answer", False, ()))
        claims.append(Claim(stated(question, other), "other sentence", False, ()))
    others = [place for place in range(len(passages)) if place not in gold]
    for kind, places in ((draw.choice(("copied", "retold")), gold), ("elsewhere", others)):
        place, text = _sentence_of(passages, places, answer, draw)
        if text and kind == "copied":
            claims.append(Claim(text, kind, True, (place,)))
        elif text:
            claims += _retold(text, kind, (place,), names, draw)
    return claims


def _retold(
    text: str, kind: str, rests_on: Sequence[int], names: Sequence[str], draw: random.Random
) -> list[Claim]:
    """The text in other words, and that with one thing changed, if anything can be."""
    told = reworded(text)
    frame = draw.choice(FRAMES)
    claims = [Claim(framed(told, frame), kind, True, tuple(rests_on))]
    changes = changes_of(told, names, draw)
    if changes:
        # Numbers are rare, so they come first.
        what = "number" if "number" in changes else draw.choice(list(changes))
        claims.append(Claim(framed(changes[what], frame), f"{kind}, {what}", False, ()))
    return claims


def changes_of(text: str, names: Sequence[str], draw: random.Random) -> Mapping[str, str]:
    """The text with one thing changed, by what was changed."""
    changed = {
        "number": with_other_number(text, draw),
        "name": with_other_name(text, names, draw),
        "negation": negated(text),
    }
    return {what: each for what, each in changed.items() if each}


def _other_answer(
    question: str,
    answer: str,
    answers: Sequence[str],
    passages: Sequence[str],
    draw: random.Random,
) -> str:
    """The answer of another question that shares no word with this one, nor stands in it."""
    own = set(terms(f"{question} {answer}"))
    for _ in range(50):
        other = draw.choice(answers)
        is_held = any(_holds(passage, other) for passage in passages)
        if own.isdisjoint(terms(other)) and not is_held:
            return other
    return ""


def _sentence_of(
    passages: Sequence[str], places: Sequence[int], answer: str, draw: random.Random
) -> tuple[int, str]:
    """A sentence of one of the passages, one with the answer if there is one."""
    fewest, most = SENTENCE_WORDS
    held: list[tuple[int, str]] = []
    for place in places:
        for start, end in sentence_spans(passages[place]):
            text = passages[place][start:end].strip()
            if fewest <= len(text.split()) <= most and text.endswith("."):
                held.append((place, text))
    with_answer = [each for each in held if _holds(each[1], answer)]
    held = with_answer or held
    return draw.choice(held) if held else (0, "")


def _names_of(passages: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    for passage in passages:
        for start, end in names_in(passage):
            names[passage[start:end]] = None
    return list(names)


def _cut(text: str, answer: str) -> str:
    """Sentences of a passage around the answer, up to `LONGEST_PASSAGE` words."""
    spans = sentence_spans(text)
    places = [place for place, (start, end) in enumerate(spans) if _holds(text[start:end], answer)]
    first = last = places[0] if places else 0
    while True:
        wider = [(first - 1, last), (first, last + 1)]
        for low, high in wider:
            if low < 0 or high >= len(spans):
                continue
            words = text[spans[low][0] : spans[high][1]].split()
            if len(words) <= LONGEST_PASSAGE:
                first, last = low, high
                break
        else:
            return text[spans[first][0] : spans[last][1]].strip()


def _holds(text: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None
