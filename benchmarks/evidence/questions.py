"""Questions of evidence benchmarks, with units and evidence."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ecs_plugins.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class EvidenceQuestion:
    """One question about a list of units.

    Attributes:
        id: Unique in its data set.
        question: As asked.
        answers: Every answer that counts; may be empty.
        units: What is ranked; questions of one group usually share one tuple.
        evidence: Indices of the units that state what is asked, ascending.
        group: What it shares with others (conversation, article), so that they are not
            independent; a question alone in its group has its own id here.
        category: The data set's own.

    Raises:
        InvalidInputError: Blank, no evidence, or an index that is not a unit.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    units: tuple[str, ...]
    evidence: tuple[int, ...]
    group: str
    category: str = ""

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise InvalidInputError(f"question {self.id!r} is empty")
        if not self.evidence:
            raise InvalidInputError(f"question {self.id!r} has no evidence; leave it out")
        for index in self.evidence:
            if not 0 <= index < len(self.units):
                raise InvalidInputError(
                    f"question {self.id!r}: {index} is no index of its {len(self.units)} units"
                )


def sample(
    questions: Sequence[EvidenceQuestion],
    *,
    limit: int | None = None,
    seed: int = 42,
) -> list[EvidenceQuestion]:
    """Shuffle questions by the seed and return the first ``limit`` of them.

    A smaller limit gives the beginning of what a larger one gives, so that a measurement can
    be extended.

    Raises:
        InvalidInputError: Ids repeat, or ``limit`` is not positive.
    """
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit must be at least 1, got {limit}")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise InvalidInputError(f"the id {question.id!r} occurs twice; make it unique")
        seen.add(question.id)
    shuffled = list(questions)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:limit]
