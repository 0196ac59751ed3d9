"""Page to play with: contents, refusals, and no scripts."""

import re

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ecs_plugins import (
    ContextShaper,
    EntropicMemory,
    FakeEmbedder,
    FakeLanguageModel,
    ShapingConfig,
)
from ecs_plugins.cli import app
from ecs_plugins.cli.play import MOST_PASSAGES, Played, play_app

HOST = "http://localhost:8082"
SCRIPT = "<script>alert(1)</script>"
PASSAGES = f"The ferry does leave at nine.\n\nIt rained.\n\n{SCRIPT}"
ADA = ("user", "ada")


def shaper() -> ContextShaper:
    return ContextShaper(FakeLanguageModel(), ShapingConfig(ranker="bm25"))


@pytest.fixture
def memory():
    config = {"sleep_every": 3, "cold_capacity": 3, "hot_capacity": 3}
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(), config=config) as opened:
        for number in range(9):
            opened.add(f"Fact {number} is about topic {number % 5}.", namespace=ADA)
        yield opened


@pytest.fixture
def client(memory):
    return TestClient(play_app(Played(shaper, memory)), base_url=HOST)


def check_inert(page: str) -> None:
    """No script runs, and nothing is fetched."""
    assert "<script" not in page
    assert "://" not in page


def test_passages_are_shaped_and_coloured(client) -> None:
    asked = {
        "question": "When does the ferry leave?",
        "passages": PASSAGES,
        "top_k": "1",
    }
    answer = client.post("/", data=asked)
    page = answer.text
    assert answer.status_code == 200
    assert "script-src" not in answer.headers["content-security-policy"]
    check_inert(page)
    assert "1 of 3 passages kept" in page
    assert page.index("The ferry does leave at nine.</div>") < page.index("It rained.</div>")
    assert "&lt;script&gt;" in page


def test_an_answer_is_cited(client) -> None:
    tower = (
        "The company of Gustave Eiffel designed the tower. It was built by that company in 1889."
    )
    asked = {
        "question": "Who built the Eiffel Tower?",
        "passages": f"Tickets for the top cost 28 euros.\n{tower}\nThe Louvre is a museum.",
        "answer": "The company of Gustave Eiffel built it in 1889.",
    }
    page = client.post("/", data=asked).text
    assert "built it in 1889 [1]." in page
    assert "[1] is passage 2." in page
    assert '<span class="tag good">consistent</span>' in page


@pytest.mark.parametrize(
    ("answer", "tag"),
    [
        ("It was built in 1889.", '"tag good">consistent<'),
        ("It was built in 1925.", '"tag bad">conflict<'),
        ("A famous painter drew rivers.", '"tag ">unverified<'),
    ],
)
def test_the_three_words_of_the_check_are_shown(client, answer, tag) -> None:
    tower = "The company of Gustave Eiffel built the tower in 1889."
    asked = {"question": "When was it built?", "passages": tower, "answer": answer}
    assert tag in client.post("/", data=asked).text


def test_an_empty_page_asks_for_passages(client) -> None:
    page = client.get("/").text
    assert "<textarea" in page
    assert "passages kept" not in page


@pytest.mark.parametrize("wrong", ["-1", "many", "١"])
def test_a_size_that_is_none_is_said_on_the_page(client, wrong) -> None:
    answer = client.post("/", data={"question": "q?", "passages": "It rained.", "top_k": wrong})
    assert answer.status_code == 422
    assert "top_k is a whole number" in answer.text


def test_too_many_passages_are_refused_in_words(client) -> None:
    lines = "\n".join(f"Line {number}." for number in range(MOST_PASSAGES + 1))
    answer = client.post("/", data={"question": "q?", "passages": lines})
    assert answer.status_code == 422
    assert "ecs-plugins shape" in answer.text


def test_play_shows_a_memory_without_counting_recalls(client, memory) -> None:
    before = memory.admin.stats().pending
    page = client.get("/memory", params={"question": "Which fact is about topic 1?"}).text
    check_inert(page)
    assert page.count('class="life"') == len(memory.memories(ADA)) + page.count('class="gone"')
    assert page.count('<p class="quiet">sleep ') == len(memory.decisions(ADA)) > 0
    bars = re.findall(r"left: ([\d.]+)%; width: ([\d.]+)%", page)
    assert all(float(left) + float(width) <= 100.1 for left, width in bars)
    assert "score " in page
    assert memory.admin.stats().pending == before
    other = client.get("/memory", params={"namespace": "user / ben"}).text
    assert 'class="life"' not in other


def test_missing_inputs_of_play_are_named() -> None:
    alone = TestClient(play_app(Played(shaper)), base_url=HOST)
    assert "--db agent.db" in alone.get("/memory").text


def test_other_names_and_pages_of_other_origins_are_refused(client) -> None:
    strange = TestClient(client.app, base_url="http://evil.example")
    assert strange.get("/").status_code == 421
    answer = client.post("/", data={}, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403


def test_the_command_opens_a_memory_to_read_and_listens_to_this_machine(
    tmp_path, monkeypatch
) -> None:
    file = tmp_path / "agent.db"
    with EntropicMemory.open(file, embedder=FakeEmbedder()) as opened:
        opened.add("It rained.", namespace=ADA)
    notes = tmp_path / "notes.txt"
    notes.write_text("The ferry does leave at nine.")
    served = []

    def serve(app, host, port):
        client = TestClient(app, base_url=HOST)
        seen = "user / ada" in client.get("/memory").text
        begun = "The ferry does leave at nine.</textarea>" in client.get("/").text
        served.append((host, port, seen, begun))

    monkeypatch.setattr("ecs_plugins.server.running.run", serve)
    command = ["play", "--db", str(file), "--passages", str(notes), "--port", "9"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert served == [("127.0.0.1", 9, True, True)]


def test_a_new_file_is_made_and_its_hot_tier_shown(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)
    monkeypatch.setattr("ecs_plugins.memory.entropic.default_embedder", FakeEmbedder)
    file = tmp_path / "new.db"
    pages = []

    def serve(app, host, port):
        client = TestClient(app, base_url=HOST)
        pages.append(client.get("/memory").text)
        with EntropicMemory.open(file) as memory:
            memory.add("The boat is blue.", namespace=ADA)
        pages.append(client.get("/memory").text)

    monkeypatch.setattr("ecs_plugins.server.running.run", serve)
    result = CliRunner().invoke(app, ["play", "--db", str(file)])
    assert result.exit_code == 0, result.output
    empty, filled = pages
    assert "Nothing is stored here yet" in empty
    assert "Not consolidated yet" in filled
    assert "The boat is blue." in filled
