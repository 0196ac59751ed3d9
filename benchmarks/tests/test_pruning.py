import json

from benchmarks.commands.pruning import Pruned, measure, shown, summary
from ecs_plugins.frontier import CalibrationQuestion, Context, Document
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder


def told(n):
    """What is said of one day."""
    weather = f"It rained on day {n}, and the bus was late."
    home = f"Ida{n} lives in Rome{n}."
    meal = "Soup was served to those who had come on foot."
    end = "Nobody went home before the lamps were lit, and the dog slept by the door."
    return f"{weather} {home} {meal} {end}"


DOCUMENTS = tuple(Document(told(n), f"Day {n}") for n in range(8))
QUESTION = CalibrationQuestion("q", "Where does Ida3 live?", ("Rome3",), Context(DOCUMENTS), (3,))


def test_the_passages_shown_hold_the_answer_and_are_the_same_every_time():
    found = shown(QUESTION, 4, seed=1)
    assert len(found) == 4
    assert f"Day 3\n{told(3)}" in found
    assert shown(QUESTION, 4, seed=1) == found
    assert shown(QUESTION, 99, seed=1) == shown(QUESTION, 8, seed=2)


def test_a_question_is_measured_against_whole_passages_in_as_many_characters():
    knows = FakeLanguageModel(
        lambda context, text: -4.0 + ("Ida3" in context) + ("lives" in context)
    )
    (row,) = measure(knows, [QUESTION], 8, embedder=FakeEmbedder())
    assert row.in_whole
    assert row.in_pruned
    assert row.pruned < row.whole < row.given


def test_figures_are_of_questions_whose_answer_was_kept():
    rows = [
        Pruned("a", 200, 100, 40, True, True, False),
        Pruned("b", 200, 100, 40, True, True, True),
        Pruned("c", 200, 100, 40, False, False, False),
    ]
    shown = summary(rows)
    assert "hold the answer of 2, and take 50.0%" in shown[0]
    assert shown[1].endswith("60.0%")
    assert "by sentences: 100.0%" in shown[2]
    assert "as many characters: 50.0%" in shown[3]


def test_the_command_prints_its_figures_and_writes_every_question(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("ecs_plugins.lm.LocalLM.bundled", lambda **options: FakeLanguageModel())
    text = "It rained. Ida lives in Rome. Soup was served."
    record = {
        "title": "Ida",
        "paragraphs": [
            {
                "context": text,
                "qas": [{"id": "1", "question": "Where?", "answers": [{"text": "Rome"}]}],
            }
        ],
    }
    data = tmp_path / "squad.json"
    polar = {"id": "2", "question": "Did it rain, or no?", "answers": [{"text": "no"}]}
    record["paragraphs"][0]["qas"].append(polar)
    record["paragraphs"][0]["context"] += " It did not."
    data.write_text(json.dumps({"data": [record]}))
    shown = bench("pruning", "squad", "--data", data, "--out", tmp_path / "out.json")
    assert "fewer characters by sentences" in shown
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row["question"] == "Where?"
    assert row["in_whole"]
