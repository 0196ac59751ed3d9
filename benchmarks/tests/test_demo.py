"""The demo with a fake model and a fake embedder; its conclusions are those of its figures."""

import json
import sys

import pytest

from ecs_plugins.errors import ModelNotFoundError
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from examples.demo import data, memory, passages, router
from examples.demo.__main__ import main
from examples.demo.handbook import Asked, load_handbook

CHAT = data.load_chat()
BOOK = load_handbook()
ALPHA, BETA, GAMMA = "Alpha: yes one.", "Beta: no.", "Gamma: yes two."


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the demo and return its output and figures."""
    monkeypatch.setattr("ecs_plugins.cli.model.load_model", lambda name: FakeLanguageModel())
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


def ways(*orders: list[int]) -> passages.Ways:
    """ECS in the first order, BM25 in the second, for one question asked ten times."""
    asked = (Asked("Which one?", "yes"),) * 10
    by_method = {passages.ECS: [orders[0]] * 10, "BM25": [orders[1]] * 10}
    return passages.Ways(asked, by_method, tokens=(10, 20, 30), read=60, scored=5.0)


def test_enough_is_asked_of_the_handbook_and_every_answer_stands_in_it() -> None:
    assert len(BOOK.passages) >= 60
    assert len(BOOK.questions) >= 44
    assert len({asked.question for asked in BOOK.questions}) == len(BOOK.questions)
    for asked in BOOK.questions:
        holders = [text for text in BOOK.passages if asked.answered_by(text)]
        assert 1 <= len(holders) <= 2, asked
        assert not asked.answered_by(asked.question), asked


def test_a_seed_draws_questions_and_an_order() -> None:
    first, again, other = BOOK.drawn(9, 1), BOOK.drawn(9, 1), BOOK.drawn(9, 2)
    assert first == again != other
    assert len(set(first.questions)) == 9
    assert sorted(first.passages) == sorted(BOOK.passages)


@pytest.mark.parametrize(
    ("own", "other", "word"),
    [([0, 2, 1], [1, 1, 0], "above"), ([1, 1, 0], [0, 2, 1], "BELOW"), ([0], [2], "level with")],
)
def test_a_conclusion_names_the_better_method(own, other, word) -> None:
    said = passages.concluded(ways(own, other), [ALPHA, BETA, GAMMA])
    assert f"{word} BM25" in said


def test_shared_preparation_is_paid_once() -> None:
    texts = [ALPHA, BETA, GAMMA]
    found = {point.label: point for point in router.points(ways([0, 1], [1, 0]), texts)}
    own, full = found["ECS(depth=1)"], found["full_context"]
    assert (own.stage1, own.stage2, own.f1) == (60, 15, 1.0)
    assert (full.stage1, full.stage2, full.f1) == (0, 60, 1.0)
    assert found["BM25(depth=1)"].f1 == 0
    free = {point.label: point for point in router.points(ways([0, 1], [1, 0]), texts, price=0)}
    assert (free["ECS(depth=1)"].stage1, free["ECS(depth=1)"].stage2) == (0, 10)


@pytest.mark.slow
def test_each_part_measures_concludes_and_says_where_to_go(run) -> None:
    out, found = run("--limit", "6", "--pool", "4", "--seed", "3")
    for part in ("passages", "memory", "router"):
        assert found[part]["conclusion"][:30] in out
    assert list(found["passages"]["kept"]) == ["BM25", "embeddings", "both (convex)", "ECS"]
    assert found["passages"]["questions"] == 6
    told = found["memory"]
    assert told["turns"] == len(CHAT.turns)
    assert told["same"] == told["questions"] == len(CHAT.questions)
    assert told["sound"]
    assert told["evidence"]["the memory"] > told["evidence"]["the newest turns"]
    assert list(found["router"]["chosen"]) == [str(reuse) for reuse in router.REUSES]
    assert "docs/guides/cut-tokens.md" in out


def test_without_an_embedder_the_demo_names_the_skipped_part(run, monkeypatch) -> None:
    def missing():
        raise ModelNotFoundError("no embedder")

    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", missing)
    out, found = run("--limit", "2", "--pool", "4")
    assert list(found["passages"]["kept"]) == ["BM25", "ECS"]
    assert "memory" not in found
    assert "ecs-plugins[offline]" in out


def test_a_folder_that_cannot_be_made_is_refused(run, tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    out, _ = run("--out", str(tmp_path / "file" / "below"), status=1)
    assert "--out" in out
    assert out.count("\n") == 1


def test_small_talk_leaves_the_memory_first() -> None:
    assert memory.worth("Petra: You what?") < memory.worth("Owen: The exam is on 3 May at nine.")
