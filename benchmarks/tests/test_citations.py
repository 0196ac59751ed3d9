"""Statements and counts of the citation benchmark."""

import numpy as np
import pytest

from benchmarks.commands.attribution import report
from benchmarks.evidence.citations import CitedStatement, evidence_found, fitted, stated

NAMES = (
    "shift",
    "question_shift",
    "covered",
    "question_covered",
    "shift_among_all",
    "question_shift_among_all",
    "bm25_among_all",
)


def statement(number, dataset="squad"):
    """Four units, of which the one with the larger shift is evidence; words say nothing."""
    units = [dict.fromkeys(NAMES, 0.0) for _ in range(4)]
    right = number % 4
    units[right]["shift"] = 1.0
    evidence = [place == right for place in range(4)]
    return CitedStatement(dataset, f"q{number}", "answer", units, evidence)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("Who directed it?", "Anna directed it."),
        ("What is the capital?", "The capital is Anna."),
        ("Which town was burnt first?", "Anna was burnt first."),
        ("It was made by which company ?", "It was made by Anna."),
        ("When did it end?", "When did it end: Anna."),
    ],
)
def test_question_and_answer_become_a_sentence(question, sentence):
    assert stated(question, "Anna") == sentence


def test_a_fit_uses_its_features_and_draws_ties():
    statements = [statement(number) for number in range(200)]
    shares = evidence_found(statements, ("squad",), seed=7)["squad", "answer"]
    assert shares["fitted"].mean() == 1.0
    assert 0.1 < shares["words"].mean() < 0.4
    assert fitted(statements).weights["shift"] > 0


def test_sets_that_are_not_learned_from_are_measured():
    statements = [statement(number) for number in range(20)]
    statements += [statement(number, "locomo") for number in range(20, 30)]
    lines = report(statements, seed=7)
    assert any(line.startswith("locomo, answer") and " 1.000" in line for line in lines)
    assert np.isfinite(evidence_found(statements, ("squad",), 7)["locomo", "answer"]["bm25"]).all()
