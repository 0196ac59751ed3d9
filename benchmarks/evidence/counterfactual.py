"""Counterfactual passages: the true passage against a copy whose answer was exchanged.

Section 3.2 of Entropic Context Shaping ("the direction problem"): a false passage moves the
answer as much as the true one, in another direction. The false answer is the answer to another
question and of the same type (a year, a number, a name, lower-case words), so that the copy
reads as well as the original. Which of the two stands first is drawn, so that a method that
cannot tell them apart wins half of the time.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.errors import InvalidInputError

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"


def answer_type(answer: str) -> str:
    """``"date"``, ``"year"``, ``"number"``, ``"name"`` or ``"phrase"``, with its words counted."""
    text = answer.strip()
    words = len(text.split())
    if re.search(rf"\b({_MONTHS})\b", text.lower()) and re.search(r"\d", text):
        return "date"
    if re.fullmatch(r"(1\d|20)\d\d", text):
        return "year"
    if re.search(r"\d", text):
        return f"number of {words}"
    first, last = text[:1], (text.split() or [""])[-1][:1]
    kind = "name" if first.isupper() and last.isupper() else "phrase"
    return f"{kind} of {min(words, 3)}"


def counterfactuals(
    questions: Sequence[EvidenceQuestion], *, seed: int = 42
) -> list[EvidenceQuestion]:
    """Pairs of a true unit and a false copy, for every question where that can be built.

    Args:
        questions: With answers that stand word by word in a unit of evidence.
        seed: Draws the false answers and the order of each pair.

    Raises:
        InvalidInputError: No pair can be built.
    """
    by_type: dict[str, list[str]] = {}
    for question in questions:
        for answer in question.answers[:1]:
            by_type.setdefault(answer_type(answer), []).append(answer.strip())
    pairs = [pair for question in questions if (pair := _pair(question, by_type, seed)) is not None]
    if not pairs:
        raise InvalidInputError(
            "no counterfactual can be built: there must be answers of the same type that stand "
            "word by word in the evidence"
        )
    return pairs


def _pair(
    question: EvidenceQuestion, by_type: dict[str, list[str]], seed: int
) -> EvidenceQuestion | None:
    rng = random.Random(f"{seed}/{question.id}")
    found = _stated(question)
    if found is None:
        return None
    true, answer = found
    known = {other.strip().lower() for other in question.answers}
    choices = [
        other
        for other in dict.fromkeys(by_type.get(answer_type(answer), ()))
        if other.lower() not in known and other.lower() not in true.lower()
    ]
    if not choices:
        return None
    wrong = rng.choice(choices)
    pattern = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
    false = pattern.sub(lambda _: wrong, true)
    # Another wording of the true answer may be left, and then the copy is not false.
    if any(_word(other).search(false) for other in question.answers if other.strip()):
        return None
    first = rng.random() < 0.5
    return EvidenceQuestion(
        question.id,
        question.question,
        question.answers,
        (true, false) if first else (false, true),
        (0 if first else 1,),
        question.group,
        answer_type(answer),
        (1 if first else 0,),
    )


def _stated(question: EvidenceQuestion) -> tuple[str, str] | None:
    """The first unit of evidence that holds an answer, and the longest answer that it holds."""
    for index in question.evidence:
        text = question.units[index]
        held = [a.strip() for a in question.answers if a.strip() and _word(a).search(text)]
        if held:
            return text, max(held, key=len)
    return None


def _word(answer: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", re.IGNORECASE)
