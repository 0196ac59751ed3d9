"""Files that 0.1.0 wrote open, decide as they did, and go on; see made_with.py beside them."""

import json
import shutil
from pathlib import Path

import pytest

from ecs_plugins.frontier import CalibrationConfig, EfficiencyFrontier, ReuseLedger, calibrate
from ecs_plugins.frontier.answering import LocalAnswerModel
from ecs_plugins.frontier.data import read_questions
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

FILES = Path(__file__).parents[2] / "fixtures" / "0.1.0" / "frontier"
KEY = ("memory_compression", '{"ratio":0.3}')


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FILES, tmp_path / "files")


def replies(prompt):
    """As in made_with.py."""
    context, _, question = prompt.partition("Question: ")
    if "who built" in question.lower():
        return "Hester Vane" if "Hester Vane" in context else "nobody"
    if "wheel" in question:
        return "oak" if "of oak" in context else "iron"
    return "1850" if "1850" in context else "no idea"


def test_a_frontier_decides_as_it_did(folder):
    frontier = EfficiencyFrontier.load(folder / "frontier.json")
    computed = json.loads((folder / "computed.json").read_text())
    for known in computed["decisions"]:
        asked = {known["objective"]: known["value"]}
        decision = frontier.decide(reuse=known["reuse"], **asked).to_dict()
        # Stage 1 was averaged over questions then, and is over contexts now; and intervals of
        # few questions are wider.
        same = ("label", "f1", "stage2", "unit", "ties", "sunk")
        assert [decision[name] for name in same] == [known[name] for name in same]
    path = [step.point.label for step in frontier.reuse_path(weight=0.95)]
    assert path == [label for label, _ in computed["reuse_path"]]
    assert len(frontier.transitions(10)) == len(computed["transitions"])


def test_a_frontier_is_written_as_it_was_but_for_stage_one(folder):
    text = (folder / "frontier.json").read_text()
    frontier = EfficiencyFrontier.from_json(text)
    assert frontier.to_json().splitlines()[-2:] == text.splitlines()[-2:]
    stages = [point["stage1"] for point in json.loads(text)["points"]]
    rows, _ = frontier.prices.stages(frontier.measurements)
    assert stages == pytest.approx([row.mean() for row in rows])


def test_a_frontier_of_means_in_money_still_decides(folder):
    frontier = EfficiencyFrontier.load(folder / "frontier_usd_means.json")
    assert frontier.unit == "USD"
    assert frontier.measurements is None
    assert frontier.decide(reuse=1, target_f1=0.6).strategy == "bm25"


def test_a_calibration_finds_the_compressions_and_measures_the_same(folder):
    model = FakeLanguageModel(replies=replies)
    questions = read_questions(folder / "questions.jsonl")
    strategies = StrategySet(
        LocalAnswerModel(model),
        embedder=FakeEmbedder(),
        cache_dir=folder / "compressions",
        questions=questions,
    )
    points = [("full_context", {}), ("bm25", {"depth": 1}), ("dense", {"depth": 1})]
    points += [("memory_compression", {"ratio": 0.3}), ("oracle", {})]
    config = CalibrationConfig(batch_size=2, max_new_tokens=8)
    again = calibrate(questions, [strategies.get(*each) for each in points], model, config=config)
    assert len(model.prompts) == len(questions) * len(points)  # and none to write notes
    known = EfficiencyFrontier.load(folder / "frontier.json")
    now, then = ([(p.key, p.f1, p.stage1, p.stage2) for p in f.points] for f in (again, known))
    assert now == then


def test_a_reuse_ledger_keeps_its_counts_and_what_is_prepared(folder):
    with ReuseLedger(folder / "reuse.db", namespace=("team", "a")) as ledger:
        assert (ledger.count("mill"), ledger.count("well"), len(ledger)) == (4, 1, 2)
        assert ledger.prepared("mill") == {KEY: 57.0}
        assert ledger.record("mill") == 5
