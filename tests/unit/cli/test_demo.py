import json
import sys

import pytest

from ecs_plugins.cli import _setup
from ecs_plugins.errors import MissingExtraError, ModelNotFoundError, StorageError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from examples import demo
from examples.demo import data, metrics
from examples.demo.__main__ import main

ORDER = ("a", "b", "c", "d")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the demo with a fake model and a fake embedder: (exit status, stdout, stderr)."""
    monkeypatch.setattr(_setup, "load_model", lambda name: FakeLanguageModel())
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)

    def run(*arguments: str) -> tuple[int, str, str]:
        command = ["demo", "--out", str(tmp_path / "out"), *arguments]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as caught:
            main()
        out = capsys.readouterr()
        return int(caught.value.code or 0), out.out, out.err

    return run


def results(tmp_path) -> dict:
    return json.loads((tmp_path / "out" / "demo.json").read_text(encoding="utf-8"))


def test_evidence_compares_all_methods_at_equal_k_and_saves_the_figure(run, tmp_path) -> None:
    status, out, err = run("--part", "evidence", "--limit", "5")
    assert status == 0, err
    found = results(tmp_path)["evidence"]
    assert list(found["methods"]) == ["TF-IDF", "BM25", "dense", "hybrid", "ECS"]
    assert len(found["questions"]) == 5
    for kept in found["kept"].values():
        assert {len(set(turns)) for turns in kept.values()} == {found["k"]}
    assert found["tokens_after"] < found["tokens_before"]
    assert "precision" in out
    assert (tmp_path / "out" / "evidence.png").read_bytes().startswith(b"\x89PNG")


def test_without_an_embedder_the_demo_says_what_is_left_out(run, tmp_path, monkeypatch) -> None:
    def missing() -> None:
        raise ModelNotFoundError("no embedder")

    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", missing)
    status, out, err = run("--part", "evidence", "--limit", "2")
    assert status == 0, err
    assert list(results(tmp_path)["evidence"]["methods"]) == ["TF-IDF", "BM25", "ECS"]
    assert "ecs-plugins[offline]" in out


def test_verdicts_cover_every_turn_of_every_case_and_find_the_repetitions(run, tmp_path) -> None:
    status, _, err = run("--part", "verdicts", "--limit", "3")
    assert status == 0, err
    found = results(tmp_path)["verdicts"]
    cases = [q for q in data.load_data().questions if q.id in found["cases"]]
    assert len(cases) == 3
    for role in ("evidence", "misleading"):
        assert sum(found["counts"][role].values()) == sum(len(getattr(q, role)) for q in cases)
    (group,) = data.load_data().near_duplicates
    verdicts = found["repetitions"][group.question]
    assert [verdicts[turn] for turn in group.turns].count("redundant") == 2
    assert all(verdicts[turn] != "redundant" for turn in set(verdicts) - set(group.turns))


def test_both_frameworks_keep_what_the_engine_keeps(run, tmp_path) -> None:
    pytest.importorskip("langchain_classic")
    pytest.importorskip("llama_index.core")
    status, _, err = run("--part", "frameworks")
    assert status == 0, err
    kept = list(results(tmp_path)["frameworks"]["kept"].values())
    assert len(kept) == 3
    assert kept[0] == kept[1] == kept[2]


def test_a_framework_that_is_missing_is_left_out_by_name(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_classic.retrievers", None)
    status, out, err = run("--part", "frameworks")
    assert status == 0, err
    assert "ecs-plugins[langchain]" in out
    assert not any("LangChain" in way for way in results(tmp_path)["frameworks"]["kept"])


def test_a_part_whose_extra_is_missing_does_not_stop_the_others(run, tmp_path, monkeypatch) -> None:
    def missing(_: object) -> None:
        raise MissingExtraError("this part", "some_module", "plots")

    monkeypatch.setattr("examples.demo.evidence.run", missing)
    status, out, err = run("--part", "evidence", "--part", "verdicts", "--limit", "1")
    assert status == 0, err
    assert "Left out" in out
    assert "verdicts" in results(tmp_path)


def test_an_unknown_part_is_refused_before_anything_is_written(run, tmp_path) -> None:
    status, out, err = run("--part", "nonsense")
    assert (status, out) == (1, "")
    assert "evidence" in err
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_cannot_be_made_is_one_clear_line(run, tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    status, out, err = run("--out", str(tmp_path / "file" / "below"))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "--out" in err


def test_every_part_is_a_module_with_a_run_function() -> None:
    import importlib

    for part in demo.PARTS:
        assert callable(importlib.import_module(part.module).run)


def test_the_choice_of_questions_takes_categories_and_overlap_in_turn() -> None:
    questions = data.load_data().questions
    chosen = data.choose(questions, 10)
    assert [q.category for q in chosen[:5]] == [q.category for q in chosen[5:]]
    assert len({q.category for q in chosen}) == 5
    for first, second in zip(chosen[:5], chosen[5:], strict=True):
        assert first.overlap != second.overlap
    assert sorted(q.id for q in data.choose(questions, None)) == sorted(q.id for q in questions)


def test_missing_data_are_an_error_that_says_what_to_do(tmp_path) -> None:
    with pytest.raises(StorageError, match="run the demo in a checkout"):
        data.load_data(tmp_path)


def test_precision_recall_and_f1_on_a_worked_example() -> None:
    assert metrics.precision(ORDER, {"a", "d", "x"}, 4) == pytest.approx(0.5)
    assert metrics.recall(ORDER, {"a", "d", "x"}, 4) == pytest.approx(2 / 3)
    assert metrics.evidence_f1(ORDER, {"a", "d", "x"}) == pytest.approx(1 / 3)


def test_the_interval_holds_the_mean_and_closes_on_equal_values() -> None:
    low, high = metrics.interval([0.0, 1.0, 1.0, 0.0, 1.0])
    assert low < 0.6 < high
    assert metrics.interval([0.5] * 4) == (0.5, 0.5)
