import json

import pytest

from benchmarks.evidence.journal import QuestionRow
from benchmarks.evidence.methods import Ordered
from benchmarks.evidence.report import FORMAT, find_results, load, markdown
from benchmarks.evidence.summary import Measured, measures, summarise
from ecs_plugins.errors import InvalidInputError, StorageError

from .helpers import question

POOL = (0, 1, 2, 3)
TOKENS = (10, 20, 30, 40, 50, 60)


def measured(name, orders, *, evidence=(0,), category="", answers=None, **more):
    asked = question(name, evidence=evidence, category=category, **more)
    row = QuestionRow(name, name, category, 6, evidence, (), POOL, TOKENS)
    row.methods = {
        method: Ordered(order, (), 150 if method == "query_likelihood" else 0, 0.5)
        for method, order in orders.items()
    }
    row.answers = answers or {}
    return Measured(asked, row)


RIGHT, WRONG = (0, 1, 2, 3), (3, 2, 1, 0)
ROWS = [
    measured("a", {"tfidf": WRONG, "bm25": RIGHT, "query_likelihood": RIGHT}, category="x"),
    measured("b", {"tfidf": WRONG, "bm25": WRONG, "query_likelihood": RIGHT}, category="y"),
    measured("c", {"tfidf": RIGHT, "bm25": RIGHT, "query_likelihood": WRONG}, category="y"),
]
NAMES = ("tfidf", "bm25", "query_likelihood")


def result(rows=ROWS, names=NAMES):
    provenance = {
        "bench": "squad", "unit": "sentence", "pool_size": 4, "model": "m", "dtype": "bfloat16",
        "embedder": "e", "seed": 42, "part": "all", "created": "2026-11-21", "version": "0",
    }  # fmt: skip
    found = {"format": FORMAT, "provenance": provenance, "left_out": {"x": "missing"}}
    return json.loads(json.dumps({**found, **summarise(rows, names)}, allow_nan=False))


def test_metrics_of_one_question():
    found = measures(ROWS[0], "query_likelihood")
    assert (found["f1"], found["recall@2"], found["auc"]) == (1.0, 1.0, 1.0)
    assert found["selected_tokens"] == 10
    assert found["scored_per_candidate_token"] == 1.5


def test_means_are_over_all_questions_and_by_category():
    found = result()["methods"]["query_likelihood"]
    assert found["metrics"]["f1"]["mean"] == pytest.approx(2 / 3)
    assert found["by_category"]["x"]["f1"] | {"low": 1, "high": 1} == {
        "mean": 1.0, "low": 1, "high": 1, "questions": 1
    }  # fmt: skip


def comparison(role, method="query_likelihood", metric="f1", category=None):
    return next(
        row
        for row in result()["comparisons"]
        if (row["role"], row["method"], row["metric"], row["category"])
        == (role, method, metric, category)
    )


def test_the_best_peer_is_chosen_by_its_mean_for_all_and_for_each_category():
    assert comparison("best retriever")["reference"] == "bm25"
    assert comparison("best retriever", category="y")["reference"] in ("tfidf", "bm25")


def test_comparisons_count_wins_losses_and_ties():
    found = comparison("best retriever")
    assert (found["wins"], found["losses"], found["ties"]) == (1, 1, 1)
    assert found["mean"] == 0.0


def test_answers_are_compared_with_those_from_everything():
    def answers(best):
        return {
            "query_likelihood": {
                "top1": {"prediction": "", "f1": best, "em": 0.0, "tokens": 10},
                "all": {"prediction": "", "f1": 0.5, "em": 0.0, "tokens": 100},
            }
        }

    rows = [
        measured(n, {"query_likelihood": RIGHT}, answers=answers(best))
        for n, best in (("a", 1.0), ("b", 0.5))
    ]
    found = summarise(rows, ("query_likelihood",))
    assert found["methods"]["query_likelihood"]["metrics"]["answer_f1@top1"]["mean"] == 0.75
    assert found["answers_against_all"]["query_likelihood"]["top1"]["mean"] == 0.25
    assert "F1@top1 - F1@all" in markdown([{**result(), **found}])


def test_tables_name_left_out_methods_and_warn_of_few_questions():
    text = markdown([result()])
    assert "Left out: x. missing" in text
    assert "no evidence" in text
    assert "| **query_likelihood** | 0.667 [0.000, 1.000] |" in text


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="no results"):
        find_results([tmp_path])
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="no result of an evidence"):
        load(tmp_path / "a.json")
    with pytest.raises(StorageError):
        load(tmp_path / "none.json")
