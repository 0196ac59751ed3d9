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
    def said(self) -> str:
        """The text with who said it."""
        return f"{self.speaker}: {self.text}"

    @property
    def passage(self) -> str:
        """What is ranked and scored: the text with who said it, and when."""
        return f"({self.date}) {self.said}"


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

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Question:
        """From the JSON of the data."""
        return cls(
            record["id"],
            record["category"],
            record["question"],
            record["answer"],
            tuple(record.get("evidence") or record["documents"]),
            tuple(hit.get("turn") or hit["document"] for hit in record.get("misleading", ())),
            record["overlap"],
        )


@dataclass(frozen=True, slots=True)
class Repeated:
    """Turns that say the same: almost word for word, or a fact in different words."""

    text: str
    turns: tuple[str, ...]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class ExampleData:
    """Everything in ``examples/data``; documents are (title, text)."""

    turns: tuple[Turn, ...]
    documents: tuple[tuple[str, str], ...]
    questions: tuple[Question, ...]
    document_questions: tuple[Question, ...]
    near_duplicates: tuple[Repeated, ...]
    repeated_facts: tuple[Repeated, ...]
    sessions: int


def load_data(folder: Path = DATA) -> ExampleData:
    """Read the example data.

    Raises:
        StorageError: A file is missing.
    """
    try:
        talk, documents, questions = (
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
            for session in talk["sessions"]
            for turn in session["turns"]
        ),
        documents=tuple((each["title"], each["text"]) for each in documents["documents"]),
        questions=tuple(map(Question.of, questions["conversation"])),
        document_questions=tuple(map(Question.of, questions["documents"])),
        near_duplicates=tuple(
            Repeated(group["question"], tuple(group["turns"]), group["answer"])
            for group in questions["near_duplicates"]
        ),
        repeated_facts=tuple(
            Repeated(group["fact"], tuple(group["turns"])) for group in questions["repeated_facts"]
        ),
        sessions=len(talk["sessions"]),
    )


def choose(questions: Sequence[Question], limit: int | None) -> list[Question]:
    """``limit`` questions, taken from the categories in turn; None takes all.

    The choice depends on nothing but the data, so that it cannot favour a method. Within a
    category, questions with and without words in common with their evidence alternate.
    """
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.category, []).append(question)
    mixed = []
    for number, group in enumerate(groups.values()):
        # Which kind comes first differs from category to category.
        kinds = ("some", "none") if number % 2 else ("none", "some")
        mixed.append(_alternate([q for q in group if q.overlap == kind] for kind in kinds))
    return _alternate(mixed)[:limit]


def _alternate(groups: Iterable[Sequence[Question]]) -> list[Question]:
    return [q for q in chain.from_iterable(zip_longest(*groups)) if q is not None]
