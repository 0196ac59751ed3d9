"""Questions of evidence benchmarks, with units and evidence."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ecs_plugins.errors import InvalidInputError

Part = Literal["all", "tune", "report"]
"""Everything, or the half for choosing defaults, or the half for reporting them."""


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
        misleading: Indices of units that state a false answer.
        hops: What each piece of evidence belongs to, such as its paragraph; by default each is
            a hop of its own.

    Raises:
        InvalidInputError: Blank, no evidence, an index that is not a unit, or not one hop for
            every piece of evidence.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    units: tuple[str, ...]
    evidence: tuple[int, ...]
    group: str
    category: str = ""
    misleading: tuple[int, ...] = ()
    hops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise InvalidInputError(f"question {self.id!r} is empty")
        if not self.evidence:
            raise InvalidInputError(f"question {self.id!r} has no evidence; leave it out")
        for index in (*self.evidence, *self.misleading):
            if not 0 <= index < len(self.units):
                raise InvalidInputError(
                    f"question {self.id!r}: {index} is no index of its {len(self.units)} units"
                )
        hops = self.hops or tuple(map(str, self.evidence))
        if len(hops) != len(self.evidence):
            raise InvalidInputError(
                f"question {self.id!r} has {len(self.evidence)} pieces of evidence and "
                f"{len(hops)} hops; name one hop for each"
            )
        object.__setattr__(self, "hops", hops)


def part_of(group: str) -> Literal["tune", "report"]:
    """The half that a conversation or article belongs to; the same on every machine."""
    return "tune" if zlib.crc32(group.encode()) % 2 else "report"


def sample(
    questions: Sequence[EvidenceQuestion],
    *,
    limit: int | None = None,
    seed: int = 42,
    part: Part = "all",
) -> list[EvidenceQuestion]:
    """Choose questions: one part, shuffled by the seed, the first ``limit`` of them.

    A smaller limit gives the beginning of what a larger one gives, so that a measurement can
    be extended.

    Raises:
        InvalidInputError: Ids repeat, nothing is left, or ``limit`` is not positive.
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
    chosen = [q for q in shuffled if part == "all" or part_of(q.group) == part][:limit]
    if not chosen:
        raise InvalidInputError(
            f"no question with evidence is left in part {part!r} of {len(questions)}; "
            "use the part 'all' or another file"
        )
    return chosen


def data_hash(questions: Sequence[EvidenceQuestion]) -> str:
    """SHA-256 over ids, questions, answers, evidence and units, in order."""
    digest = hashlib.sha256()
    units: dict[int, str] = {}  # by identity: a conversation is hashed once, not per question
    for q in questions:
        if id(q.units) not in units:
            units[id(q.units)] = _digest(list(q.units))
        line = [q.id, q.question, q.answers, q.evidence, q.misleading, units[id(q.units)]]
        digest.update(_digest(line).encode())
    return digest.hexdigest()


def _digest(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
