"""Reads questions from JSONL and from the published files of HotpotQA, MuSiQue, SQuAD, LoCoMo.

These may be JSON documents or JSON lines, also with the rows of the Hugging Face hub's copies.

A record that cannot be used is refused with its file and line (JSONL) or place (JSON), before
anything is measured.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from ecs_plugins.common.files import read_text
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.data import CalibrationQuestion, Context, Document
from ecs_plugins.frontier.hub_data import is_squad_row, published

DataFormat = Literal["auto", "jsonl", "hotpotqa", "musique", "squad", "locomo"]


def read_questions(
    path: str | os.PathLike[str],
    format: DataFormat = "auto",
    *,
    limit: int | None = None,
    seed: int = 42,
) -> list[CalibrationQuestion]:
    """Read a data file.

    Args:
        path: JSONL ``{question, answer | answers, documents, supporting?, id?}`` with documents
            as texts or ``{title?, text}``, or a published file.
        format: Which it is; by default recognised from its content.
        limit: Take a sample of this many, kept in file order.
        seed: Of the sample.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A record is wrong (file and place are named), ids repeat, or there
            is no question.
    """
    file = Path(path)
    text = read_text(file)
    rows = _rows(file, text, format)
    questions = list(rows)
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


def _rows(file: Path, text: str, format: DataFormat) -> Iterator[CalibrationQuestion]:
    lines = _looks_like_lines(file, text)
    if format == "jsonl":
        return _jsonl(file, text)
    if format == "auto" and lines and not _recognise([_first_line(text)]):
        return _jsonl(file, text)
    data = [line.data for line in _lines(file, text)] if lines else _document(file, text)
    found = _recognise(data) if format == "auto" else format
    if found not in _READERS:
        raise InvalidInputError(
            f"{file} is none of the known formats: JSONL, {', '.join(_READERS)}. Write one JSON "
            "object per line with question, answer and documents"
        )
    if isinstance(data, list):
        try:
            data = published(found, data)
        except InvalidInputError as error:
            raise InvalidInputError(f"{file}, {error}") from error
    return _READERS[found](file, data)


def _document(file: Path, text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from error


def _first_line(text: str) -> object:
    try:
        return json.loads(text.lstrip().partition("\n")[0])
    except json.JSONDecodeError:
        return None


def _looks_like_lines(file: Path, text: str) -> bool:
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        return True
    first = _first_line(text)
    return isinstance(first, dict) and "data" not in first


def _recognise(data: object) -> str:
    if isinstance(data, dict):
        return "squad" if "data" in data else ""
    first = data[0] if isinstance(data, list) and data else None
    if not isinstance(first, dict):
        return ""
    if is_squad_row(first):
        return "squad"
    marks = {
        "supporting_facts": "hotpotqa",
        "paragraphs": "musique",
        "conversation": "locomo",
    }
    return next((name for mark, name in marks.items() if mark in first), "")


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

    def records(self, name: str) -> list[_Record]:
        return [
            _Record(item, f"{self.where}, {name}[{index}]")
            for index, item in enumerate(self.items(name))
        ]

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


def _jsonl(file: Path, text: str) -> Iterator[CalibrationQuestion]:
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
            documents.append(Document(entry.text("text"), str(entry.data.get("title") or "")))
        supporting = record.items("supporting") if "supporting" in record.data else []
        if not all(isinstance(item, int) for item in supporting):
            raise InvalidInputError(f"{where}: 'supporting' must hold indices of documents")
        yield record.question(
            str(record.data.get("id", f"line {where.rpartition(':')[2]}")),
            answers,
            record.context(documents),
            [int(item) for item in supporting],  # type: ignore[call-overload]
        )


def _listed(file: Path, data: object) -> Iterator[_Record]:
    if not isinstance(data, list):
        raise InvalidInputError(f"{file}: expected a list of records")
    for index, item in enumerate(data):
        yield _Record(item, f"{file}, record {index}")


def _hotpotqa(file: Path, data: object) -> Iterator[CalibrationQuestion]:
    for record in _listed(file, data):
        documents = []
        for entry in record.items("context"):
            if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list)):
                raise InvalidInputError(
                    f"{record.where}: every context must be [title, [sentences]]"
                )
            sentences = tuple(str(sentence) for sentence in entry[1])
            documents.append(Document("".join(sentences), str(entry[0]), sentences))
        titles = [document.title for document in documents]
        facts = [fact[0] for fact in record.items("supporting_facts") if isinstance(fact, list)]
        supporting = sorted({titles.index(title) for title in facts if title in titles})
        context = record.context(documents)
        yield record.question(record.text("_id"), [record.text("answer")], context, supporting)


def _musique(file: Path, data: object) -> Iterator[CalibrationQuestion]:
    for record in _listed(file, data):
        if not record.data.get("answerable", True):
            continue
        paragraphs = record.records("paragraphs")
        documents = [Document(p.text("paragraph_text"), p.text("title")) for p in paragraphs]
        supporting = [i for i, p in enumerate(paragraphs) if p.data.get("is_supporting")]
        answers = [record.text("answer"), *map(str, record.data.get("answer_aliases") or ())]
        yield record.question(record.text("id"), answers, record.context(documents), supporting)


def _squad(file: Path, data: object) -> Iterator[CalibrationQuestion]:
    whole = data if isinstance(data, dict) else {"data": data}
    for article in _Record(whole, str(file)).records("data"):
        paragraphs = article.records("paragraphs")
        # All paragraphs of an article are one context, so that its questions share it.
        title = str(article.data.get("title", ""))
        documents = [Document(p.text("context"), title) for p in paragraphs]
        context = article.context(documents)
        for index, paragraph in enumerate(paragraphs):
            for entry in paragraph.records("qas"):
                answers = [answer.text("text") for answer in entry.records("answers")]
                if answers:
                    yield entry.question(entry.text("id"), dict.fromkeys(answers), context, [index])


def _locomo(file: Path, data: object) -> Iterator[CalibrationQuestion]:
    for number, record in enumerate(_listed(file, data)):
        talk = _Record(record.get("conversation", dict), f"{record.where}, conversation")
        documents: list[Document] = []
        session_of: dict[str, int] = {}
        names = [name for name in talk.data if re.fullmatch(r"session_\d+", name)]
        for name in sorted(names, key=lambda item: int(item.rpartition("_")[2])):
            turns = []
            for turn in talk.records(name):
                session_of[turn.text("dia_id")] = len(documents)
                turns.append(f"{turn.text('speaker')}: {turn.text('text')}\n")
            date = str(talk.data.get(f"{name}_date_time", ""))
            documents.append(Document("".join(turns), date, tuple(turns)))
        context = record.context(documents)
        sample = str(record.data.get("sample_id", number))
        for index, entry in enumerate(record.records("qa")):
            # Category 5 asks for what was never said and has no answer to compare with.
            if "answer" in entry.data:
                evidence = [str(item) for item in entry.data.get("evidence") or ()]
                supporting = sorted({session_of[e] for e in evidence if e in session_of})
                yield entry.question(
                    f"{sample}/{index}", [entry.text("answer")], context, supporting
                )


_READERS: dict[str, Callable[[Path, object], Iterator[CalibrationQuestion]]] = {
    "hotpotqa": _hotpotqa,
    "musique": _musique,
    "squad": _squad,
    "locomo": _locomo,
}
