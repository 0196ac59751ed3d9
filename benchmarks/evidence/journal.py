"""The journal of an evidence benchmark: orders, tokens and seconds, no metrics.

A metric that is added later needs no second run, and a method that is added later joins the
questions that are there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.evidence.candidates import Candidates
from benchmarks.evidence.methods import Ordered
from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.frontier.journal import Journal

_KIND = ("ecs_plugins.evidence", 2)
STORED = 50
"""Places of an order over all units that are stored; of one over the pool, all."""
_DIGITS = 6


@dataclass(slots=True)
class QuestionRow:
    """One question with everything that was measured of it.

    Attributes:
        id: Of the question.
        group: Of the question.
        category: Of the question.
        units: How many there are.
        evidence: Indices of the evidence.
        misleading: Indices of units that state a false answer.
        pool: What stage 1 passed on, best first.
        tokens: Of every unit of the question.
        methods: By name.
        answers: Method -> token budget -> ``{"prediction", "f1", "em", "tokens"}``.
    """

    id: str
    group: str
    category: str
    units: int
    evidence: tuple[int, ...]
    misleading: tuple[int, ...]
    pool: tuple[int, ...]
    tokens: tuple[int, ...]
    methods: dict[str, Ordered] = field(default_factory=dict)
    answers: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)


class EvidenceJournal:
    """Rows on disk, by question.

    Args:
        path: The file; made if it is not there.
        identity: Everything that the figures depend on; must equal that of the file. None takes
            what the file has.

    Attributes:
        identity: Everything that the figures depend on.
        rows: Question id -> row.

    Raises:
        ConfigurationError: The file belongs to another measurement; says what differs.
        StorageError: It cannot be read or written, or is no journal.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, object] | None) -> None:
        self.rows: dict[str, QuestionRow] = {}
        self._path = path
        self._records = Journal(path, _KIND, identity)
        self.identity = self._records.identity
        for record in self._records.records:
            _take(self.rows, record)

    def open_question(self, candidates: Candidates) -> QuestionRow:
        """The row of a question, made if it is not there.

        Raises:
            ConfigurationError: Its pool is another one now.
        """
        question = candidates.question
        row = self.rows.get(question.id)
        if row is None:
            row = QuestionRow(
                question.id,
                question.group,
                question.category,
                len(question.units),
                question.evidence,
                question.misleading,
                candidates.pool,
                candidates.tokens,
            )
            static = asdict(row)
            del static["methods"], static["answers"], static["id"]
            self._records.append({"id": row.id, "question": static})
            self.rows[row.id] = row
        if row.pool != candidates.pool:
            raise ConfigurationError(
                f"{self._path}: the pool of question {row.id!r} is another one now, so methods "
                "added to it could not be compared; measure into another folder"
            )
        return row

    def add_methods(self, row: QuestionRow, found: Mapping[str, Ordered]) -> None:
        """Write the results of methods for one question to disk."""
        if not found:
            return
        kept = {name: _shortened(o, max(STORED, len(row.pool))) for name, o in found.items()}
        self._records.append({"id": row.id, "methods": {n: _plain(o) for n, o in kept.items()}})
        row.methods |= kept

    def add_answers(
        self, row: QuestionRow, found: Mapping[str, Mapping[str, Mapping[str, Any]]]
    ) -> None:
        """Write the reader's answers to one question to disk."""
        if not found:
            return
        self._records.append({"id": row.id, "answers": found})
        _join(row.answers, found)

    def close(self) -> None:
        """Close the file."""
        self._records.close()

    def __enter__(self) -> EvidenceJournal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Recorded:
    """Contents of a journal.

    Attributes:
        identity: What was measured.
        rows: Question id -> row.
    """

    identity: Mapping[str, Any]
    rows: Mapping[str, QuestionRow]


def read_journal(path: Path) -> Recorded:
    """Read a journal that another process may be writing.

    Raises:
        StorageError: It cannot be read, or is no journal.
        ConfigurationError: It is one of something else.
    """
    if not path.exists():
        raise StorageError(f"there is no journal {path}; measure first")
    with closing(EvidenceJournal(path, None)) as journal:
        return Recorded(journal.identity, journal.rows)


def _take(rows: dict[str, QuestionRow], data: Mapping[str, Any]) -> None:
    """Add one record to the rows."""
    name = str(data["id"])
    if "question" in data:
        found = dict(data["question"])
        for key in ("evidence", "misleading", "pool", "tokens"):
            found[key] = tuple(map(int, found[key]))
        rows[name] = QuestionRow(id=name, **found)
    row = rows[name]
    for method, ordered in data.get("methods", {}).items():
        row.methods[method] = _ordered(ordered)
    _join(row.answers, data.get("answers", {}))


def _join(
    answers: dict[str, dict[str, Mapping[str, Any]]],
    found: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    for method, by_budget in found.items():
        answers.setdefault(method, {}).update(by_budget)


def _shortened(ordered: Ordered, length: int) -> Ordered:
    return Ordered(
        ordered.order[:length],
        tuple(round(score, _DIGITS) for score in ordered.scores[:length]),
        ordered.scored_tokens,
        round(ordered.seconds, _DIGITS),
        ordered.error,
    )


def _plain(ordered: Ordered) -> dict[str, object]:
    return {key: value for key, value in asdict(ordered).items() if key != "error" or value}


def _ordered(data: Mapping[str, Any]) -> Ordered:
    scores: Sequence[float] = data["scores"]
    return Ordered(
        tuple(map(int, data["order"])),
        tuple(map(float, scores)),
        int(data["scored_tokens"]),
        float(data["seconds"]),
        str(data.get("error", "")),
    )
