"""A reader writes nothing and works beside a writer; a backup is a whole file of its own."""

import sqlite3
import stat

import pytest

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.memory import EntropicMemory, StoreConfig
from ecs_plugins.ranking.embedder import FakeEmbedder

FACT = "Ada lives in Paris."


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.db"
    with opened(path) as memory:
        memory.add([FACT, "Bob plays the cello."])
        memory.sleep()
    return path


def opened(path, **options):
    store = StoreConfig(sleep="manual")
    return EntropicMemory.open(path, embedder=FakeEmbedder(), store=store, **options)


def test_a_reader_leaves_the_file_as_it_is(path):
    before = path.read_bytes()
    with opened(path, read_only=True) as reader:
        assert reader.recall(FACT)[0].text == FACT
        kept = reader.memories()[0]
        assert reader.explain(kept.id).versions == tuple(reader.history(kept.id))
        assert reader.admin.verify().ok
        assert reader.admin.stats().pending == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "write",
    [
        lambda memory: memory.add("Carl has a boat."),
        lambda memory: memory.sleep(),
        lambda memory: memory.forget(("default",)),
        lambda memory: memory.update(memory.messages()[0].id, text="other"),
        lambda memory: memory.observe(FACT, "Paris"),
        lambda memory: memory.admin.compact(),
        lambda memory: memory.admin.reembed(FakeEmbedder(8)),
    ],
    ids=["add", "sleep", "forget", "update", "observe", "compact", "reembed"],
)
def test_what_would_write_is_refused_to_a_reader(path, write):
    before = path.read_bytes()
    with opened(path, read_only=True) as reader, pytest.raises(StorageError, match="read"):
        write(reader)
    assert path.read_bytes() == before


def test_a_reader_sees_what_a_writer_adds_meanwhile(path):
    with opened(path) as writer, opened(path, read_only=True) as reader:
        writer.add("Carl has a boat.")
        assert reader.recall("Carl has a boat.")[0].text == "Carl has a boat."
        writer.delete(reader.messages()[-1].id)
        assert "Carl has a boat." not in {each.text for each in reader.recall("Carl has a boat.")}


def test_a_reader_makes_no_file_and_upgrades_none(path, tmp_path):
    with pytest.raises(StorageError, match="check the path"):
        opened(tmp_path / "none.db", read_only=True)
    assert not (tmp_path / "none.db").exists()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 5")
    with pytest.raises(StorageError, match="schema 5"):
        opened(path, read_only=True)


def test_a_reader_needs_no_embedder_until_it_embeds(path):
    with EntropicMemory.open(path, read_only=True) as reader:
        assert len(reader.messages()) == 2
        with pytest.raises(ConfigurationError, match="fake-384"):
            reader.recall(FACT)
    with pytest.raises(ConfigurationError, match="fake-384"):
        EntropicMemory.open(path, embedder=FakeEmbedder(8), read_only=True)


def test_a_backup_is_whole_and_private_and_taken_while_others_write(path, tmp_path):
    copy = tmp_path / "copy.db"
    with opened(path) as writer, writer._store.database.write() as connection:
        connection.execute("UPDATE namespaces SET since_sleep = 77")
        writer.admin.backup(copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {"copy.db", "m.db"}
    with opened(copy, read_only=True) as memory:
        assert memory.admin.verify().ok
        assert memory.recall(FACT)[0].text == FACT
        assert memory.admin.stats().namespaces[0].since_sleep == 0


def test_a_backup_has_recalls_that_were_not_written_yet_also_without_a_file(tmp_path):
    with opened(":memory:") as memory:
        memory.add(FACT)
        memory.recall(FACT)
        memory.admin.backup(tmp_path / "copy.db")
    with opened(tmp_path / "copy.db", read_only=True) as copy:
        assert "recalled 1 times" in copy.recall(FACT)[0].why


@pytest.mark.parametrize("target", ["m.db", "m.db-wal", "other", "other/copy.db"])
def test_a_backup_replaces_no_file_and_leaves_no_piece(path, tmp_path, target):
    (tmp_path / "other").write_text("mine")
    with opened(path) as memory:
        memory.add("Carl has a boat.")
        before = {each.name: each.stat().st_ino for each in tmp_path.iterdir()}
        with pytest.raises(StorageError, match=r"name a new file|cannot open"):
            memory.admin.backup(tmp_path / target)
        assert {each.name: each.stat().st_ino for each in tmp_path.iterdir()} == before
        memory.add("Dora has a kite.")
    assert (tmp_path / "other").read_text() == "mine"
