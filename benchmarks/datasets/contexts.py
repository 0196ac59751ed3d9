"""Published data sets as calibration questions: each about a context of documents.

| data set | a context | its documents |
|---|---|---|
| HotpotQA | the paragraphs of a question | paragraphs, with the published sentences |
| MuSiQue | the paragraphs of a question | paragraphs |
| SQuAD | an article | paragraphs |

Supporting are the documents that the data set labels. A question without an answer is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from benchmarks.datasets.records import (
    Record,
    complete,
    read_records,
)
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier import CalibrationQuestion, Context
from ecs_plugins.frontier.data import Document


def read_contexts(name: str, path: str | os.PathLike[str]) -> list[CalibrationQuestion]:
    """Questions of a published file.

    Args:
        name: One of `CONTEXTS`.
        path: The file.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: An unknown data set, a record that is not of it, or no question.
    """
    if name not in CONTEXTS:
        raise InvalidInputError(f"unknown data set {name!r}: use one of {', '.join(CONTEXTS)}")
    questions: list[CalibrationQuestion] = []
    for index, record in enumerate(read_records(name, path)):
        with complete(name, path, index):
            questions += CONTEXTS[name](record, index)
    if not questions:
        raise InvalidInputError(f"{path}: no question with an answer")
    return questions


def _hotpotqa(record: Record, index: int) -> Iterator[CalibrationQuestion]:
    del index
    documents = [
        Document("".join(sentences), title, tuple(sentences))
        for title, sentences in record["context"]
    ]
    titles = [document.title for document in documents]
    facts = {title for title, _ in record["supporting_facts"]}
    supporting = sorted({titles.index(title) for title in facts if title in titles})
    yield CalibrationQuestion(
        record["_id"],
        record["question"],
        (str(record["answer"]),),
        Context(tuple(documents)),
        tuple(supporting),
    )


def _musique(record: Record, index: int) -> Iterator[CalibrationQuestion]:
    del index
    if not record.get("answerable", True):
        return
    paragraphs = record["paragraphs"]
    yield CalibrationQuestion(
        record["id"],
        record["question"],
        (str(record["answer"]), *map(str, record.get("answer_aliases") or ())),
        Context(tuple(Document(p["paragraph_text"], p["title"]) for p in paragraphs)),
        tuple(i for i, paragraph in enumerate(paragraphs) if paragraph.get("is_supporting")),
    )


def _squad(article: Record, index: int) -> Iterator[CalibrationQuestion]:
    del index
    paragraphs = article["paragraphs"]
    # All paragraphs of an article are one context, so that its questions share it.
    context = Context(tuple(Document(p["context"], article["title"]) for p in paragraphs))
    for place, paragraph in enumerate(paragraphs):
        for entry in paragraph["qas"]:
            answers = tuple(dict.fromkeys(answer["text"] for answer in entry["answers"]))
            if answers:
                yield CalibrationQuestion(
                    entry["id"], entry["question"], answers, context, (place,)
                )


CONTEXTS: Mapping[str, Callable[[Record, int], Iterator[CalibrationQuestion]]] = {
    "hotpotqa": _hotpotqa,
    "musique": _musique,
    "squad": _squad,
}
"""The data sets that can be read."""
