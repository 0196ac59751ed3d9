"""What a calibration asks: questions with answers, each about a context of documents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, BeforeValidator

from ecs_plugins.common.files import digest, read_records, sampled
from ecs_plugins.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a context, cut into ``sentences`` where the data set says so."""

    text: str
    title: Annotated[str, BeforeValidator(lambda title: title or "")] = ""
    sentences: tuple[str, ...] = ()

    @property
    def titled(self) -> str:
        """The text behind its title."""
        return f"{self.title}: {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Context:
    """Documents that questions are asked about.

    Attributes:
        documents: In their order.
        id: SHA-256 of titles and texts: equal contexts are one context, whoever asks.

    Raises:
        InvalidInputError: There is no text.
    """

    documents: tuple[Document, ...]
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", tuple(self.documents))
        if not any(document.text.strip() for document in self.documents):
            raise InvalidInputError("a context needs at least one document with text")
        object.__setattr__(self, "id", digest([[d.title, d.text] for d in self.documents]))

    @classmethod
    def of(cls, texts: Sequence[str]) -> Context:
        """From plain texts."""
        return cls(tuple(Document(text) for text in texts))

    @property
    def text(self) -> str:
        """All documents, each behind its title."""
        return "\n\n".join(document.titled for document in self.documents)


@dataclass(frozen=True, slots=True)
class CalibrationQuestion:
    """One question with its answers.

    Attributes:
        id: Unique in its data set.
        answers: Every answer that counts; at least one.
        context: What it is asked about.
        supporting: Indices of the documents that hold the answer, for the oracle.

    Raises:
        InvalidInputError: No question, no answer, or a supporting index out of range.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    context: Context
    supporting: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise InvalidInputError(f"question {self.id!r} is empty")
        if not any(answer.strip() for answer in self.answers):
            raise InvalidInputError(f"question {self.id!r} has no answer to compare with")
        if any(not 0 <= index < len(self.context.documents) for index in self.supporting):
            raise InvalidInputError(
                f"question {self.id!r}: supporting {self.supporting} must be indices of its "
                f"{len(self.context.documents)} documents"
            )


# Reading.


def _as_document(given: object) -> object:
    return given if isinstance(given, dict) else {"text": given}


class _QuestionRecord(BaseModel, coerce_numbers_to_str=True):
    """One JSON object of a user's file."""

    question: str
    documents: list[Annotated[Document, BeforeValidator(_as_document)]]
    answer: str | None = None
    answers: list[str] | None = None
    supporting: list[int] = []
    id: str | None = None

    def made(self, place: str) -> CalibrationQuestion:
        answers = [self.answer or ""] if self.answers is None else self.answers
        name = place if self.id is None else self.id
        context, supporting = Context(tuple(self.documents)), tuple(self.supporting)
        return CalibrationQuestion(name, self.question, tuple(answers), context, supporting)


def read_questions(
    path: str | os.PathLike[str], *, limit: int | None = None, seed: int = 42
) -> list[CalibrationQuestion]:
    """Read questions from JSON lines.

    Args:
        path: ``{question, answer | answers, documents, supporting?, id?}`` on each line, with
            documents as texts or as ``{text, title?, sentences?}``.
        limit: Take a sample of this many, kept in file order.
        seed: Of the sample.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A record is wrong (file and place are named), ids repeat, there is no
            question, or ``limit`` < 1.
    """
    read = _QuestionRecord.model_validate_json
    questions = read_records(path, lambda line, number: read(line).made(f"line {number}"))
    if not questions:
        raise InvalidInputError(f"{path}: no question with an answer")
    check_unique(questions, f"{path}: ")
    return sampled(questions, limit, seed)


def check_unique(questions: Sequence[CalibrationQuestion], where: str = "") -> None:
    """Refuse questions of one id; ``where`` begins the message."""
    (name, count), *_ = Counter(question.id for question in questions).most_common(1)
    if count > 1:
        raise InvalidInputError(f"{where}the id {name!r} occurs twice; make it unique")


def data_hash(questions: Sequence[CalibrationQuestion]) -> str:
    """SHA-256 over ids, questions, answers and contexts, in order."""
    return digest([[q.id, q.question, list(q.answers), q.context.id] for q in questions])
