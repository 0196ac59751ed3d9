"""Published data sets as they come from the Hugging Face hub: one file on request, and its rows.

The hub's copies of HotpotQA and SQuAD turn lists of pairs into columns and repeat the article in
every question. `published` gives them their published shape, so that a reader knows only that one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecs_plugins.errors import InvalidInputError, StorageError

HUB_ADDRESS = "hf://datasets/"
_PARTS = re.compile(
    rf"{HUB_ADDRESS}(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?/(?P<file>[^@]*[^/@])"
)

Record = Mapping[str, Any]


def data_file(source: str | os.PathLike[str]) -> Path:
    """A path as it is; a file of a hub data set is fetched into the hub's own cache first.

    Nothing is fetched but the one file that was asked for.

    Args:
        source: A path, or ``hf://datasets/OWNER/NAME[@REVISION]/FILE``.

    Raises:
        InvalidInputError: The address is not of that form.
        StorageError: The file is not there, or the hub cannot be reached.
    """
    address = os.fspath(source)
    if not address.startswith("hf:"):
        return Path(source)
    parts = _PARTS.fullmatch(address)
    if parts is None:
        raise InvalidInputError(
            f"{address!r} names no file of a data set: write {HUB_ADDRESS}OWNER/NAME/FILE, with "
            "OWNER/NAME@REVISION for a certain version"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        found = hf_hub_download(
            parts["repo"], parts["file"], repo_type="dataset", revision=parts["revision"]
        )
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise StorageError(
            f"cannot fetch {address}: {reason}. Download the file by hand and name its path, or "
            "check the address and the connection"
        ) from error
    return Path(found)


def published(name: str, records: Sequence[Any]) -> list[Any]:
    """Records in the published shape; those that have it already come back as they are.

    Args:
        name: The data set; of all but ``hotpotqa`` and ``squad`` the two shapes are the same.
        records: JSON values, in the order of the file.

    Raises:
        InvalidInputError: A row of the hub's shape is incomplete (says which).
    """
    if name == "hotpotqa":
        return [
            _read(_hotpotqa_record, row, number) if _in_columns(row) else row
            for number, row in enumerate(records, start=1)
        ]
    if name == "squad" and is_squad_row(records[0] if records else None):
        return _squad_articles(records)
    return list(records)


def is_squad_row(record: object) -> bool:
    """Whether this is a question of SQuAD with its paragraph, and not an article."""
    return isinstance(record, Mapping) and {"context", "question", "answers"} <= record.keys()


def _in_columns(record: object) -> bool:
    return isinstance(record, Mapping) and isinstance(record.get("context"), Mapping)


def _read(convert: Callable[[Record], Record], record: Record, number: int) -> Record:
    try:
        return convert(record)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"record {number} is incomplete: {type(error).__name__}: {error}"
        ) from error


def _hotpotqa_record(record: Record) -> Record:
    """From ``context: {title: [...], sentences: [...]}`` and likewise the supporting facts."""
    return {
        **record,
        "_id": record["id"],
        "context": _pairs(record["context"], "title", "sentences"),
        "supporting_facts": _pairs(record["supporting_facts"], "title", "sent_id"),
    }


def _pairs(columns: Record, first: str, second: str) -> list[list[Any]]:
    return [list(pair) for pair in zip(columns[first], columns[second], strict=True)]


def _squad_articles(rows: Sequence[Any]) -> list[Record]:
    """Articles in the order of first appearance, from ``{id, title, context, ...}`` rows."""
    articles: dict[str, dict[str, list[Record]]] = {}
    for number, row in enumerate(rows, start=1):
        found = _read(_squad_question, row, number)
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
