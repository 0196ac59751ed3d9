import json
from contextlib import closing

import numpy as np
import pytest

from benchmarks.commands.calibration import (
    DRAWN,
    FOUND,
    Listed,
    calibration_error,
    fitted,
    found_lists,
    held_out,
    report,
)
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.journal import Journal
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping.probability import ProbabilityFit

TRUE = ProbabilityFit(-1.0, {"explained": 2.0, "crowd": -1.0})
WEATHER = tuple(f"The red tram number {n} was late." for n in range(12))
QUESTION = EvidenceQuestion(
    "q", "Who bought the red boat?", ("Ida",), (*WEATHER, "Ida bought the boat."), (12,), "article"
)


def drawn(fit=TRUE, dataset="squad", lists=400):
    """Lists whose labels were drawn by a known fit, each of a question of its own."""
    draw = np.random.default_rng(1)
    found = []
    for number in range(lists):
        crowd = float(draw.choice([0.0, 1.0, 2.0]))
        parts = [{"explained": float(value), "crowd": crowd} for value in draw.normal(size=10)]
        labels = draw.random(10) < [fit.of(part) for part in parts]
        name = f"{dataset} {number}"
        found.append(Listed(dataset, name, name, FOUND, 10, parts, labels.tolist()))
    return found


def test_the_true_fit_is_found_and_calibrated_on_unseen_data():
    lists = drawn()
    fit = fitted(lists)
    assert fit.weights["explained"] == pytest.approx(2.0, abs=0.2)
    assert fit.weights["crowd"] == pytest.approx(-1.0, abs=0.2)
    likely = np.concatenate(held_out(lists, seed=1))
    labels = np.concatenate([each.labels for each in lists])
    assert calibration_error(likely, labels) < 0.02


def test_measured_only_groups_teach_nothing():
    both = drawn() + drawn(ProbabilityFit(3.0, {"explained": 0.0}), dataset="locomo")
    assert fitted(both) == fitted(drawn())
    with pytest.raises(InvalidInputError, match="other than locomo"):
        fitted(drawn(dataset="locomo"))


def test_no_question_is_measured_by_a_fit_of_its_group():
    parts = [{"explained": 9.0, "crowd": 0.0}] * 10
    odd = [Listed("squad", "odd", "odd", FOUND, 10, parts, [False] * 10)] * 50
    said = held_out(drawn() + odd, seed=1)
    assert np.concatenate(said[-50:]).min() > 0.9


def test_the_error_is_the_distance_of_stated_and_found_shares():
    said = np.array([0.25] * 4 + [0.85] * 4 + [1.0])
    labels = np.array([True, False, False, False] + [True] * 2 + [False] * 2 + [True])
    assert calibration_error(said, labels) == pytest.approx(4 / 9 * 0.35)


def test_lists_hold_the_evidence_or_another_passage_in_place_of_it():
    lists = found_lists(FakeLanguageModel(), make_ranker("bm25"), QUESTION, "squad")
    sizes = [(each.others, each.size, len(each.labels), sum(each.labels)) for each in lists]
    assert sizes[:6] == [
        (FOUND, 3, 3, 1),
        (FOUND, 3, 3, 0),
        (FOUND, 5, 5, 1),
        (FOUND, 5, 5, 0),
        (FOUND, 10, 10, 1),
        (FOUND, 10, 10, 0),
    ]
    assert {size for others, size, *_ in sizes if others == DRAWN} == {3, 5, 10}
    assert all(len(each.parts) == len(each.labels) for each in lists)


def test_a_passage_that_repeats_another_one_is_not_listed():
    twice = (*WEATHER[:3], WEATHER[0], "Ida bought the boat.")
    question = EvidenceQuestion("q", "Who bought the red boat?", ("Ida",), twice, (4,), "article")
    lists = found_lists(FakeLanguageModel(), make_ranker("bm25"), question, "squad")
    assert max(len(each.parts) for each in lists) == 4
    assert all(len(each.parts) == len(each.labels) for each in lists)


def test_a_question_whose_evidence_no_ranker_finds_has_no_lists():
    lost = EvidenceQuestion("q", "Red?", ("x",), (*["Red tram."] * 50, "It."), (50,), "article")
    assert found_lists(FakeLanguageModel(), make_ranker("bm25"), lost, "squad") == []


def test_the_report_has_a_row_for_every_data_set():
    lines = "\n".join(report(drawn() + drawn(dataset="locomo"))).splitlines()
    assert any(line.startswith("| squad (400) | 0.0") for line in lines)
    assert any(line.startswith("| locomo (400) | 0.0") for line in lines)
    assert lines[-1].startswith("fitted to all: ProbabilityFit(")


def test_the_command_resumes(bench, tmp_path, monkeypatch):
    model = FakeLanguageModel()
    monkeypatch.setattr("ecs_plugins.lm.LocalLM.bundled", lambda **options: model)
    embedder = FakeEmbedder()
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", lambda: embedder)
    articles = []
    for number in range(5):
        asked = {"id": str(number), "question": f"Where does Ida{number} live?"}
        asked["answers"] = [{"text": f"Rome{number}"}]
        told = [f"It rained on day {day}." for day in range(6)]
        context = " ".join([*told, f"Ida{number} lives in Rome{number}."])
        paragraphs = [{"context": context, "qas": [asked]}]
        articles.append({"title": f"Ida{number}", "paragraphs": paragraphs})
    data = tmp_path / "squad.json"
    data.write_text(json.dumps({"data": articles}))
    command = ("calibration", f"squad={data}", "--limit", "5", "--out", tmp_path / "rows.db")
    shown = bench(*command)
    assert "| squad (5) |" in shown
    requests = len(model.requests)
    assert bench(*command).splitlines()[:3] == shown.splitlines()[:3]
    assert len(model.requests) == requests  # from the journal
    kind = ("ecs_plugins.calibration", 1)
    with closing(Journal(tmp_path / "rows.db", kind, None)) as journal:
        assert len(journal.records) == 5
