"""The demo with a fake model and a fake embedder; its conclusions are those of its figures."""

import json
import sys

import pytest

from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from examples.demo import passages, router
from examples.demo.__main__ import compared, main
from examples.demo.corpus import load_corpus

CORPUS = load_corpus()


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run the demo and return its output, figures and page."""
    monkeypatch.setattr("ecs_plugins.cli.model.load_model", lambda name: FakeLanguageModel())
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)

    def run(*arguments, status=0):
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", ["demo", "--out", str(out), *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        shown = capsys.readouterr()
        assert int(caught.value.code or 0) == status, shown
        if status:
            return shown.err
        figures = json.loads((out / "demo.json").read_text(encoding="utf-8"))
        return shown.out, figures, (out / "demo.html").read_text(encoding="utf-8")

    return run


def test_every_question_has_its_sources_and_its_words_in_the_corpus() -> None:
    assert len(CORPUS.ordinary) == 20
    assert {len(asked.sources) for asked in CORPUS.ordinary} == {1}
    assert {len(asked.sources) for asked in CORPUS.multi_hop} == {2}
    for asked in CORPUS.questions:
        assert asked.sources <= CORPUS.passages.keys(), asked
    for question in CORPUS.chat_questions:
        assert sum(question.answered_by(turn.said) for turn in CORPUS.chat) == 1, question
        assert not question.answered_by(question.question)


def test_a_seed_draws_an_order_of_the_same_passages() -> None:
    first, again, other = load_corpus(1), load_corpus(1), load_corpus(2)
    assert list(first.passages) == list(again.passages) != list(other.passages)
    assert first.passages == other.passages


@pytest.mark.parametrize(
    ("own", "word"), [(3, "is better than"), (2, "is level with"), (1, "LOSES to")]
)
def test_a_conclusion_names_the_better_way(own, word) -> None:
    said = compared({"ECS": own, "BM25": 2, "embeddings": 1}, "ECS", 4)
    assert f"{word} BM25 (2)" in said


def ways() -> list[passages.Way]:
    """Full context, and a way that finds what half of the questions need."""
    titles = list(CORPUS.passages)
    asked = CORPUS.questions
    some = [list(each.sources) if n % 2 else [] for n, each in enumerate(asked)]
    return [
        passages.Way(passages.EVERYTHING, [titles] * len(asked), sent=1000.0),
        passages.Way(passages.EMBEDDINGS, some, sent=100.0, once=1000.0),
    ]


def test_the_router_meets_every_target_at_a_cost_between_the_ways(monkeypatch) -> None:
    monkeypatch.setattr(router, "USUAL", 0.5)
    routed = router.run(CORPUS, ways())
    cost = {each.name: each.cost for each in routed.totals}
    missed = {each.name: each.missed for each in routed.totals}
    best = cost["all numbers known beforehand"]
    assert best <= cost["the router"] < cost["always full_context"]
    assert missed["the router"] == missed["always full_context"] == 0
    assert missed["always embeddings"] == sum(count // 4 for count in router.TEXTS)


@pytest.mark.slow
def test_the_figures_of_all_seeds_are_equal_and_stand_on_the_page(run) -> None:
    out, found, page = run("--seed", "3")
    _, other, _ = run("--seed", "4")
    for table in found["tables"]:
        assert table["conclusion"] in page.replace("&#39;", "'")
        assert all(cell in page for row in table["rows"] for cell in row)
        assert table["conclusion"][:30] in out
    shaping, memory = found["tables"][:2]
    assert [row[0] for row in shaping["rows"]][-1] == passages.ECS
    assert memory["rows"] == other["tables"][1]["rows"]
    assert "<script" not in page


def test_a_folder_that_cannot_be_made_is_refused(run, tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    assert "file" in run("--out", str(tmp_path / "file" / "below"), status=1)
