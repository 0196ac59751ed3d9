"""Published evidence data sets as `EvidenceQuestion`s.

| data set | units | evidence |
|---|---|---|
| LoCoMo | turns, ``(date) speaker: text`` | the listed turns that can be resolved |
| HotpotQA | sentences of all paragraphs, ``title: sentence`` | supporting facts |
| MuSiQue | sentences | in a supporting paragraph, the sentences with its answer |
| SQuAD | sentences of the whole article | sentences of the paragraph that hold an answer |

MuSiQue labels paragraphs only: its sentences are those of a supporting paragraph that hold the
answer of its hop, or all of them where none does. A question whose evidence cannot be resolved at
all is left out, and so is one without an answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from benchmarks.datasets.records import (
    Record,
    complete,
    locomo_evidence,
    locomo_sessions,
    read_records,
)
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.common.text import sentence_spans
from ecs_plugins.errors import InvalidInputError

_LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}


_Reader = Callable[[Record, int], Iterator[EvidenceQuestion]]


def read_dataset(name: str, path: str | os.PathLike[str]) -> list[EvidenceQuestion]:
    """Read a published file.

    Args:
        name: A key of `READERS`.
        path: The file.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: It is not of this data set (says which record is wrong), or holds no
            question with evidence.
    """
    if name not in READERS:
        raise InvalidInputError(f"unknown data set {name!r}: use one of {', '.join(READERS)}")
    questions: list[EvidenceQuestion] = []
    for number, record in enumerate(read_records(name, path)):
        with complete(name, path, number):
            questions += READERS[name](record, number)
    if not questions:
        raise InvalidInputError(f"{path}: no question with an answer and evidence")
    return questions


def _locomo(record: Record, number: int) -> Iterator[EvidenceQuestion]:
    sample = str(record.get("sample_id", number))
    turns = [(date, turn) for date, said in locomo_sessions(record) for turn in said]
    units = tuple(f"({date}) {turn['speaker']}: {turn['text']}" for date, turn in turns)
    places = {turn["dia_id"]: place for place, (_, turn) in enumerate(turns)}
    for index, entry in enumerate(record["qa"]):
        # Category 5 asks for what was never said.
        if entry.get("answer") is None or entry.get("category") not in _LOCOMO_CATEGORIES:
            continue
        if evidence := locomo_evidence(entry, places):
            yield EvidenceQuestion(
                f"{sample}/{index}",
                str(entry["question"]),
                (str(entry["answer"]),),
                units,
                evidence,
                sample,
                _LOCOMO_CATEGORIES[entry["category"]],
            )


def _hotpotqa(record: Record, _number: int) -> Iterator[EvidenceQuestion]:
    units: list[str] = []
    places: dict[tuple[str, int], int] = {}
    for title, sentences in record["context"]:
        for index, sentence in enumerate(sentences):
            if sentence.strip():
                places[(title, index)] = len(units)
                units.append(f"{title}: {sentence.strip()}")
    facts = {(title, index) for title, index in record["supporting_facts"]}
    found = sorted(places[fact] for fact in facts if fact in places)
    if found:
        yield EvidenceQuestion(
            record["_id"],
            record["question"],
            (str(record["answer"]),),
            tuple(units),
            tuple(found),
            record["_id"],
            record.get("type", ""),
        )


def _musique(record: Record, _number: int) -> Iterator[EvidenceQuestion]:
    if not record.get("answerable", True):
        return
    hops: dict[int, list[str]] = {}
    for hop in record["question_decomposition"]:
        hops.setdefault(hop["paragraph_support_idx"], []).append(str(hop["answer"]))
    units: list[str] = []
    evidence: list[int] = []
    for paragraph in record["paragraphs"]:
        text, title = paragraph["paragraph_text"], paragraph["title"]
        parts = _sentences(text)
        supporting = range(len(parts)) if paragraph["is_supporting"] else range(0)
        answers = hops.get(paragraph["idx"], [])
        holding = [i for i in supporting if any(_holds(parts[i], a) for a in answers)]
        # Where the answer is worded differently, the whole paragraph is what is known.
        evidence += [len(units) + i for i in holding or supporting]
        units += [f"{title}: {part}" for part in parts]
    if evidence:
        yield EvidenceQuestion(
            record["id"],
            record["question"],
            (str(record["answer"]), *map(str, record.get("answer_aliases") or ())),
            tuple(units),
            tuple(evidence),
            record["id"],
            record["id"].partition("hop")[0] + "-hop",
        )


def _squad(article: Record, _number: int) -> Iterator[EvidenceQuestion]:
    units: list[str] = []
    spans: list[range] = []
    for paragraph in article["paragraphs"]:
        sentences = _sentences(paragraph["context"])
        spans.append(range(len(units), len(units) + len(sentences)))
        units += sentences
    shared = tuple(units)
    for paragraph, span in zip(article["paragraphs"], spans, strict=True):
        for entry in paragraph["qas"]:
            answers = tuple(dict.fromkeys(answer["text"] for answer in entry["answers"]))
            # Some releases hold first occurrences and not offsets, so every sentence of the
            # paragraph that holds an answer counts.
            evidence = [i for i in span if any(_holds(shared[i], a) for a in answers)]
            if evidence:
                yield EvidenceQuestion(
                    entry["id"],
                    entry["question"],
                    answers,
                    shared,
                    tuple(evidence),
                    article["title"],
                )


def _sentences(text: str) -> list[str]:
    return [part for s, e in sentence_spans(text) if (part := text[s:e].strip())]


def _holds(text: str, answer: str) -> bool:
    """Return True if the text contains the answer as whole words."""
    found = answer.strip()
    return bool(found) and bool(re.search(rf"(?<!\w){re.escape(found)}(?!\w)", text, re.IGNORECASE))


READERS: Mapping[str, _Reader] = {
    "locomo": _locomo,
    "hotpotqa": _hotpotqa,
    "musique": _musique,
    "squad": _squad,
}
"""Readers of a record, by data set."""
