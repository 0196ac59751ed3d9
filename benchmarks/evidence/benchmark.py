"""Evidence benchmark from file to result."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.datasets.evidence import UNITS, read_dataset
from benchmarks.evidence.candidates import CandidateFinder, Known
from benchmarks.evidence.catalogue import Tools, choose, name_of
from benchmarks.evidence.counterfactual import counterfactuals
from benchmarks.evidence.journal import EvidenceJournal, Recorded, read_journal
from benchmarks.evidence.questions import EvidenceQuestion, Part, data_hash, sample
from benchmarks.evidence.reading import Reader
from benchmarks.evidence.report import FORMAT
from benchmarks.evidence.suite import run_methods, run_reader
from benchmarks.evidence.summary import Measured, summarise
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.answering import LocalAnswerModel
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.shaping.signals.base import Signal

COUNTERFACTUAL = "counterfactual"
DEFAULT_POOL = 40
"""Units that stage 1 passes on, as in `ShapingConfig`."""

Progress = Callable[[str, int, int], None]
"""Function of the current step, finished questions and all questions."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Questions and candidates; all figures depend on them.

    Attributes:
        bench: A data set, or `COUNTERFACTUAL`.
        unit: What is ranked; the data set's first unit without it.
        seed: Of the sample and everything random.
        pool_size: Units that stage 1 passes on.
        retrieved: Stage 1 is a retriever of turns; see `CandidateFinder`.
    """

    bench: str
    unit: str | None = None
    seed: int = 42
    pool_size: int = DEFAULT_POOL
    retrieved: Known | None = None

    @property
    def units(self) -> str:
        """Return the ranked unit."""
        return self.unit or ("passage" if self.bench == COUNTERFACTUAL else UNITS[self.bench][0])

    def read(self, data: Path) -> list[EvidenceQuestion]:
        """All questions of a file.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: It is not of this data set, or has no such units.
        """
        if self.bench != COUNTERFACTUAL:
            return read_dataset(self.bench, data, unit=self.unit, seed=self.seed)
        if self.unit is not None:
            raise InvalidInputError("counterfactual has no units to choose; leave --unit out")
        return counterfactuals(read_dataset(_source_of(data), data, seed=self.seed), seed=self.seed)


def _source_of(data: Path) -> str:
    """SQuAD is one object, NQ-open a list."""
    try:
        with data.open(encoding="utf-8-sig") as file:
            return "squad" if file.read(64).lstrip().startswith("{") else "nq"
    except OSError as error:
        raise StorageError(f"cannot read {data}: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of the questions, by which methods.

    Attributes:
        methods: Names in the catalogue.
        limit: A sample of so many questions.
        part: Which half of the groups.
        own: The user's own signals, and directories of cross-encoders.
        budgets: What a reader is given; empty reads nothing.
    """

    methods: tuple[str, ...]
    limit: int | None = None
    part: Part = "all"
    own: tuple[Signal | Path, ...] = ()
    budgets: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all methods, with the user's own."""
        return (*self.methods, *map(name_of, self.own))


def measure(
    protocol: Protocol,
    selection: Selection,
    questions: Sequence[EvidenceQuestion],
    *,
    model: LanguageModel,
    dtype: str,
    embedder: Embedder,
    journal: str | os.PathLike[str],
    version: str,
    progress: Progress,
) -> dict[str, str]:
    """Bring the journal to where it holds everything that is selected.

    Args:
        protocol: What is asked.
        selection: How much of it, by which methods.
        questions: Of `Protocol.read`.
        model: Scores and answers.
        dtype: That the model was asked for, recorded.
        embedder: Of stage 1 and every method that embeds.
        journal: The file; made if it is not there, else continued.
        version: Of the package, recorded.
        progress: Is told what is done.

    Returns:
        Name of a method that cannot run here -> why.

    Raises:
        InvalidInputError: A method or budget is unknown, or nothing is selected.
        ConfigurationError: The journal belongs to another measurement.
        StorageError: The journal cannot be read or written.
    """
    asked = _asked(protocol, selection, questions)
    tools = Tools.of(embedder, protocol.seed)
    chosen = choose(selection.methods, tools, selection.own)
    reader = Reader(LocalAnswerModel(model), selection.budgets) if selection.budgets else None
    identity = {
        "bench": protocol.bench,
        "unit": protocol.units,
        "seed": protocol.seed,
        "pool_size": protocol.pool_size,
        **({"retrieved": protocol.retrieved} if protocol.retrieved else {}),
        "dtype": dtype,
        "data_hash": data_hash(questions),
        "model": model.name,
        "embedder": embedder.name,
        "version": version,
    }
    with EvidenceJournal(journal, identity) as rows:
        run_methods(
            asked,
            chosen,
            finder=CandidateFinder(
                tools.convex, model, protocol.pool_size, retrieved=protocol.retrieved
            ),
            model=model,
            journal=rows,
            seed=protocol.seed,
            progress=lambda done, total: progress("ordering", done, total),
        )
        if reader is not None:
            run_reader(
                asked,
                chosen.names,
                reader=reader,
                journal=rows,
                progress=lambda done, total: progress("reading", done, total),
            )
    return dict(chosen.left_out)


def result_of(
    protocol: Protocol,
    selection: Selection,
    questions: Sequence[EvidenceQuestion],
    journal: Path,
    left_out: Mapping[str, str],
) -> dict[str, Any]:
    """Return the figures of a journal, even while another process writes it.

    Args:
        protocol: What was asked.
        selection: Of which questions and methods; no methods means those that were measured on
            most questions. Only questions that were measured with all of them count.
        questions: Of `Protocol.read`.
        journal: The file.
        left_out: As `measure` returns it.

    Raises:
        InvalidInputError: No question has been measured with all of these methods.
        ConfigurationError: The journal is about other data.
        StorageError: It cannot be read.
    """
    recorded = read_journal(journal)
    if recorded.identity.get("data_hash") != data_hash(questions):
        raise ConfigurationError(
            f"{journal} was measured on other data, or with another seed; name those"
        )
    asked = [q for q in _asked(protocol, selection, questions) if q.id in recorded.rows]
    left_out = dict(left_out)
    names = [name for name in selection.names if name not in left_out]
    if not names:
        counts = Counter(name for q in asked for name in recorded.rows[q.id].methods)
        most = max(counts.values(), default=0)
        names = [name for name in counts if counts[name] == most]
        for name in counts.keys() - set(names):
            left_out[name] = f"Measured on {counts[name]} of {most} questions; see --methods."
    rows = [
        Measured(question, row)
        for question in asked
        if set(names) <= (row := recorded.rows[question.id]).methods.keys()
    ]
    return {
        "format": FORMAT,
        "provenance": _provenance(recorded, selection, rows, names),
        "left_out": left_out,
        **summarise(rows, names, seed=protocol.seed),
    }


def _provenance(
    recorded: Recorded, selection: Selection, rows: Sequence[Measured], names: Sequence[str]
) -> dict[str, Any]:
    ordered = [found.row.methods[name] for found in rows for name in names]
    return {
        **recorded.identity,
        "part": selection.part,
        "limit": selection.limit,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}",
        "seconds": sum(found.seconds for found in ordered),
        "scored_tokens": sum(found.scored_tokens for found in ordered),
    }


def _asked(
    protocol: Protocol, selection: Selection, questions: Sequence[EvidenceQuestion]
) -> list[EvidenceQuestion]:
    return sample(questions, limit=selection.limit, seed=protocol.seed, part=selection.part)
