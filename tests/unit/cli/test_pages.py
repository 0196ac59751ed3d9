"""HTML pages of the command line: whole, inert and correct."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ecs_plugins import ContextShaper, EntropicMemory, FakeEmbedder, FakeLanguageModel
from ecs_plugins.cli import app, pages
from ecs_plugins.cli import model as models
from ecs_plugins.memory.store.items import NewItem
from ecs_plugins.shaping import ShapingConfig
from ecs_plugins.shaping.probability import SHIPPED, ProbabilityFit

SCRIPT = "<script>alert(1)</script> & more \u202e than that"


def check_alone(page: str) -> None:
    """Nothing is fetched, and nothing that was said is markup."""
    assert "://" not in page
    assert "<script" not in page
    assert "\u202e" not in page
    assert page.startswith("<!doctype html>")


def test_a_memory_page_shows_every_life_and_every_decision(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    html = tmp_path / "page.html"
    config = {"sleep_every": 3, "cold_capacity": 3, "hot_capacity": 3}
    with EntropicMemory.open(file, embedder=FakeEmbedder(), config=config) as memory:
        for number in range(24):
            memory.add(f"Fact {number} is about topic {number % 5}.", namespace=("ana",))
        memory.add(SCRIPT, namespace=("<i>ben</i>",), pinned=True)
        memory.items.write([NewItem(("notes", "ana"), "k1", {"text": SCRIPT, "n": 7})])
        texts = [each.text for each in memory.memories(("ana",))]
        decisions = memory.decisions(("ana",))
    command = ["memory", "inspect", "--db", str(file), "--html", str(html)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert html.stat().st_mode & 0o777 == 0o600
    page = html.read_text("utf-8")
    check_alone(page)
    assert "&lt;i&gt;ben" in page
    assert "notes / ana / k1" in page
    assert "&#34;n&#34;: 7" in page
    assert "the highest F" in page  # what F means
    assert all(text in page for text in texts)
    assert page.count('<p class="quiet">sleep ') == len(decisions) > 0
    bars = re.findall(r"left: ([\d.]+)%; width: ([\d.]+)%", page)
    assert all(float(left) + float(width) <= 100.1 for left, width in bars)
    assert 'class="gone"' in page  # something was displaced


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


def test_a_page_of_a_new_memory_shows_the_messages_of_the_hot_tier(tmp_path: Path) -> None:
    with EntropicMemory.open(tmp_path / "m.db", embedder=FakeEmbedder()) as memory:
        memory.add(["The boat is blue.", SCRIPT], namespace=("ana",))
        page = pages.memory_page(memory, [("ana",)])
        check_alone(page)
        assert "The boat is blue." in page
        memory.sleep(("ana",))
        assert "Not consolidated yet" not in pages.memory_page(memory, [("ana",)])


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
