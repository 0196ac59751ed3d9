"""Published evidence data sets as `EvidenceQuestion`s.

| data set | units | evidence |
|---|---|---|
| LoCoMo | turns, ``(date) speaker: text`` | the listed turns that can be resolved |
| LongMemEval | sessions, or turns within them | the listed sessions; turns marked ``has_answer`` |
| HotpotQA | sentences of all paragraphs, ``title: sentence``, or paragraphs | supporting facts |
| MuSiQue | sentences, or paragraphs | in a supporting paragraph, the sentences with its answer |
| SQuAD | sentences of the whole article | sentences of the paragraph that hold an answer |
|  | or paragraphs of it | the paragraph |
| NQ-open | 20 passages, 19 of them of other questions | the gold passage |

LoCoMo's turns may also be their ``text`` alone, an ``exchange`` (with the turn before), or a whole
``session``. MuSiQue labels paragraphs only: its sentences are those of a supporting paragraph
that hold the answer of its hop, or all of them where none does. LongMemEval marks turns in some
sessions only; in one without marks every turn counts. A question whose evidence cannot be
resolved at all is left out, and so is one without an answer.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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

NQ_PASSAGES = 20
"""Passages per question, the gold one among them."""

_LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}


@dataclass(frozen=True, slots=True)
class _Within:
    """Context of a record: its place and the settings of the run."""

    records: Sequence[Record]
    number: int
    unit: str
    seed: int


_Reader = Callable[[Record, _Within], Iterator[EvidenceQuestion]]


@dataclass(frozen=True, slots=True)
class _Dataset:
    read: _Reader
    units: tuple[str, ...]


def read_dataset(
    name: str, path: str | os.PathLike[str], *, unit: str | None = None, seed: int = 42
) -> list[EvidenceQuestion]:
    """Read a published file.

    Args:
        name: One of `UNITS`.
        path: The file.
        unit: What is ranked, one of `UNITS` of this data set; its first by default.
        seed: Of whatever is drawn (the other passages of NQ-open).

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: It is not of this data set (says which record is wrong), or holds no
            question with evidence.
    """
    if name not in _DATASETS:
        raise InvalidInputError(f"unknown data set {name!r}: use one of {', '.join(_DATASETS)}")
    dataset = _DATASETS[name]
    chosen = unit or dataset.units[0]
    if chosen not in dataset.units:
        raise InvalidInputError(
            f"{name} has no units {chosen!r}: use one of {', '.join(dataset.units)}"
        )
    records = read_records(name, path)
    questions: list[EvidenceQuestion] = []
    for number, record in enumerate(records):
        with complete(name, path, number):
            questions += dataset.read(record, _Within(records, number, chosen, seed))
    if not questions:
        raise InvalidInputError(f"{path}: no question with an answer and evidence")
    return questions


def _locomo(record: Record, within: _Within) -> Iterator[EvidenceQuestion]:
    sample = str(record.get("sample_id", within.number))
    units, places = _LOCOMO_UNITS[within.unit](locomo_sessions(record))
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


_Sessions = Sequence[tuple[str, Sequence[Record]]]
_Placed = tuple[tuple[str, ...], dict[str, int]]
"""Units, and the unit of every turn id."""


def _turns(sessions: _Sessions, write: Callable[[str, Record], str], before: int = 0) -> _Placed:
    """Turns of all sessions, each with so many that were said before it in its session."""
    units: list[str] = []
    places: dict[str, int] = {}
    for date, turns in sessions:
        written = [write(date, turn) for turn in turns]
        for index, turn in enumerate(turns):
            places[turn["dia_id"]] = len(units)
            units.append("\n".join(written[max(0, index - before) : index + 1]))
    return tuple(units), places


def _dated(date: str, turn: Record) -> str:
    return f"({date}) {turn['speaker']}: {turn['text']}"


def _whole_sessions(sessions: _Sessions) -> _Placed:
    units: list[str] = []
    places: dict[str, int] = {}
    for date, turns in sessions:
        places |= {turn["dia_id"]: len(units) for turn in turns}
        said = "\n".join(f"{turn['speaker']}: {turn['text']}" for turn in turns)
        units.append(f"({date})\n{said}")
    return tuple(units), places


_LOCOMO_UNITS: Mapping[str, Callable[[_Sessions], _Placed]] = {
    "turn": lambda sessions: _turns(sessions, _dated),
    "text": lambda sessions: _turns(sessions, lambda _, turn: str(turn["text"])),
    "exchange": lambda sessions: _turns(sessions, _dated, before=1),
    "session": _whole_sessions,
}


def _longmemeval(haystack: Record, within: _Within) -> Iterator[EvidenceQuestion]:
    units: list[str] = []
    of_session: dict[str, list[int]] = {}
    for name, date, turns in zip(
        haystack["haystack_session_ids"],
        haystack["haystack_dates"],
        haystack["haystack_sessions"],
        strict=True,
    ):
        texts = [f"{turn['role']}: {turn['content']}" for turn in turns]
        if within.unit == "session":
            of_session[name] = [len(units)]
            units.append(f"({date})\n" + "\n".join(texts))
        else:
            # Not every file marks turns; without a mark, all turns of the session count.
            marked = [i for i, turn in enumerate(turns) if turn.get("has_answer")]
            of_session[name] = [len(units) + i for i in marked or range(len(turns))]
            units += [f"({date}) {text}" for text in texts]
    shared = tuple(units)
    # The published file repeats the haystack in every question.
    for entry in haystack.get("questions", [haystack]):
        evidence = sorted(
            {i for name in entry["answer_session_ids"] for i in of_session.get(name, ())}
        )
        if evidence and str(entry.get("answer") or "").strip():
            yield EvidenceQuestion(
                str(entry["question_id"]),
                entry["question"],
                (str(entry["answer"]),),
                shared,
                tuple(evidence),
                f"haystack {within.number}",
                entry.get("question_type", ""),
            )


def _hotpotqa(record: Record, within: _Within) -> Iterator[EvidenceQuestion]:
    if within.unit == "paragraph":
        yield from _hotpotqa_paragraphs(record)
        return
    units: list[str] = []
    places: dict[tuple[str, int], int] = {}
    for title, sentences in record["context"]:
        for index, sentence in enumerate(sentences):
            if sentence.strip():
                places[(title, index)] = len(units)
                units.append(f"{title}: {sentence.strip()}")
    facts = {(title, index) for title, index in record["supporting_facts"]}
    found = sorted((places[fact], fact[0]) for fact in facts if fact in places)
    if found:
        yield EvidenceQuestion(
            record["_id"],
            record["question"],
            (str(record["answer"]),),
            tuple(units),
            tuple(index for index, _ in found),
            record["_id"],
            record.get("type", ""),
            hops=tuple(title for _, title in found),
        )


def _hotpotqa_paragraphs(record: Record) -> Iterator[EvidenceQuestion]:
    supporting = {title for title, _ in record["supporting_facts"]}
    units: list[str] = []
    evidence: list[int] = []
    for title, sentences in record["context"]:
        if title in supporting:
            evidence.append(len(units))
        text = "".join(sentences).strip()
        units.append(f"{title}: {text}")
    if evidence:
        yield EvidenceQuestion(
            record["_id"],
            record["question"],
            (str(record["answer"]),),
            tuple(units),
            tuple(evidence),
            record["_id"],
            record.get("type", ""),
        )


def _musique(record: Record, within: _Within) -> Iterator[EvidenceQuestion]:
    if not record.get("answerable", True):
        return
    hops: dict[int, list[str]] = {}
    for hop in record["question_decomposition"]:
        hops.setdefault(hop["paragraph_support_idx"], []).append(str(hop["answer"]))
    units: list[str] = []
    evidence: list[int] = []
    of_paragraph: list[str] = []
    for paragraph in record["paragraphs"]:
        text, title = paragraph["paragraph_text"], paragraph["title"]
        parts = _sentences(text) if within.unit == "sentence" else [text]
        supporting = range(len(parts)) if paragraph["is_supporting"] else range(0)
        answers = hops.get(paragraph["idx"], [])
        holding = [i for i in supporting if any(_holds(parts[i], a) for a in answers)]
        # Where the answer is worded differently, the whole paragraph is what is known.
        evidence += [len(units) + i for i in holding or supporting]
        of_paragraph += [str(paragraph["idx"])] * len(holding or supporting)
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
            hops=tuple(of_paragraph),
        )


def _squad(article: Record, within: _Within) -> Iterator[EvidenceQuestion]:
    if within.unit == "paragraph":
        yield from _squad_paragraphs(article)
        return
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


def _squad_paragraphs(article: Record) -> Iterator[EvidenceQuestion]:
    units = tuple(paragraph["context"] for paragraph in article["paragraphs"])
    for place, paragraph in enumerate(article["paragraphs"]):
        for entry in paragraph["qas"]:
            answers = tuple(dict.fromkeys(answer["text"] for answer in entry["answers"]))
            if answers:
                yield EvidenceQuestion(
                    entry["id"], entry["question"], answers, units, (place,), article["title"]
                )


def _nq(record: Record, within: _Within) -> Iterator[EvidenceQuestion]:
    rng = random.Random(f"{within.seed}/{within.number}")
    answers = tuple(str(answer) for answer in record["answers"])
    others: list[str] = []
    for index in rng.sample(range(len(within.records)), len(within.records)):
        other = within.records[index]
        # What holds an answer, or comes from the same page, may be evidence too.
        if other["title"] == record["title"] or any(_holds(other["text"], a) for a in answers):
            continue
        others.append(f"{other['title']}: {other['text']}")
        if len(others) == NQ_PASSAGES - 1:
            break
    place = rng.randrange(len(others) + 1)
    others.insert(place, f"{record['title']}: {record['text']}")
    name = str(record.get("id", f"nq/{within.number}"))
    yield EvidenceQuestion(name, record["question"], answers, tuple(others), (place,), name)


def _sentences(text: str) -> list[str]:
    return [part for s, e in sentence_spans(text) if (part := text[s:e].strip())]


def _holds(text: str, answer: str) -> bool:
    """Return True if the text contains the answer as whole words."""
    found = answer.strip()
    return bool(found) and bool(re.search(rf"(?<!\w){re.escape(found)}(?!\w)", text, re.IGNORECASE))


_DATASETS: Mapping[str, _Dataset] = {
    "locomo": _Dataset(_locomo, tuple(_LOCOMO_UNITS)),
    "longmemeval": _Dataset(_longmemeval, ("session", "turn")),
    "hotpotqa": _Dataset(_hotpotqa, ("sentence", "paragraph")),
    "musique": _Dataset(_musique, ("sentence", "paragraph")),
    "nq": _Dataset(_nq, ("passage",)),
    "squad": _Dataset(_squad, ("sentence", "paragraph")),
}

UNITS: Mapping[str, tuple[str, ...]] = {name: found.units for name, found in _DATASETS.items()}
"""Units of each data set; the default first."""
