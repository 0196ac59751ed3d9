"""Runs methods over questions and measures nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.evidence.candidates import CandidateFinder
from benchmarks.evidence.catalogue import Chosen
from benchmarks.evidence.journal import EvidenceJournal
from benchmarks.evidence.methods import Ordered
from benchmarks.evidence.ordering import order_by_signals
from benchmarks.evidence.questions import EvidenceQuestion
from benchmarks.evidence.reading import Reader
from ecs_plugins.lm.base import LanguageModel


def run_methods(
    questions: Sequence[EvidenceQuestion],
    chosen: Chosen,
    *,
    finder: CandidateFinder,
    model: LanguageModel,
    journal: EvidenceJournal,
    seed: int = 42,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Measure the questions that the journal lacks.

    Args:
        questions: With unique ids.
        chosen: The methods.
        finder: Stage 1, the same for all methods.
        model: Scores.
        journal: Is added to after every question.
        seed: For signals that sample.
        progress: Called with (questions done, all questions).

    Raises:
        ConfigurationError: The journal's pools are others.
        StorageError: The journal cannot be written.
    """
    for done, question in enumerate(questions):
        if progress is not None:
            progress(done, len(questions))
        known = journal.rows.get(question.id)
        there = set(known.methods) if known is not None else set()
        signals = {name: s for name, s in chosen.signals.items() if name not in there}
        methods = {name: m for name, m in chosen.methods.items() if name not in there}
        if known is not None and not signals and not methods:
            continue
        candidates = finder.find(question)
        row = journal.open_question(candidates)
        found: dict[str, Ordered] = {}
        for name, method in methods.items():
            started = time.perf_counter()
            ordered = method.order(candidates)
            found[name] = replace(ordered, seconds=time.perf_counter() - started)
        if signals:
            found |= order_by_signals(
                signals, candidates, model, seed=seed, as_they_are=chosen.as_they_are
            )
        journal.add_methods(row, found)
    if progress is not None:
        progress(len(questions), len(questions))


def run_reader(
    questions: Sequence[EvidenceQuestion],
    names: Sequence[str],
    *,
    reader: Reader,
    journal: EvidenceJournal,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Answer from the units of each method, if the journal has no answer.

    Args:
        questions: That have been measured.
        names: Methods whose selections are read.
        reader: Answers.
        journal: Is added to after every question.
        progress: Called with (questions done, all questions).

    Raises:
        InvalidInputError: A selection does not fit the reader's window.
        StorageError: The journal cannot be written.
    """
    for done, question in enumerate(questions):
        if progress is not None:
            progress(done, len(questions))
        row = journal.rows[question.id]
        wanted = {
            name: (row.methods[name].order, missing)
            for name in names
            if (missing := [b for b in reader.budgets if b not in row.answers.get(name, {})])
        }
        if wanted and question.answers:
            journal.add_answers(row, reader.read(question, row.tokens, wanted))
    if progress is not None:
        progress(len(questions), len(questions))
