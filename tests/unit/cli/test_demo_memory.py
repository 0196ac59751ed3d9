import json
import sys

import pytest

from ecs_plugins.cli import _setup
from ecs_plugins.errors import ModelNotFoundError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from examples.demo import memory
from examples.demo.__main__ import main
from examples.demo.data import RepeatedFact, Turn, load_data


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run this part with a fake embedder: (exit status, stdout, what was measured)."""
    monkeypatch.setattr(_setup, "load_model", lambda name: FakeLanguageModel())
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)

    def run(*arguments: str) -> tuple[int, str, dict]:
        out = tmp_path / "out"
        command = ["demo", "--out", str(out), "--part", "memory", *arguments]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as caught:
            main()
        found = json.loads((out / "demo.json").read_text(encoding="utf-8"))
        return int(caught.value.code or 0), capsys.readouterr().out, found.get("memory", {})

    return run


def test_a_whole_conversation_fits_into_the_room_and_survives_a_restart(run) -> None:
    status, out, found = run("--limit", "6")
    assert status == 0
    assert found["turns"] == len(load_data().turns)
    assert 0 < len(found["memories"]) <= memory.COLD < found["room"] < found["turns"]
    assert found["restart"]["same"] == found["restart"]["questions"] == 6
    assert found["restart"]["sound"]
    assert "opening it again" in out


def test_every_decision_follows_from_its_record(run) -> None:
    _, out, found = run("--limit", "3")
    assert found["sleeps"] > 1
    assert found["decisions recomputed alike"] == sum(found["decisions"].values()) > 0
    assert "F of the weakest" in out


def test_a_reminder_that_was_posted_three_times_is_one_memory(run) -> None:
    _, _, found = run("--limit", "3")
    (reminder,) = load_data().near_duplicates
    groups = [set(each["turns"]) & set(reminder.turns) for each in found["memories"]]
    assert sorted(map(len, filter(None, groups))) == [len(reminder.turns)]


def test_every_repeated_fact_is_accounted_for(run) -> None:
    _, _, found = run("--limit", "3")
    assert {fact.fact for fact in load_data().repeated_facts} == set(found["facts"])
    for counts in found["facts"].values():
        assert 0 <= counts["most"] <= counts["held"] <= counts["told"]


def test_without_an_embedder_the_part_is_left_out_by_name(run, monkeypatch) -> None:
    def missing() -> None:
        raise ModelNotFoundError("no embedder")

    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", missing)
    status, out, found = run()
    assert (status, found) == (0, {})
    assert "ecs-plugins[offline]" in out


def test_the_tellings_of_a_fact_are_counted_per_item() -> None:
    one, two, three = (Turn(name, "2025-01-01", "Ann", "text") for name in "abc")
    fact = RepeatedFact("It rains.", ("a", "c", "d"))
    assert memory.held_of(fact, [[one, two, three], [two], [one]]) == [2, 1]
