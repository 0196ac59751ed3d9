import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ecs_plugins.cli import app
from ecs_plugins.errors import EcsPluginsError, InvalidInputError, StorageError
from ecs_plugins.ranking import embedder as embedders
from ecs_plugins.ranking.embedder import FakeEmbedder


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a memory command on the test's file; returns what it printed."""
    monkeypatch.setattr(embedders, "default_embedder", lambda: FakeEmbedder(32))

    def run_(
        command: str,
        *arguments: str,
        stdin: str | bytes = "",
        file: str = "m.db",
    ):
        path = str(tmp_path / file)
        line = ["memory", command, "--db", path, *arguments]
        result = CliRunner().invoke(app, line, input=stdin)
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            raise error
        assert result.exit_code == 0, result.output
        if "--json" in arguments:
            return json.loads(result.stdout)
        return result.stdout

    return run_


@pytest.mark.slow
def test_a_memory_can_be_used_from_the_command_line(run, tmp_path):
    ids = run("add", "the boat is blue", "the boat is blue", "--json")
    assert len(ids) == 2
    once = [run("add", "--key", "a", "the boat is blue", "--json", file="b.db") for _ in "ab"]
    assert once[0] == once[1]
    assert "the boat is blue" in run("recall", "the boat is blue")
    assert "nothing" in run("sleep", "--due")
    assert run("sleep", "--json")[0]["counts"] == {"insert": 1}
    (found,) = run("recall", "the boat is blue", "--json")
    assert found["tier"] == "cold"
    assert found["support"] == 2
    assert run("decisions", "--json")[0]["decision"]["kind"] == "insert"
    assert "insert" in run("decisions", "--item", found["id"])
    assert "2 messages, 0 hot, 1 cold" in run("stats")
    assert run("verify", "--json")["ok"]
    out = str(tmp_path / "out.jsonl")
    run("export", out)
    _, *exported, _ = Path(out).read_text().splitlines()
    _, *printed, _ = run("export", "-").splitlines()
    assert printed == exported
    imported = run("import", out, "--json", file="copy.db")
    assert imported["tiers"] == 1
    receipt = run("forget", found["id"], "--json")
    assert receipt["memories_erased"] == [found["id"]]
    assert "erased 2 messages" in run("forget", "-n", "default")


def test_a_memory_tells_its_history_and_can_be_backed_up(run, tmp_path):
    first, again = run("add", "the boat is blue", "the boat is blue", "--json")
    run("sleep", "--all", "--json")
    (found,) = run("recall", "the boat", "--json")
    kept = found["id"]
    assert "version 1, live, support 2: the boat is blue" in run("history", kept)
    (version,) = run("history", kept, "--json")
    assert version["provenance"] == [first, again]
    assert "no memory of this id" in run("history", first)
    assert "free energy now" in run("explain", kept)
    assert run("explain", kept, "--json")["rank"] == 1
    copy = tmp_path / "copy.db"
    assert run("backup", str(copy), "--json") == {"file": str(copy)}
    _, *of_copy = run("stats", file="copy.db").splitlines()
    _, *of_original = run("stats").splitlines()
    assert of_copy == of_original


def test_messages_can_come_by_standard_input(run):
    run("add", "-n", "a", "-n", "b", "--pinned", stdin="one thing\n\nanother matter\n")
    (stats,) = run("stats", "--json")["namespaces"]
    assert stats["namespace"] == ["a", "b"]
    assert stats["pinned"] == 2


def test_a_recall_that_finds_nothing_says_what_to_do(run):
    run("add", "the boat is blue")
    assert "--threshold" in run("recall", "an unrelated matter", "--threshold", "1")


def test_forgetting_needs_to_be_told_what(run):
    run("add", "something")
    with pytest.raises(InvalidInputError, match="name either"):
        run("forget")
    filtered = ("forget", "-n", "default", "--filter")
    receipt = run(*filtered, '{"a": 1}', "--json")
    assert receipt["messages"] == []
    with pytest.raises(InvalidInputError, match="not JSON"):
        run(*filtered, "{")


def test_settings_come_from_a_file(run, tmp_path):
    settings = tmp_path / "config.json"
    settings.write_text('{"sleep_every": 2}')
    run("add", "the boat is blue", "the boat is blue", "--config", str(settings))
    (stats,) = run("stats", "--json")["namespaces"]
    assert stats["sleeps"] == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read .*config.json: .*; check the path"),
        ("{", "config.json is not JSON"),
        ("[1]", "config.json is not a JSON object"),
        ('{"hot_capacity": "many"}', "hot_capacity should be a valid integer, got 'many'"),
    ],
)
def test_settings_that_cannot_be_read_are_refused_by_name(run, tmp_path, content, said):
    settings = tmp_path / "config.json"
    if content is not None:
        settings.write_text(content)
    with pytest.raises(EcsPluginsError, match=said):
        run("add", "the boat", "--config", str(settings))
    assert not (tmp_path / "m.db").exists()


def test_asking_a_memory_that_is_not_there_makes_none(run, tmp_path):
    for command in ("recall boat", "stats", "verify", "sleep", "explain x"):
        with pytest.raises(StorageError, match="no memory file"):
            run(*command.split())
    with pytest.raises(StorageError, match="there is no export"):
        run("import", str(tmp_path / "nothing.jsonl"))
    assert list(tmp_path.iterdir()) == []


def test_standard_input_that_is_not_utf_8_is_refused_with_its_line(run, tmp_path):
    with pytest.raises(InvalidInputError, match="standard input, line 2: not UTF-8"):
        run("add", stdin="one thing\ncaf\xe9\n".encode("latin-1"))
    assert not (tmp_path / "m.db").exists()


def test_a_damaged_file_is_reported_by_its_exit_status(run, tmp_path):
    import sqlite3

    run("add", "the boat is blue")
    connection = sqlite3.connect(tmp_path / "m.db")
    connection.execute("UPDATE messages SET text = 'the boat is red'")
    connection.commit()
    connection.close()
    command = ["memory", "verify", "--db", str(tmp_path / "m.db")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "does not match its checksum" in result.stdout


def test_no_label_and_no_text_reaches_the_terminal_with_control_characters(run):
    evil = "x\x1b[2J\x9b31m\x7f\u202e"
    run("add", "-n", evil, f"text\n{evil}")
    (line,) = run("recall", "-n", evil, "text").splitlines()
    assert "text x" in line
    for shown in (line, *run("stats").splitlines()):
        assert shown.isprintable()
    (stats,) = run("stats", "--json")["namespaces"]
    assert stats["namespace"] == [evil]
    assert run("recall", "-n", evil, "text", "--json")
