"""Reads a user's own questions: one JSON object per line.

A record that cannot be used is refused with its file and line, before anything is measured.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from ecs_plugins.common.files import read_text
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.data import CalibrationQuestion, Context, Document


def read_questions(
    path: str | os.PathLike[str],
    *,
    limit: int | None = None,
    seed: int = 42,
) -> list[CalibrationQuestion]:
    """Read a data file.

    Args:
        path: JSON lines ``{question, answer | answers, documents, supporting?, id?}`` with
            documents as texts or ``{title?, text, sentences?}``.
        limit: Take a sample of this many, kept in file order.
        seed: Of the sample.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A record is wrong (file and place are named), ids repeat, or there
            is no question.
    """
    file = Path(path)
    questions = list(_questions(file, read_text(file)))
    if not questions:
        raise InvalidInputError(f"{file}: no question with an answer")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise InvalidInputError(f"{file}: the id {question.id!r} occurs twice; make it unique")
        seen.add(question.id)
    if limit is not None and limit < len(questions):
        if limit < 1:
            raise InvalidInputError(f"limit must be at least 1, got {limit}")
        chosen = sorted(random.Random(seed).sample(range(len(questions)), limit))
        questions = [questions[index] for index in chosen]
    return questions


class _Record:
    """One JSON object and where it stands."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise InvalidInputError(f"{where}: expected an object, got {type(data).__name__}")
        self.data = data
        self.where = where

    def get(self, name: str, kind: type | tuple[type, ...]) -> object:
        if name not in self.data:
            raise InvalidInputError(f"{self.where}: the field {name!r} is missing")
        value = self.data[name]
        if not isinstance(value, kind):
            raise InvalidInputError(
                f"{self.where}: the field {name!r} has the wrong type {type(value).__name__}"
            )
        return value

    def text(self, name: str) -> str:
        return str(self.get(name, (str, int, float)))

    def items(self, name: str) -> list[object]:
        return list(self.get(name, list))  # type: ignore[call-overload, no-any-return]

    def question(
        self,
        id: str,
        answers: Iterable[str],
        context: Context,
        supporting: Iterable[int] = (),
    ) -> CalibrationQuestion:
        try:
            return CalibrationQuestion(
                id, self.text("question"), tuple(answers), context, tuple(supporting)
            )
        except InvalidInputError as error:
            raise self.refused(error) from error

    def context(self, documents: Iterable[Document]) -> Context:
        try:
            return Context(tuple(documents))
        except InvalidInputError as error:
            raise self.refused(error) from error

    def refused(self, error: InvalidInputError) -> InvalidInputError:
        known = str(error).startswith(self.where)
        return error if known else InvalidInputError(f"{self.where}: {error}")


def _lines(file: Path, text: str) -> Iterator[_Record]:
    # Not splitlines(): a text may hold other characters that end a line.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            yield _Record(json.loads(line), where)
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"{where}: not valid JSON: {error.msg}") from error


def _questions(file: Path, text: str) -> Iterator[CalibrationQuestion]:
    for record in _lines(file, text):
        where = record.where
        answers = (
            [str(item) for item in record.items("answers")]
            if "answers" in record.data
            else [record.text("answer")]
        )
        documents = []
        for index, item in enumerate(record.items("documents")):
            if isinstance(item, str):
                documents.append(Document(item))
                continue
            entry = _Record(item, f"{where}, documents[{index}]")
            sentences = entry.items("sentences") if "sentences" in entry.data else []
            title = str(entry.data.get("title") or "")
            documents.append(Document(entry.text("text"), title, tuple(map(str, sentences))))
        supporting = record.items("supporting") if "supporting" in record.data else []
        if not all(isinstance(item, int) for item in supporting):
            raise InvalidInputError(f"{where}: 'supporting' must hold indices of documents")
        yield record.question(
            str(record.data.get("id", f"line {where.rpartition(':')[2]}")),
            answers,
            record.context(documents),
            [int(item) for item in supporting],  # type: ignore[call-overload]
        )
