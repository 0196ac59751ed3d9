"""What a calibration asks: questions with answers, each about a context of documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ecs_plugins.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a context.

    Attributes:
        text: Its text.
        title: Its title; may be empty.
        sentences: Its text cut into sentences, where the data set says so.
    """

    text: str
    title: str = ""
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
        parts = [[document.title, document.text] for document in self.documents]
        object.__setattr__(self, "id", _digest(parts))

    @classmethod
    def of(cls, texts: Iterable[str]) -> Context:
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
        question: As asked.
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


def data_hash(questions: Sequence[CalibrationQuestion]) -> str:
    """SHA-256 over ids, questions, answers and contexts, in order."""
    return _digest([[q.id, q.question, list(q.answers), q.context.id] for q in questions])


def _digest(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
