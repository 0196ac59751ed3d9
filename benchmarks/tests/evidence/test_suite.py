import pytest

from benchmarks.evidence.catalogue import CATALOGUE, choose
from benchmarks.evidence.journal import EvidenceJournal, read_journal
from benchmarks.evidence.reading import Reader
from benchmarks.evidence.suite import run_methods, run_reader
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import LocalAnswerModel
from ecs_plugins.lm.fake import FakeLanguageModel

from .helpers import finder, question, tools

NAMES = ("random", "oracle", "tfidf", "bm25_all", "convex", "query_likelihood")
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
    rows = run(tmp_path / "j.db")
    assert [set(row.methods) for row in rows.values()] == [set(NAMES)] * 3
    for row in rows.values():
        for name, ordered in row.methods.items():
            pool = set(row.pool) if not name.endswith("_all") else set(range(row.units))
            assert set(ordered.order) == pool


def test_a_retriever_ranks_turns_without_replies():
    turns = ["Ana: Hello there.", "Ben: Who bought the red boat?", "Cy: My sister did."]
    turns += [f"{('Ana', 'Ben')[n % 2]}: Line {n} is here." for n in range(20)]
    turns = [f"(1 May) {turn}" for turn in turns]
    asked = question("boat", "Who bought the red boat?", "sister", (2,), units=tuple(turns))
    assert finder(pool_size=2).find(asked).pool[0] == 2
    assert 2 not in finder(pool_size=2, retrieved="metadata").find(asked).pool
    for known in ("metadata", "neighbours"):
        found = finder(pool_size=20, retrieved=known).find(asked)
        assert found.pool[0] == 2
        assert (
            found.stage1.units[2][0].text == "(1 May) Cy: Who bought the red boat? My sister did."
        )
    later = question("later", "What did my sister do?", "red boat", (2,), units=tuple(turns))
    reads = [finder(pool_size=1, retrieved=k).find(later) for k in ("metadata", "neighbours")]
    assert [each.stage1.units[2][0].text.count("red boat") for each in reads] == [0, 1]


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path):
    whole = run(tmp_path / "whole.db")
    killed = {"names": NAMES[:4], "questions": QUESTIONS[:2]}
    run(tmp_path / "killed.db", **killed)
    rows = run(tmp_path / "killed.db")
    assert {name: row.pool for name, row in rows.items()} == {
        name: row.pool for name, row in whole.items()
    }
    assert {n: r.methods["query_likelihood"].order for n, r in rows.items()} == {
        n: r.methods["query_likelihood"].order for n, r in whole.items()
    }


def test_a_journal_that_is_being_written_can_be_read(tmp_path):
    path = tmp_path / "j.db"
    written = run(path)
    with EvidenceJournal(path, {"data": "x"}):
        recorded = read_journal(path)
    assert (recorded.identity, dict(recorded.rows)) == ({"data": "x"}, written)


def test_another_measurement_is_refused(tmp_path):
    run(tmp_path / "j.db")
    with pytest.raises(ConfigurationError, match="another data"):
        run(tmp_path / "j.db", identity="y")


def test_the_reader_answers_each_selection_once_and_each_method_gets_it(tmp_path):
    model = FakeLanguageModel(replies={"Ana bought": "Ana"})
    path = tmp_path / "j.db"
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


def test_methods_that_see_the_answer_are_marked():
    seeing = {name for name, entry in CATALOGUE.items() if entry.uses_answer}
    assert seeing == {
        "oracle", "answer_shift", "joint_shift", "joint_shift+bm25", "stage1_answered",
    }  # fmt: skip
