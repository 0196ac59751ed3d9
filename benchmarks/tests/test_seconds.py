"""Benchmark of seconds with a fake model: its passages and output."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.commands import seconds
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

LONG = " ".join(f"word{number}" for number in range(100))


class Timed(FakeLanguageModel):
    """Fake with the attributes of a loaded model."""

    placement = "nowhere"

    def clear_cache(self) -> None:
        """Nothing is kept."""


def squad(path, paragraphs: int):
    """Three articles; every paragraph of them has a question, one is too short."""
    data = []
    for article in range(3):
        texts = [f"Article {article}, number {number}. {LONG}" for number in range(paragraphs)]
        asked = [{"context": text, "qas": [{"question": text[:20]}]} for text in (*texts, "Short.")]
        data.append({"paragraphs": asked})
    path.write_text(json.dumps({"data": data}))
    return path


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr("ecs_plugins.lm.LocalLM.bundled", lambda **_: Timed())
    monkeypatch.setattr(seconds, "default_embedder", FakeEmbedder)
    monkeypatch.setattr(seconds, "SIZES", (2, 4))
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)

    def run(file, *options):
        return CliRunner().invoke(app, ["seconds", "--data", str(file), *options])

    return run


def test_each_way_is_timed_at_each_size(run, tmp_path) -> None:
    out = tmp_path / "seconds.json"
    result = run(squad(tmp_path / "squad.json", 4), "--repeats", "2", "--out", str(out))
    assert result.exit_code == 0, result.output
    written = json.loads(out.read_text())
    assert list(written) == list(seconds.WAYS)
    assert all(list(sizes) == ["2", "4"] for sizes in written.values())


def test_passages_hold_both_questions_and_nothing_twice(tmp_path) -> None:
    file = squad(tmp_path / "squad.json", 4)
    for (first, later), passages in seconds._cases(str(file), Timed(), 4, 2):
        assert len(set(passages)) == len(passages) == 4
        assert passages[0].startswith(first)
        assert passages[1].startswith(later)


def test_too_little_text_is_refused(run, tmp_path) -> None:
    result = run(squad(tmp_path / "squad.json", 4), "--repeats", "3")
    assert result.exit_code != 0
    assert "too few paragraphs" in str(result.exception)
