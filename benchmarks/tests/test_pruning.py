import json
from contextlib import closing

from benchmarks.commands.pruning import (
    BM25,
    NO_MODEL,
    PACKAGE,
    WHOLE,
    Left,
    Pruned,
    PruningJournal,
    best_by_bm25,
    measure,
    shown,
    summary,
)
from ecs_plugins.frontier import CalibrationQuestion, Context
from ecs_plugins.frontier.data import Document
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder


def told(n):
    """Passage about one day."""
    weather = f"It rained on day {n}, and the bus was late."
    home = f"Ida{n} lives in Rome{n}."
    meal = "Soup was served to those who had come on foot."
    end = "Nobody went home before the lamps were lit, and the dog slept by the door."
    return f"{weather} {home} {meal} {end}"


IDENTITY = {
    "dataset": "squad",
    "dtype": "auto",
    "passages": 10,
    "seed": 42,
    "shares": [0.4],
    "top_k": None,
}
DOCUMENTS = tuple(Document(told(n), f"Day {n}") for n in range(8))
QUESTION = CalibrationQuestion("q", "Where does Ida3 live?", ("Rome3",), Context(DOCUMENTS), (3,))


def test_the_passages_shown_hold_the_answer_and_are_the_same_every_time():
    found = shown(QUESTION, 4, seed=1)
    assert len(found) == 4
    assert f"Day 3\n{told(3)}" in found
    assert shown(QUESTION, 4, seed=1) == found
    assert shown(QUESTION, 99, seed=1) == shown(QUESTION, 8, seed=2)


def test_a_question_is_measured_beside_other_ways_to_leave_as_many_characters():
    knows = FakeLanguageModel(
        lambda context, text: -4.0 + ("Ida3" in context) + ("lives" in context)
    )
    facts = {"q": ["Ida3 lives in Rome3."]}
    rows = measure(knows, [QUESTION], 8, facts=facts, shares=(0.4, 0.1), embedder=FakeEmbedder())
    assert [row.share for row in rows] == [0.4, 0.1]
    for row in rows:
        assert row.selected.has_answer
        assert row.left[PACKAGE].has_answer
        assert row.left[PACKAGE].has_facts
        room = row.share * row.selected.characters
        for method in (PACKAGE, WHOLE, BM25, NO_MODEL):
            assert row.left[method].characters <= room + len(DOCUMENTS)  # and what joins them
    assert rows[1].left[WHOLE].characters == 0


def test_a_question_is_scored_once_for_all_shares():
    model = FakeLanguageModel()
    measure(model, [QUESTION], 8, shares=(0.4,), embedder=FakeEmbedder())
    requests = len(model.requests)
    measure(model, [QUESTION], 8, shares=(0.4, 0.2, 0.1), embedder=FakeEmbedder())
    assert len(model.requests) == 2 * requests


def test_bm25_leaves_the_sentences_that_share_most_words_in_reading_order():
    texts = ["Rain fell. Ida came.", "Ida and Bo came. Nobody slept."]
    assert best_by_bm25("Ida Bo", texts, room=25) == ["Ida came.", "Ida and Bo came."]
    assert best_by_bm25("Ida", ["Ida came.", "Ida came."], room=9) == ["Ida came."]


def test_figures_are_of_questions_whose_answer_was_kept():
    whole = Left(100, has_answer=True, has_facts=True)
    loses = Left(40, has_answer=False, has_facts=False)
    holds = Left(40, has_answer=True, has_facts=True)
    lost_before = Left(100, has_answer=False, has_facts=False)
    rows = [
        Pruned("a", 0.4, 200, whole, {PACKAGE: holds, WHOLE: loses}),
        Pruned("b", 0.4, 200, whole, {PACKAGE: holds, WHOLE: holds}),
        Pruned("c", 0.4, 200, lost_before, {PACKAGE: loses, WHOLE: loses}),
    ]
    shown = "\n".join(summary(rows))
    assert "hold the answer of 2, and take 50.0%" in shown
    assert "sentences: 60.0% fewer characters" in shown
    assert "the answer stays, sentences: 2 of 2, 100.0%" in shown
    assert "the answer stays, whole passages: 1 of 2, 50.0%" in shown
    assert "all supporting sentences stay, whole passages: 1 of 2, 50.0%" in shown
    assert "sentences +50.0%" in shown


def test_the_command_resumes(bench, tmp_path, monkeypatch):
    model = FakeLanguageModel()
    monkeypatch.setattr("ecs_plugins.lm.LocalLM.bundled", lambda **options: model)
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
    command = ("pruning", "squad", "--data", data, "--out", tmp_path / "rows.db")
    shown = bench(*command)
    assert "BM25 sentences:" in shown
    with closing(PruningJournal(tmp_path / "rows.db", IDENTITY)) as journal:
        (rows,) = journal.rows.values()
    (row,) = rows
    assert row.question == "Where?"
    assert row.selected.has_answer
    requests = len(model.requests)
    again = bench(*command)
    assert again.splitlines()[1:3] == shown.splitlines()[1:3]  # the first line shows a time
    assert len(model.requests) == requests  # from the journal
