"""The records of published files: JSON documents or JSON lines, also rows of the hub's copies.

The hub's copies of HotpotQA and SQuAD turn lists of pairs into columns and repeat the article in
every question. They get their published shape here, so that a reader knows only that one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ecs_plugins.errors import InvalidInputError, StorageError

Record = Mapping[str, Any]

FIELDS: Mapping[str, tuple[str, ...]] = {
    "locomo": ("conversation", "qa"),
    "hotpotqa": ("_id", "question", "answer", "supporting_facts", "context"),
    "musique": ("id", "question", "answer", "paragraphs", "question_decomposition"),
    "squad": ("title", "paragraphs"),
}
"""Fields of every record of a data set."""

_TURN_ID = re.compile(r"D:?\d+:\d+")


def read_records(name: str, path: str | os.PathLike[str]) -> list[Record]:
    """Records of a published file, each with the `FIELDS` of its data set.

    Args:
        name: One of `FIELDS`.
        path: A JSON list, SQuAD's ``{"data": [...]}``, or JSON lines (``.jsonl``).

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: It is not of this data set (says which record is wrong).
    """
    file = Path(path)
    records = _json_records(file)
    if name == "hotpotqa":
        records = [
            _shaped(file, number, record, _hotpotqa) if _in_columns(record) else record
            for number, record in enumerate(records, start=1)
        ]
    elif name == "squad" and records and _is_squad_row(records[0]):
        records = _squad_articles(file, records)
    for number, record in enumerate(records, start=1):
        missing = [field for field in FIELDS[name] if not _has(record, field)]
        if missing:
            raise InvalidInputError(
                f"{file}, record {number}: no {missing[0]!r}, so it does not look like {name}; "
                "use the published file"
            )
    return records


@contextmanager
def complete(name: str, path: str | os.PathLike[str], index: int) -> Iterator[None]:
    """Name the record in errors of a reader.

    Raises:
        InvalidInputError: Names the file and the record.
    """
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}, record {index + 1}: {error}") from error
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise InvalidInputError(
            f"{path}, record {index + 1} does not look like {name}: {type(error).__name__}: {error}"
        ) from error


def locomo_sessions(record: Record) -> list[tuple[str, Sequence[Record]]]:
    """Date and turns of every session of a LoCoMo conversation, in order."""
    talk = record["conversation"]
    names = [name for name in talk if re.fullmatch(r"session_\d+", name)]
    return [
        (str(talk.get(f"{name}_date_time", "")), talk[name])
        for name in sorted(names, key=lambda item: int(item.rpartition("_")[2]))
    ]


def locomo_evidence(entry: Record, places: Mapping[str, int]) -> tuple[int, ...]:
    """Places of the turns that a LoCoMo question lists; some list several ids in one string."""
    listed = _TURN_ID.findall(" ".join(map(str, entry.get("evidence") or ())))
    return tuple(sorted({places[item] for item in listed if item in places}))


def _json_records(file: Path) -> list[Record]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not UTF-8 text: {error}") from error
    if file.suffix == ".jsonl":
        return [
            _parsed(line, f"{file}:{number}")
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
    data = _parsed(text, str(file))
    found = data.get("data") if isinstance(data, dict) else data
    if not isinstance(found, list):
        raise InvalidInputError(f"{file} holds no list of records; use the published file")
    return found


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{place} is not valid JSON: {error}") from error


def _has(record: object, field: str) -> bool:
    return isinstance(record, dict) and field in record


def _shaped(file: Path, number: int, row: Record, convert: Callable[[Record], Record]) -> Record:
    try:
        return convert(row)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{file}, record {number} is incomplete: {type(error).__name__}: {error}"
        ) from error


def _in_columns(record: object) -> bool:
    return isinstance(record, Mapping) and isinstance(record.get("context"), Mapping)


def _hotpotqa(row: Record) -> Record:
    """From ``context: {title: [...], sentences: [...]}`` and likewise the supporting facts."""
    return {
        **row,
        "_id": row["id"],
        "context": _pairs(row["context"], "title", "sentences"),
        "supporting_facts": _pairs(row["supporting_facts"], "title", "sent_id"),
    }


def _pairs(columns: Record, first: str, second: str) -> list[list[Any]]:
    return [list(pair) for pair in zip(columns[first], columns[second], strict=True)]


def _is_squad_row(record: object) -> bool:
    """Return True for a SQuAD question with its paragraph instead of an article."""
    return isinstance(record, Mapping) and {"context", "question", "answers"} <= record.keys()


def _squad_articles(file: Path, rows: Sequence[Record]) -> list[Record]:
    """Articles in the order of first appearance, from ``{id, title, context, ...}`` rows."""
    articles: dict[str, dict[str, list[Record]]] = {}
    for number, row in enumerate(rows, start=1):
        found = _shaped(file, number, row, _squad_question)
        paragraphs = articles.setdefault(found["title"], {})
        paragraphs.setdefault(found["context"], []).append(found["qa"])
    return [
        {
            "title": title,
            "paragraphs": [{"context": text, "qas": qas} for text, qas in paragraphs.items()],
        }
        for title, paragraphs in articles.items()
    ]


def _squad_question(row: Record) -> Record:
    answers = [{"text": text} for text in row["answers"]["text"]]
    entry = {"id": row["id"], "question": row["question"], "answers": answers}
    return {"title": row["title"], "context": row["context"], "qa": entry}
