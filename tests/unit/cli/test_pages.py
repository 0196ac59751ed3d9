"""HTML pages of the command line: whole, inert and correct."""

import re

import pytest
from typer.testing import CliRunner

from ecs_plugins import ContextShaper, EntropicMemory, FakeEmbedder, FakeLanguageModel
from ecs_plugins.cli import app, pages
from ecs_plugins.cli import model as models
from ecs_plugins.shaping import ShapingConfig
from ecs_plugins.shaping.probability import SHIPPED, ProbabilityFit

SCRIPT = "<script>alert(1)</script> & more \u202e than that"


def check_alone(page: str) -> None:
    """Nothing is fetched, and nothing that was said is markup."""
    assert "://" not in page
    assert "<script" not in page
    assert "\u202e" not in page
    assert page.startswith("<!doctype html>")


def test_a_shape_page_colours_sentences_by_their_probability(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(models, "load_model", lambda *_, **__: FakeLanguageModel())
    fit = ProbabilityFit(-1.0, {"utility": 1.0})
    monkeypatch.setitem(SHIPPED, ("fake", "query_likelihood+bm25"), fit)
    notes = tmp_path / "notes.txt"
    html = tmp_path / "page.html"
    question = "When does the ferry leave?"
    notes.write_text(
        f"It rained. The ferry does leave at nine.\n{SCRIPT}\n{question} Ask us.\n", "utf-8"
    )
    command = ["shape", "-q", question, "-p", str(notes), "--html", str(html)]
    command += ["--signal", "query_likelihood+bm25", "--ranker", "bm25"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    page = html.read_text("utf-8")
    check_alone(page)
    shown = re.findall(r'/ ([\d.]+)\)" title="helps with probability ([\d.]+)">([^<]*)<', page)
    helps = {text.strip(): (float(shade), float(value)) for shade, value, text in shown}
    assert max(helps, key=helps.get) == "The ferry does leave at nine."
    assert question not in helps  # a copy of the question is not read
    for shade, value in helps.values():
        assert shade == pytest.approx(0.6 * value, abs=0.01)


def test_sentences_of_a_model_without_a_fit_have_no_colour() -> None:
    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(ranker="bm25"))
    shaped = shaper.shape("When does the ferry leave?", ["It rained.", "The ferry leaves."])
    assert "helps with probability" not in pages.shape_page(shaped, pages.coloured(shaper, shaped))


@pytest.mark.parametrize("passages", [[], ["", "  "]])
def test_a_shape_page_of_nothing_says_so(passages) -> None:
    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(ranker="bm25"))
    shaped = shaper.shape("q?", passages)
    page = pages.shape_page(shaped, pages.coloured(shaper, shaped))
    assert f"0 of {len(passages)} passages kept" in page


def test_a_displaced_message_is_not_shown_as_recent() -> None:
    config = {"sleep_every": 3, "cold_capacity": 2, "hot_capacity": 3}
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(), config=config) as memory:
        memory.add([f"Fact {number} is new." for number in range(20)])
        (space,) = memory.admin.stats().namespaces
        life = pages.life_of(memory, space.namespace)
        assert len(life["hot"]) == space.hot
        assert all(str(memory.explain(each.id)).find("hot tier") > 0 for each in life["hot"])


def test_a_receipt_and_an_explanation_print_in_words() -> None:
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder()) as memory:
        (id,) = memory.add("The boat is blue.")
        assert str(memory.explain(id)).startswith("The boat is blue.\nin the hot tier")
        assert str(memory.delete(id)).startswith("erased 1 messages, 1 hot items")
