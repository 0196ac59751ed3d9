"""Labelled examples: questions, passages, and which of the passages are evidence."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecs_plugins.common.files import read_text
from ecs_plugins.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """One question about some passages, of which it is known which ones answer it.

    Attributes:
        question: As a user asks it.
        passages: What a retriever would return, evidence and distractors; none blank.
        evidence: Indices of the passages that help to answer; may be empty.
        answers: The answers that count, if they are known.

    Raises:
        InvalidInputError: A text is blank, an index is out of range or repeated, or there is no
            passage.
    """

    question: str
    passages: tuple[str, ...]
    evidence: tuple[int, ...]
    answers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("passages", "answers"):
            if isinstance(getattr(self, name), str):
                raise InvalidInputError(f"{name} must be a list of texts, got one text")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "evidence", tuple(self.evidence))
        if not isinstance(self.question, str) or not self.question.strip():
            raise InvalidInputError("an example needs a question")
        texts = (*self.passages, *self.answers)
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise InvalidInputError(
                f"a passage or an answer to {self.question!r} is not text, or blank; leave it out"
            )
        if not self.passages:
            raise InvalidInputError(f"the question {self.question!r} has no passages")
        known = range(len(self.passages))
        if any(isinstance(i, bool) or i not in known for i in self.evidence):
            raise InvalidInputError(
                f"evidence {list(self.evidence)} of {self.question!r} must be indices of its "
                f"{len(self.passages)} passages, the first of which is 0"
            )
        if len(set(self.evidence)) < len(self.evidence):
            raise InvalidInputError(
                f"evidence {list(self.evidence)} of {self.question!r} repeats an index"
            )

    @property
    def labels(self) -> tuple[bool, ...]:
        """Which passages are evidence."""
        chosen = set(self.evidence)
        return tuple(index in chosen for index in range(len(self.passages)))


def read_examples(
    path: str | os.PathLike[str], *, limit: int | None = None, seed: int = 42
) -> list[LabelledExample]:
    """Read JSON lines ``{question, passages, evidence, answer?}``.

    Args:
        path: The file. ``answer`` is a text or a list of texts that all count.
        limit: Take a sample of this many, kept in the order of the file.
        seed: Of the sample.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A line cannot be used (it is named), or there is none.
    """
    file = Path(path)
    text = read_text(file)
    examples = [
        _example(line, f"{file}, line {number}")
        # Not splitlines: a JSON string may hold U+2028 as it is.
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if not examples:
        raise InvalidInputError(
            f'{file} holds no examples; write one {{"question": "...", "passages": ["..."], '
            '"evidence": [0]} per line'
        )
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit must be at least 1, got {limit}")
    if limit is not None and limit < len(examples):
        chosen = sorted(random.Random(seed).sample(range(len(examples)), limit))
        examples = [examples[index] for index in chosen]
    return examples


def _example(line: str, where: str) -> LabelledExample:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{where}: not JSON ({error}); one object per line") from error
    if not isinstance(record, Mapping):
        raise InvalidInputError(f"{where}: expected an object, got {type(record).__name__}")
    missing = [name for name in ("question", "passages", "evidence") if name not in record]
    if missing:
        raise InvalidInputError(f"{where}: {', '.join(missing)} missing")
    answer = record.get("answer") or ()
    answers = (answer,) if isinstance(answer, str) else answer
    for name, value in (("passages", record["passages"]), ("evidence", record["evidence"])):
        if not isinstance(value, list):
            raise InvalidInputError(f"{where}: {name} must be a list")
    if not isinstance(answers, (list, tuple)):
        raise InvalidInputError(f"{where}: answer must be a text or a list of texts")
    try:
        return LabelledExample(
            record["question"],
            tuple(record["passages"]),
            tuple(record["evidence"]),
            tuple(answers),
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from error


def data_hash(examples: Sequence[LabelledExample]) -> str:
    """SHA-256 over questions, passages, evidence and answers, in order."""
    rows = [[e.question, e.passages, e.evidence, e.answers] for e in examples]
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
