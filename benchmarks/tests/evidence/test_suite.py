import json

import pytest

from benchmarks.evidence.catalogue import CATALOGUE, choose
from benchmarks.evidence.journal import EvidenceJournal, read_journal
from benchmarks.evidence.reading import Reader
from benchmarks.evidence.suite import run_methods, run_reader
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.answering import LocalAnswerModel
from ecs_plugins.lm.fake import FakeLanguageModel

from .helpers import finder, question, tools

NAMES = ("random", "oracle", "tfidf", "bm25_all", "hybrid", "query_likelihood")
QUESTIONS = [question(f"q{n}") for n in range(3)]


def run(path, *, names=NAMES, questions=QUESTIONS, model=None, identity="x", pool_size=5):
    model = model or FakeLanguageModel()
    with EvidenceJournal(path, {"data": identity}) as journal:
        run_methods(
            questions,
            choose(names, tools()),
            finder=finder(model, pool_size),
            model=model,
            journal=journal,
        )
        return dict(journal.rows)


def test_every_method_orders_every_question(tmp_path):
    rows = run(tmp_path / "j.jsonl")
    assert [set(row.methods) for row in rows.values()] == [set(NAMES)] * 3
    for row in rows.values():
        for name, ordered in row.methods.items():
            pool = set(row.pool) if not name.endswith("_all") else set(range(row.units))
            assert set(ordered.order) == pool


def test_the_oracle_puts_evidence_first_and_chance_depends_on_the_question(tmp_path):
    rows = run(tmp_path / "j.jsonl")
    assert all(row.methods["oracle"].order[0] == 0 for row in rows.values())
    assert len({row.methods["random"].order for row in rows.values()}) > 1


def test_nothing_is_measured_twice(tmp_path):
    run(tmp_path / "j.jsonl", questions=QUESTIONS[:2])
    model = FakeLanguageModel()
    run(tmp_path / "j.jsonl", model=model)
    assert len(model.requests) == 1


def test_a_method_named_later_joins_the_questions_that_are_there(tmp_path):
    first = run(tmp_path / "j.jsonl", names=("tfidf",))
    rows = run(tmp_path / "j.jsonl", names=("tfidf", "query_likelihood"))
    assert all(set(row.methods) == {"tfidf", "query_likelihood"} for row in rows.values())
    assert rows["q0"].methods["tfidf"] == first["q0"].methods["tfidf"]


def test_a_run_killed_within_a_line_goes_on_and_ends_the_same(tmp_path):
    whole = run(tmp_path / "whole.jsonl")
    content = (tmp_path / "whole.jsonl").read_bytes()
    for cut in (len(content) // 3, len(content) // 2, len(content) - 5):
        path = tmp_path / f"cut{cut}.jsonl"
        path.write_bytes(content[:cut])
        rows = run(path)
        assert {name: row.pool for name, row in rows.items()} == {
            name: row.pool for name, row in whole.items()
        }
        assert {n: r.methods["query_likelihood"].order for n, r in rows.items()} == {
            n: r.methods["query_likelihood"].order for n, r in whole.items()
        }


def test_a_damaged_line_is_named_with_its_number(tmp_path):
    path = tmp_path / "j.jsonl"
    run(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2] = lines[2][:30]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(StorageError, match=r"j\.jsonl:3 is damaged"):
        run(path)
    with pytest.raises(StorageError, match=r"j\.jsonl:3 is damaged"):
        read_journal(path)


def test_another_measurement_is_refused(tmp_path):
    run(tmp_path / "j.jsonl")
    with pytest.raises(ConfigurationError, match="another data"):
        run(tmp_path / "j.jsonl", identity="y")


def test_methods_cannot_join_another_pool(tmp_path):
    run(tmp_path / "j.jsonl", names=("tfidf",))
    with pytest.raises(ConfigurationError, match="the pool of question 'q0'"):
        run(tmp_path / "j.jsonl", names=("dense",), pool_size=3)


def test_a_journal_can_be_read_while_another_process_writes_it(tmp_path):
    path = tmp_path / "j.jsonl"
    with EvidenceJournal(path, {"data": "x"}) as journal:
        run_methods(
            QUESTIONS[:1],
            choose(("tfidf",), tools()),
            finder=finder(),
            model=FakeLanguageModel(),
            journal=journal,
        )
        with path.open("ab") as file:
            file.write(b'{"id": "q1", "que')
        recorded = read_journal(path)
    assert recorded.identity == {"data": "x"}
    assert recorded.rows == journal.rows


def test_only_a_journal_of_this_benchmark_is_read(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text(json.dumps({"format": "other", "version": 1}) + "\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="no journal"):
        read_journal(path)
    with pytest.raises(StorageError, match="measure first"):
        read_journal(tmp_path / "none.jsonl")


def test_the_reader_answers_each_selection_once_and_each_method_gets_it(tmp_path):
    model = FakeLanguageModel(replies={"Ana bought": "Ana"})
    path = tmp_path / "j.jsonl"
    run(path, names=("oracle", "tfidf"), questions=QUESTIONS[:1])
    reader = Reader(LocalAnswerModel(model), ["top1", "all", "none"])
    for _ in range(2):  # the second time everything is there
        with EvidenceJournal(path, {"data": "x"}) as journal:
            run_reader(QUESTIONS[:1], ("oracle", "tfidf"), reader=reader, journal=journal)
            answers = journal.rows["q0"].answers
    assert len(model.prompts) == 3
    assert answers["oracle"]["top1"] == {"prediction": "Ana", "f1": 1.0, "em": 1.0, "tokens": 8}
    assert answers["tfidf"]["all"]["f1"] == 1.0
    assert answers["tfidf"]["none"]["tokens"] == 0


def test_unknown_or_repeated_methods_name_the_known_ones():
    with pytest.raises(InvalidInputError, match="query_likelihood"):
        choose(("best",), tools())
    with pytest.raises(InvalidInputError, match="twice"):
        choose(("tfidf", "tfidf"), tools())
    with pytest.raises(InvalidInputError, match="nothing to measure"):
        choose((), tools())


def test_what_sees_the_answer_says_so():
    seeing = {name for name, entry in CATALOGUE.items() if entry.uses_answer}
    assert seeing == {
        "oracle", "answer_shift", "joint_shift", "joint_shift+bm25",
        "query_likelihood+half_answer_shift", "stage1_answered",
    }  # fmt: skip


def test_two_cross_encoders_of_one_name_are_refused(tmp_path):
    folders = [tmp_path / part / "reranker" for part in ("a", "b")]
    with pytest.raises(InvalidInputError, match="named twice"):
        choose((), tools(), folders)
