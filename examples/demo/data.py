"""The example data in ``examples/data``: what is in them, and which questions are asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from ecs_plugins.errors import StorageError

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the conversation."""

    id: str
    date: str
    speaker: str
    text: str

    @property
    def passage(self) -> str:
        """What is ranked and scored: the text with who said it, and when."""
        return f"({self.date}) {self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Document:
    """One document."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what answers it.

    Attributes:
        id: Its name.
        category: How it is answered; see the README of the data.
        question: The question.
        answer: The true answer.
        evidence: Ids of every turn or document that states what is asked.
        misleading: Ids of those that state an outdated or a false answer.
        overlap: ``"none"`` if the question shares no content word with its evidence, else
            ``"some"``.
    """

    id: str
    category: str
    question: str
    answer: str
    evidence: tuple[str, ...]
    misleading: tuple[str, ...]
    overlap: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """Turns that say the same, almost word for word."""

    question: str
    answer: str
    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatedFact:
    """A fact that is told again and again, in different words."""

    fact: str
    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExampleData:
    """Everything in ``examples/data``."""

    turns: tuple[Turn, ...]
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    document_questions: tuple[Question, ...]
    near_duplicates: tuple[Repeated, ...]
    repeated_facts: tuple[RepeatedFact, ...]
    sessions: int


def load_data(folder: Path = DATA) -> ExampleData:
    """Read the example data.

    Raises:
        StorageError: A file is missing.
    """
    try:
        conversation, documents, questions = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in ("conversation.json", "documents.json", "questions.json")
        )
    except OSError as error:
        raise StorageError(
            f"the example data are missing ({error.filename}); run the demo in a checkout"
        ) from error
    return ExampleData(
        turns=tuple(
            Turn(turn["id"], session["date"], turn["speaker"], turn["text"])
            for session in conversation["sessions"]
            for turn in session["turns"]
        ),
        documents=tuple(Document(**document) for document in documents["documents"]),
        questions=tuple(_question(record) for record in questions["conversation"]),
        document_questions=tuple(_question(record) for record in questions["documents"]),
        near_duplicates=tuple(
            Repeated(group["question"], group["answer"], tuple(group["turns"]))
            for group in questions["near_duplicates"]
        ),
        repeated_facts=tuple(
            RepeatedFact(group["fact"], tuple(group["turns"]))
            for group in questions["repeated_facts"]
        ),
        sessions=len(conversation["sessions"]),
    )


def _question(record: Mapping[str, Any]) -> Question:
    return Question(
        id=record["id"],
        category=record["category"],
        question=record["question"],
        answer=record["answer"],
        evidence=tuple(record.get("evidence") or record["documents"]),
        misleading=tuple(
            hit.get("turn") or hit["document"] for hit in record.get("misleading", ())
        ),
        overlap=record["overlap"],
    )


def choose(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """``limit`` questions, taken from the categories in turn; None takes all.

    The choice depends on nothing but the data, so that it cannot favour a method. Within a
    category, questions with and without words in common with their evidence alternate.
    """
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.category, []).append(question)
    mixed = [_alternate(_split(group, i % 2)) for i, group in enumerate(groups.values())]
    return _alternate(mixed)[:limit]


def _split(group: Iterable[Question], first: int) -> list[list[Question]]:
    """By overlap; which kind comes first differs from category to category."""
    parts: dict[str, list[Question]] = {"none": [], "some": []}
    for question in group:
        parts[question.overlap].append(question)
    kinds = list(parts.values())
    return kinds[first:] + kinds[:first]


def _alternate(groups: Iterable[Sequence[Question]]) -> list[Question]:
    return [q for q in chain.from_iterable(zip_longest(*groups)) if q is not None]
