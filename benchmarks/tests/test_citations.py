"""Statements and shares of the benchmark of citations and checks."""

import json
import random

import pytest

from benchmarks.commands.attribution import checks_of, report_of_checks
from benchmarks.evidence.changed import changes_of, true_statements
from benchmarks.evidence.citations import CitedStatement, shares_of, stated

PASSAGE = "Ferries from the port of Oslo were not repaired by Anna Berg in 1934."


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


def test_shares_count_as_many_units_as_the_first_way_cites():
    statement = CitedStatement("Who?", "Anna did it.", ("a", "b", "c"), frozenset({1, 2}))
    ways = {"one": lambda *_: [1], "two": lambda *_: [0, 1], "none": lambda *_: []}
    shares = shares_of([statement], ways)
    assert (shares["one"].first, shares["one"].right, shares["one"].found) == ([1.0], [1.0], [0.5])
    assert (shares["two"].first, shares["two"].right, shares["two"].found) == ([0.0], [0.0], [0.0])
    assert (shares["none"].first, shares["none"].right) == ([0.0], [])


def test_changes_differ_from_the_statement_in_one_thing():
    changed = changes_of(PASSAGE, [PASSAGE, "In May he saw Bergen."], random.Random(3))
    assert set(changed) == {"number", "name", "negation"}
    assert "1934" not in changed["number"]
    assert changed["negation"] == PASSAGE.replace("not ", "")
    assert changed["name"] != PASSAGE


def test_statements_that_repeat_a_sentence_are_checked(tmp_path):
    answer = f"{PASSAGE} The weather in spring is known for gulls and rain."
    documents = {"a": f"Gulls nest. {PASSAGE}", "b": "Bergen is a town of rain, as Oslo is."}
    task = {"task_id": "t", "turns": [{"text": "Who?"}], "relevant": ["a"], "answer": answer}
    file = tmp_path / "mtrag.json"
    file.write_text(json.dumps({"documents": documents, "tasks": [task]}), encoding="utf-8")
    (statement,) = true_statements(file, 9, 1)
    assert statement.text == PASSAGE
    assert statement.passages[statement.relevant[0]] == documents["a"]
    assert true_statements(file, 9, 1, part=1) == []
    table = checks_of([statement])
    assert table["true"] == {"cited right": 1, "consistent": 1}
    assert table["number"]["conflict"] == table["negation"]["conflict"] == 1
    assert report_of_checks(table)[1].split() == ["true", "1", "1.000", "0.000", "0.000", "1.000"]
