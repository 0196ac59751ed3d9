import json

import pytest

from benchmarks.commands.evidence import BENCHES
from benchmarks.evidence.catalogue import CATALOGUE
from benchmarks.tests.records import HOTPOTQA, LOCOMO, LONGMEMEVAL, MUSIQUE, SQUAD, nq, save
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

DATA = {
    "locomo": LOCOMO, "longmemeval": LONGMEMEVAL, "hotpotqa": HOTPOTQA, "musique": MUSIQUE,
    "nq": nq(), "squad": SQUAD, "counterfactual": nq(),
}  # fmt: skip


@pytest.fixture
def run(bench, monkeypatch, tmp_path):
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)
    monkeypatch.setattr(
        "ecs_plugins.cli.model.load_model", lambda name, dtype="auto": FakeLanguageModel()
    )

    def run(name, *arguments, status=0):
        data = save(tmp_path / f"{name}-data.json", DATA[name]) if name in DATA else None
        given = ["--data", data] if data else []
        return bench(name, *given, *arguments, status=status)

    return run


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_writes_a_journal_json_and_tables(name, run, tmp_path):
    out = tmp_path / "out"
    run(name, "--out", str(out), "--methods", "tfidf,query_likelihood", "--limit", "3")
    assert {path.name for path in out.iterdir()} == {f"{name}.db", f"{name}.json", f"{name}.md"}
    result = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    assert set(result["methods"]) == {"tfidf", "query_likelihood"}
    assert len(result["provenance"]["data_hash"]) == 64
    assert {"model", "dtype", "embedder", "version", "created", "seconds", "scored_tokens"} <= set(
        result["provenance"]
    )


def test_all_methods_run_but_those_that_are_not_installed(run, tmp_path):
    out = tmp_path / "out"
    run("squad", "--out", str(out), "--methods", "all")
    result = json.loads((out / "squad.json").read_text(encoding="utf-8"))
    assert set(result["methods"]) | set(result["left_out"]) == set(CATALOGUE)
    assert set(result["left_out"]) <= {"embeddings_filter", "sentence_optimizer"}


def test_a_journal_is_continued_only_if_asked(run, tmp_path):
    arguments = ("--out", str(tmp_path / "out"), "--methods", "tfidf")
    run("squad", *arguments, "--limit", "1")
    assert "--resume" in run("squad", *arguments, status=1)
    run("squad", *arguments, "--resume")
    result = json.loads((tmp_path / "out" / "squad.json").read_text(encoding="utf-8"))
    assert result["questions"] == 2


def test_tables_alone_come_from_the_journal_and_load_no_model(run, tmp_path, monkeypatch):
    out = ("--out", str(tmp_path / "out"))
    run("squad", *out, "--methods", "tfidf,bm25")
    monkeypatch.setattr("ecs_plugins.cli.model.load_model", None)
    shown = run("squad", *out, "--tables-only")
    assert "| tfidf |" in shown
    assert "| bm25 |" in shown
    assert "| bm25 |" not in run("squad", *out, "--tables-only", "--methods", "tfidf")


def test_tables_leave_out_methods_with_fewer_questions(run, tmp_path):
    out = ("--out", str(tmp_path / "out"))
    run("squad", *out, "--methods", "tfidf,bm25", "--limit", "1")
    run("squad", *out, "--methods", "tfidf", "--resume")
    run("squad", *out, "--tables-only")
    found = json.loads((tmp_path / "out" / "squad.json").read_text(encoding="utf-8"))
    assert (found["questions"], list(found["methods"])) == (2, ["tfidf"])
    assert "1 of 2 questions" in found["left_out"]["bm25"]
    run("squad", *out, "--tables-only", "--methods", "tfidf,bm25")
    found = json.loads((tmp_path / "out" / "squad.json").read_text(encoding="utf-8"))
    assert (found["questions"], list(found["methods"])) == (1, ["tfidf", "bm25"])


def test_a_reader_answers_within_budgets(run, tmp_path):
    run("squad", "--out", str(tmp_path), "--methods", "tfidf", "--read", "top1,all")
    result = json.loads((tmp_path / "squad.json").read_text(encoding="utf-8"))
    assert {"answer_f1@top1", "answer_em@all"} <= set(result["methods"]["tfidf"]["metrics"])


def test_several_results_make_one_report(run, tmp_path):
    for name in ("squad", "locomo"):
        run(name, "--out", str(tmp_path / name), "--methods", "tfidf")
    folders = [str(tmp_path / "squad"), str(tmp_path / "locomo")]
    shown = run("evidence-report", *folders)
    assert "## squad (sentence)" in shown
    assert "## locomo (turn)" in shown
    run("evidence-report", *folders, "--out", str(tmp_path / "all.md"))
    assert (tmp_path / "all.md").read_text(encoding="utf-8").strip() in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "best"), "unknown method"),
        (("--part", "half"), "--part is"),
        (("--unit", "page"), "no units"),
        (("--read", "much"), "a budget is"),
        (("--limit", "1", "--methods", ","), "nothing to measure"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(run, tmp_path, arguments, message):
    out = tmp_path / "out"
    assert message in run("squad", "--out", str(out), *arguments, status=1)
    assert not out.exists()


def test_every_method_is_listed_with_its_description(run):
    shown = run("evidence-methods")
    for name, entry in CATALOGUE.items():
        assert f"| {name} | {entry.kind} |" in shown
        assert entry.about


def test_a_signal_of_the_users_runs_beside_the_others(run, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from ecs_plugins.shaping.signals import AnswerShift, QueryLikelihood\n"
        "chatty = QueryLikelihood(layout='chat')\n"
        "def knowing():\n    return AnswerShift(layout='chat')\n"
        "number = 3\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    given = ("--signal", "mine:chatty", "--signal", "mine:knowing", "--methods", "tfidf")
    run("squad", "--out", str(tmp_path / "out"), *given)
    found = json.loads((tmp_path / "out" / "squad.json").read_text(encoding="utf-8"))["methods"]
    assert found["own:query_likelihood"]["uses_answer"] is False
    assert found["own_given:answer_shift"]["uses_answer"] is True
    for place, message in (("mine:none", "no signal at"), ("mine:number", "no signal at")):
        shown = run("squad", "--out", str(tmp_path / "new"), "--signal", place, status=1)
        assert message in shown
