import json

import pytest

from benchmarks.commands.robustness import ATTACKS, CLIMBED, measure, methods, scenes
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder


def question(n):
    units = (*(f"The tram number {k} was late on day {n}." for k in range(6)), f"Ida{n} bought it.")
    asked = f"Who of the sailors bought the red boat{n}?"
    return EvidenceQuestion(f"q{n}", asked, (f"Ida{n}",), units, (6,), f"article {n}")


QUESTIONS = [question(n) for n in range(3)]


def test_a_scene_holds_the_evidence_among_sentences_of_its_article():
    made = scenes(QUESTIONS, 5, seed=1)
    assert made == scenes(QUESTIONS, 5, seed=1)
    assert [scene.passages[scene.evidence] for scene in made] == [q.units[6] for q in QUESTIONS]
    assert {len(scene.passages) for scene in made} == {5}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_holds_no_evidence(attack):
    for scene in scenes(QUESTIONS, 5, seed=1):
        evidence = scene.passages[scene.evidence]
        assert not any(evidence in text for text in ATTACKS[attack](scene))


def test_the_defence_keeps_a_copy_from_being_first():
    found = measure(scenes(QUESTIONS, 5, 1), methods(FakeLanguageModel(), FakeEmbedder()))
    assert found["copy of the question"]["without defence"] == [2, 2, 2]
    assert found["copy of the question"]["default"] == [0, 0, 0]


def test_the_command_prints_a_table_and_writes_every_number(bench, tmp_path, monkeypatch):
    fakes = {
        "ecs_plugins.lm.LocalLM.bundled": lambda **options: FakeLanguageModel(),
        "ecs_plugins.ranking.embedder.default_embedder": FakeEmbedder,
        "benchmarks.commands.robustness.read_dataset": lambda *of: QUESTIONS,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(name, fake)
    data, out = tmp_path / "squad.json", tmp_path / "out.json"
    data.write_text("[]")
    shown = bench("robustness", "--data", data, "--candidates", 5, "--out", out)
    assert "| copy of the question | 3, 3 |" in shown
    assert set(json.loads(out.read_text())) == {"evidence", *ATTACKS, CLIMBED}
