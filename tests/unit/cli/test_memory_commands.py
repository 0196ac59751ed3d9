import json
import os
import sqlite3

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict
from typer.testing import CliRunner

from ecs_plugins.cli import app
from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.types import DEFAULT_NAMESPACE
from ecs_plugins.ranking import embedder as embedders
from ecs_plugins.ranking.embedder import FakeEmbedder


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a memory command on the test's file and return its output."""
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


@pytest.fixture
def add(tmp_path):
    """Adds messages to the test's file; returns their ids."""

    def add_(*texts: str, file: str = "m.db", **arguments) -> list[str]:
        with EntropicMemory.open(tmp_path / file, embedder=FakeEmbedder(32)) as memory:
            ids = memory.add(list(texts), **arguments)
            memory.sleep(arguments.get("namespace", DEFAULT_NAMESPACE))
        return ids

    return add_


@pytest.mark.slow
def test_a_memory_is_searched_moved_and_erased(run, add, tmp_path):
    add("the boat is blue", "the boat is blue")
    assert "the boat is blue" in run("recall", "the boat is blue")
    (found,) = run("recall", "the boat is blue", "--json")
    assert found["tier"] == "cold"
    assert found["support"] == 2
    assert "2 messages, 0 hot, 1 cold" in run("inspect")
    assert run("verify", "--json")["ok"]
    out = str(tmp_path / "out.jsonl")
    run("export", out)
    imported = run("import", out, "--json", file="copy.db")
    assert imported["tiers"] == 1
    receipt = run("forget", found["id"], "--json")
    assert receipt["memories_erased"] == [found["id"]]
    assert "erased 2 messages" in run("forget", "-n", "default")


def test_inspect_explains_an_item(run, add):
    add("the boat is blue")
    (found,) = run("recall", "the boat", "--json")
    assert "free energy now" in run("inspect", found["id"])
    assert run("inspect", found["id"], "--json")["rank"] == 1


def test_a_backup_holds_the_same_and_can_be_restored(run, add, tmp_path):
    add("the boat is blue")
    copy = tmp_path / "copy.db"
    assert str(copy) in run("backup", str(copy))
    _, *of_copy = run("inspect", file="copy.db").splitlines()
    _, *of_original = run("inspect").splitlines()
    assert of_copy == of_original
    add("the boat sank")
    run("restore", str(copy))
    assert run("inspect").splitlines()[1:] == of_original


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_an_export_writes_through_a_link_and_into_a_pipe(run, add, tmp_path, kind):
    add("the boat is blue")
    out, read = tmp_path / "out", tmp_path / "read"
    if kind == "link":
        read.touch()
        out.symlink_to(read.name)
        run("export", str(out))
        text = read.read_text("utf-8")
    else:
        os.mkfifo(out)
        reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
        run("export", str(out))
        text = os.read(reader, 1 << 16).decode()
        os.close(reader)
    assert "the boat is blue" in text
    assert out.is_symlink() or out.is_fifo()


SAID = 1_735_689_600.0
CHATS = {
    "openai messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My boat is blue.", "created_at": SAID},
        {"role": "assistant", "content": [{"type": "text", "text": "Noted."}], "created_at": SAID},
        {"role": "tool", "content": "blue", "tool_call_id": "c"},
    ],
    "chatgpt export": [
        {
            "title": "Boat",
            "create_time": SAID,
            "current_node": "c",
            "mapping": {
                "a": {"message": None, "parent": None, "children": ["b"]},
                "b": {
                    "message": {
                        "author": {"role": "user"},
                        "create_time": SAID,
                        "content": {"content_type": "text", "parts": ["My boat is blue."]},
                    },
                    "parent": "a",
                    "children": ["x", "c"],
                },
                "x": {
                    "message": {
                        "author": {"role": "assistant"},
                        "content": {"content_type": "text", "parts": ["Rejected."]},
                    },
                    "parent": "b",
                    "children": [],
                },
                "c": {
                    "message": {
                        "author": {"role": "assistant"},
                        "create_time": None,
                        "content": {"content_type": "text", "parts": ["Noted."]},
                    },
                    "parent": "b",
                    "children": [],
                },
            },
        }
    ],
    "langchain dumpd": [
        dumpd(HumanMessage("My boat is blue.", additional_kwargs={"timestamp": SAID * 1000})),
        dumpd(AIMessage("Noted.", response_metadata={"created_at": "2025-01-01T00:00:00Z"})),
    ],
    "langchain messages_to_dict": messages_to_dict(
        [
            HumanMessage("My boat is blue.", additional_kwargs={"created_at": "2025-01-01"}),
            AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c"}]),
            AIMessage("Noted.", additional_kwargs={"created_at": "2025-01-01T01:00:00+01:00"}),
        ]
    ),
}


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
@pytest.mark.parametrize("as_lines", [False, True])
def test_import_reads_chats_with_their_times(run, tmp_path, chat, as_lines):
    file = tmp_path / "chat.json"
    records = chat if isinstance(chat, list) else [chat]
    text = "\n".join(map(json.dumps, records)) if as_lines else json.dumps(chat)
    file.write_text(text)
    for _ in "ab":  # read twice, it is stored once
        run("import", str(file), "-n", "ana", "--json")
    with EntropicMemory.open(tmp_path / "m.db", embedder=FakeEmbedder(32)) as memory:
        messages = memory.messages(("ana",))
    assert [(each.metadata["role"], each.text) for each in messages] == [
        ("user", "My boat is blue."),
        ("assistant", "Noted."),
    ]
    assert [each.created for each in messages] == pytest.approx([SAID, SAID], abs=1)


@pytest.mark.parametrize("text", ["{", "[1]", '{"text": "no role"}', '{"role": "user"}', "no json"])
def test_import_refuses_a_file_that_holds_no_messages(run, tmp_path, text):
    file = tmp_path / "chat.json"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=r"chat\.json"):
        run("import", str(file))
    assert not (tmp_path / "m.db").exists()


def test_an_empty_recall_gives_advice(run, add):
    add("the boat is blue")
    assert "--threshold" in run("recall", "an unrelated matter", "--threshold", "1")


def test_forgetting_needs_to_be_told_what(run, add):
    add("something")
    with pytest.raises(InvalidInputError, match="name either"):
        run("forget")


def test_asking_a_memory_that_is_not_there_makes_none(run, tmp_path):
    for command in ("recall boat", "inspect", "verify", "forget x", "inspect x"):
        with pytest.raises(StorageError, match="no memory file"):
            run(*command.split())
    with pytest.raises(StorageError, match="there is no file"):
        run("import", str(tmp_path / "nothing.jsonl"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_reported_by_its_exit_status(add, tmp_path):
    add("the boat is blue")
    connection = sqlite3.connect(tmp_path / "m.db")
    connection.execute("UPDATE messages SET text = 'the boat is red'")
    connection.commit()
    connection.close()
    command = ["memory", "verify", "--db", str(tmp_path / "m.db")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "does not match its checksum" in result.stdout


def test_no_label_and_no_text_reaches_the_terminal_with_control_characters(run, add):
    evil = "x\x1b[2J\x9b31m\x7f\u202e"
    add(f"text\n{evil}", namespace=(evil,))
    (line,) = run("recall", "-n", evil, "text").splitlines()
    assert "text x" in line
    for shown in (line, *run("inspect").splitlines()):
        assert shown.isprintable()
    (stats,) = run("inspect", "--json")["namespaces"]
    assert stats["namespace"] == [evil]
    assert run("recall", "-n", evil, "text", "--json")
