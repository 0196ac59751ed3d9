"""The router's part of the demo, with a fake model and a fake embedder, and with the real ones."""

import io

import pytest
from rich.console import Console

from ecs_plugins.errors import MissingExtraError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from examples.demo import router
from examples.demo.context import Demo
from examples.demo.data import load_data


def stage(tmp_path, model, embedder):
    console = Console(file=io.StringIO(), width=120)
    return Demo(console, load_data(), model, embedder, tmp_path, 2)


def test_what_was_spent_stands_beside_the_forecast(tmp_path, monkeypatch):
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)
    demo = stage(tmp_path, FakeLanguageModel(), FakeEmbedder())
    router.run(demo)
    chosen = demo.results["router"]["chosen"]
    assert list(chosen) == ["1", "10", "100"]
    for reuse, item in chosen.items():
        stage1, stage2 = item["expected"]
        assert stage2 + stage1 / int(reuse) <= router.BUDGET
        assert item["spent"][0] == stage1
        assert item["spent"][1] > 0
    assert "stage 2: forecast" in demo.console.file.getvalue()


def test_full_context_holds_every_answer(tmp_path, monkeypatch):
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)
    demo = stage(tmp_path, FakeLanguageModel(), FakeEmbedder())
    _, questions = router._questions(demo)
    assert router.measure(demo, questions).get("full_context").f1 == 1.0


def test_without_an_embedder_it_says_what_to_install(tmp_path):
    with pytest.raises(MissingExtraError, match="offline"):
        router.run(stage(tmp_path, FakeLanguageModel(), None))


@pytest.mark.model
def test_other_chains_are_chosen_for_1_10_and_100_queries(tmp_path, bundled_lm, embedder):
    demo = stage(tmp_path, bundled_lm, embedder)
    _, questions = router._questions(demo)
    frontier = router.measure(demo, questions)
    chosen = {n: frontier.decide(reuse=n, budget=router.BUDGET).strategy for n in router.REUSES}
    assert chosen == {1: "bm25", 10: "sentence_index", 100: "document_index"}
