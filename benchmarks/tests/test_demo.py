"""The demo with a fake model and a fake embedder, and its router's part with the real ones."""

import io
import json
import sys

import pytest
from rich.console import Console

from ecs_plugins.errors import ModelNotFoundError
from ecs_plugins.frontier import Context, Document
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from examples.demo import data, memory, router
from examples.demo.__main__ import main
from examples.demo.context import Demo

DATA = data.load_data()


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the demo: (stdout and stderr, what was measured)."""
    monkeypatch.setattr("ecs_plugins.cli._setup.load_model", lambda name: FakeLanguageModel())
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)

    def run(*arguments, status=0):
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", ["demo", "--out", str(out), *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        shown = capsys.readouterr()
        assert int(caught.value.code or 0) == status, shown
        written = out / "demo.json"
        found = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
        return shown.out + shown.err, found

    return run


@pytest.mark.slow
def test_evidence_compares_all_methods_at_equal_k_and_saves_the_figure(run, tmp_path):
    out, found = run("--part", "evidence", "--limit", "5")
    found = found["evidence"]
    assert list(found["methods"]) == ["TF-IDF", "BM25", "dense", "convex", "ECS"]
    assert len(found["questions"]) == 5
    for kept in found["kept"].values():
        assert {len(set(turns)) for turns in kept.values()} == {found["k"]}
    assert found["tokens_after"] < found["tokens_before"]
    assert "precision" in out
    assert (tmp_path / "out" / "evidence.png").read_bytes().startswith(b"\x89PNG")


def test_verdicts_cover_every_turn_of_every_case_and_find_the_repetitions(run):
    found = run("--part", "verdicts", "--limit", "3")[1]["verdicts"]
    cases = [q for q in DATA.questions if q.id in found["cases"]]
    assert len(cases) == 3
    for role in ("evidence", "misleading"):
        assert sum(found["counts"][role].values()) == sum(len(getattr(q, role)) for q in cases)
    (group,) = DATA.near_duplicates
    verdicts = found["repetitions"][group.text]
    assert [verdicts[turn] for turn in group.turns].count("redundant") == 2
    assert all(verdicts[turn] != "redundant" for turn in set(verdicts) - set(group.turns))


def test_a_framework_that_is_missing_is_left_out_by_name(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_classic.retrievers", None)
    out, found = run("--part", "frameworks")
    assert "ecs-plugins[langchain]" in out
    assert not any("LangChain" in way for way in found["frameworks"]["kept"])


@pytest.mark.slow
def test_memory_fits_into_its_room_survives_a_restart_and_follows_from_its_record(run):
    out, found = run("--part", "memory", "--limit", "45")
    found = found["memory"]
    assert found["turns"] == len(DATA.turns)
    assert 0 < len(found["memories"]) <= memory.COLD < found["room"] < found["turns"]
    assert found["restart"]["same"] == found["restart"]["questions"] == len(DATA.questions)
    assert found["restart"]["sound"]
    assert found["decisions recomputed alike"] == sum(found["decisions"].values()) > 0
    assert "F of the weakest" in out
    assert {fact.text for fact in DATA.repeated_facts} == set(found["facts"])
    for counts in found["facts"].values():
        assert 0 <= counts["most"] <= counts["held"] <= counts["told"]
    code = next(text for text in found["facts"] if "gate code" in text)
    assert found["facts"][code] == {"told": 3, "held": 3, "most": 3}
    priors = found["prior"]
    facts, small_talk = priors["answer a question"], priors["look least like it (a third)"]
    assert small_talk < 0.03 < 0.2 < facts
    (reminder,) = DATA.near_duplicates
    groups = [set(each["turns"]) & set(reminder.turns) for each in found["memories"]]
    assert sorted(map(len, filter(None, groups))) == [len(reminder.turns)]


@pytest.mark.slow
def test_what_was_spent_stands_beside_the_forecast(run):
    out, found = run("--part", "router", "--limit", "10")
    chosen = found["router"]["chosen"]
    assert list(chosen) == ["1", "10", "100"]
    assert [len(item["answers"]) for item in chosen.values()] == [1, 2, 2]
    for reuse, item in chosen.items():
        stage1, stage2 = item["expected"]
        assert stage2 + stage1 / int(reuse) <= router.BUDGET
        assert item["spent"][0] == stage1
        assert item["spent"][1] > 0
    assert "stage 2: forecast" in out


@pytest.mark.model
def test_other_chains_are_chosen_for_1_10_and_100_queries(tmp_path, bundled_lm, embedder):
    demo = Demo(Console(file=io.StringIO()), DATA, bundled_lm, embedder, tmp_path, 2, 20)
    frontier = router.measure(demo, Context(tuple(Document(b, a) for a, b in DATA.documents)))
    chosen = {n: frontier.decide(reuse=n, budget=router.BUDGET).strategy for n in router.REUSES}
    assert chosen == {1: "bm25", 10: "sentence_index", 100: "ecs"}


def test_without_an_embedder_every_part_says_what_is_left_out(run, monkeypatch):
    def missing():
        raise ModelNotFoundError("no embedder")

    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", missing)
    parts = [option for name in ("evidence", "memory", "router") for option in ("--part", name)]
    out, found = run(*parts, "--limit", "2")
    assert list(found["evidence"]["methods"]) == ["TF-IDF", "BM25", "ECS"]
    assert "memory" not in found
    assert "router" not in found
    assert out.count("ecs-plugins[offline]") == 3


def test_an_unknown_part_and_a_folder_that_cannot_be_made_are_refused(run, tmp_path):
    assert "evidence" in run("--part", "nonsense", status=1)[0]
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("x")
    out, _ = run("--out", str(tmp_path / "file" / "below"), status=1)
    assert "--out" in out
    assert out.count("\n") == 1
