"""Questions of a calibration, each with answers and a context of documents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Annotated

from pydantic import BaseModel, BeforeValidator

from ecs_plugins.common.checks import check_each, check_kind
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
        """Return the title and the text."""
        if not self.title:
            return self.text
        return f"{self.title}: {self.text}"


@dataclass(frozen=True, slots=True)
class Context:
    """Documents that several questions refer to.

    Attributes:
        documents: In their order.
        id: SHA-256 of titles and texts; equal documents have one id.

    Raises:
        InvalidInputError: There is no text.
    """

    documents: tuple[Document, ...]
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", check_each("documents", self.documents, Document))
        if not any(document.text.strip() for document in self.documents):
            raise InvalidInputError("a context needs at least one document with text")
        contents = [[document.title, document.text] for document in self.documents]
        object.__setattr__(self, "id", digest(contents))

    @classmethod
    def of(cls, texts: Sequence[str]) -> Context:
        """Return the context of plain texts, one document each."""
        documents = [Document(text) for text in check_each("texts", texts, str)]
        return cls(tuple(documents))

    @property
    def text(self) -> str:
        """Return all documents, each after its title."""
        return "\n\n".join(document.titled for document in self.documents)


@dataclass(frozen=True, slots=True)
class CalibrationQuestion:
    """One question with its answers.

    Attributes:
        id: Unique in its data set.
        answers: Every answer that counts; at least one.
        context: The documents of the question.
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
        name = check_kind("the id of a question", self.id, str)
        check_kind(f"question {name!r}", self.question, str)
        check_each(f"the answers of {name!r}", self.answers, str)
        check_each(f"the supporting documents of {name!r}", self.supporting, Integral)  # type: ignore[type-abstract]
        check_kind(f"the context of {name!r}", self.context, Context)
        if not self.question.strip():
            raise InvalidInputError(f"question {self.id!r} is empty")
        if not any(answer.strip() for answer in self.answers):
            raise InvalidInputError(f"question {self.id!r} has no answer to compare with")
        documents = len(self.context.documents)
        if any(not 0 <= index < documents for index in self.supporting):
            raise InvalidInputError(
                f"question {self.id!r}: supporting {self.supporting} must be indices of its "
                f"{documents} documents"
            )


# Reading.

_SEED = 42  # of samples


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
        answers = self.answers
        if answers is None:
            answers = [self.answer or ""]
        return CalibrationQuestion(
            id=place if self.id is None else self.id,
            question=self.question,
            answers=tuple(answers),
            context=Context(tuple(self.documents)),
            supporting=tuple(self.supporting),
        )


def read_questions(
    path: str | os.PathLike[str], *, limit: int | None = None
) -> list[CalibrationQuestion]:
    """Read questions from JSON lines.

    Args:
        path: ``{question, answer | answers, documents, supporting?, id?}`` on each line, with
            documents as texts or as ``{text, title?, sentences?}``.
        limit: Take a seeded sample of this many, kept in file order.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A record is wrong (file and place are named), ids repeat, there is no
            question, or ``limit`` < 1.
    """

    def read(line: str, number: int) -> CalibrationQuestion:
        record = _QuestionRecord.model_validate_json(line)
        return record.made(f"line {number}")

    questions = read_records(path, read)
    if not questions:
        raise InvalidInputError(f"{path}: no question with an answer")
    check_unique(questions, f"{path}: ")
    return sampled(questions, limit, _SEED)


def check_unique(questions: Sequence[CalibrationQuestion], where: str = "") -> None:
    """Refuse questions of one id; ``where`` begins the message."""
    counts = Counter(question.id for question in questions)
    ((name, count),) = counts.most_common(1)
    if count > 1:
        raise InvalidInputError(f"{where}the id {name!r} occurs twice; make it unique")


def data_hash(questions: Sequence[CalibrationQuestion]) -> str:
    """Return the SHA-256 of ids, questions, answers and contexts, in order."""
    contents = []
    for question in questions:
        answers = list(question.answers)
        contents.append([question.id, question.question, answers, question.context.id])
    return digest(contents)
