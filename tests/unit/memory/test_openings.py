"""Openings of files: valid files, several openings, readers, forks and processes.

POSIX locks belong to a process and a file: closing any descriptor of the file drops all of them,
and a forked child inherits SQLite's note of the locks without the locks.
"""

import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.engines import restore
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.memory.types import TIERS
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.storage import places
from ecs_plugins.storage.sqlite import Database
from tests.unit.memory.factories import in_child

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
FACT = "Ada lives in Paris."


def opened(path, **options):
    store = StoreConfig(sleep="manual")
    return EntropicMemory.open(path, embedder=FakeEmbedder(), store=store, **options)


@pytest.fixture
def path(db):
    with opened(db) as memory:
        memory.add([FACT, "Bob plays the cello."])
        memory.sleep()
    return db


# Files


NEWER = f"PRAGMA application_id={MEMORY_FILE.application_id}; PRAGMA user_version=999;"
OF_AN_UNPUBLISHED_VERSION = NEWER.replace("999", "10")


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (NEWER, "upgrade ecs-plugins"),
        (OF_AN_UNPUBLISHED_VERSION, "has schema 10, and this package knows schema 1"),
        ("CREATE TABLE theirs (x)", "something else"),
        (b"plain text, long enough to be taken for a header " * 40, "not a database"),
        (b"", "is empty"),
    ],
)
def test_a_file_that_is_no_memory_is_refused(db, content, refused):
    if isinstance(content, bytes):
        db.write_bytes(content)
    else:
        with closing(sqlite3.connect(db)) as connection:
            connection.executescript(content)
    given = db.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StorageError, match=refused):
            Database(db, MEMORY_FILE, read_only=read_only)
    assert db.read_bytes() == given


def test_a_path_that_cannot_be_made_or_that_somebody_else_removes_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="make its directory writable"):
        Database(tmp_path / "file" / "memory.db", MEMORY_FILE)
    monkeypatch.setattr("ecs_plugins.storage.places.make_whole", lambda *_: None)
    with pytest.raises(StorageError, match=r"memory\.db"):
        Database(tmp_path / "memory.db", MEMORY_FILE)


def test_the_files_can_be_read_by_their_owner_only_and_a_closed_one_says_so(path):
    with opened(path) as memory:
        memory.add("Carl has a boat.")
        modes = [stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()]
    assert modes == [0o600] * 4
    with pytest.raises(StorageError, match="closed"):
        memory.messages()


# Readers and backups


WRITES = [
    lambda memory: memory.add("Carl has a boat."),
    lambda memory: memory.sleep(),
    lambda memory: memory.forget(("default",)),
    lambda memory: memory.update(memory.messages()[0].id, text="other"),
    lambda memory: memory.observe(FACT, "Paris"),
    lambda memory: memory.admin.compact(),
    lambda memory: memory.admin.reembed(FakeEmbedder(8)),
]


def test_a_reader_leaves_the_file_as_it_is(path):
    before = path.read_bytes()
    with opened(path, read_only=True) as reader:
        for write in WRITES:
            with pytest.raises(StorageError, match="read"):
                write(reader)
        assert reader.recall(FACT)[0].text == FACT
        kept = reader.memories()[0]
        assert reader.explain(kept.id).versions == tuple(reader.history(kept.id))
        assert reader.admin.verify().ok
        assert reader.admin.stats().pending == 0
    assert path.read_bytes() == before


def test_a_reader_sees_concurrent_additions(path):
    boat = "Carl has a boat."
    with opened(path) as writer, opened(path, read_only=True) as reader:
        writer.add(boat)
        best, *_ = reader.recall(boat)
        assert best.text == boat
        *_, latest = reader.messages()
        writer.delete(latest.id)
        left = [each.text for each in reader.recall(boat)]
        assert boat not in left


def test_a_reader_makes_no_file_and_upgrades_none(path, tmp_path):
    missing = tmp_path / "none.db"
    with pytest.raises(StorageError, match="check the path"):
        opened(missing, read_only=True)
    assert not missing.exists()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 5")
    for read_only in (True, False):
        with pytest.raises(StorageError, match="schema 5"):
            opened(path, read_only=read_only)


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
    mode = copy.stat().st_mode
    names = {each.name for each in tmp_path.iterdir()}
    assert stat.S_IMODE(mode) == 0o600
    assert names == {"copy.db", path.name, f"{path.name}-reserve"}
    with opened(copy, read_only=True) as memory:
        assert memory.admin.verify().ok
        best, *_ = memory.recall(FACT)
        assert best.text == FACT
        (space,) = memory.admin.stats().namespaces
        assert space.since_sleep == 0


def test_a_backup_has_recalls_that_were_not_written_yet_also_without_a_file(tmp_path):
    copy = tmp_path / "copy.db"
    with opened(":memory:") as memory:
        memory.add(FACT)
        memory.recall(FACT)
        memory.admin.backup(copy)
    with opened(copy, read_only=True) as memory:
        best, *_ = memory.recall(FACT)
        assert "recalled 1 times" in best.why


@pytest.mark.parametrize("target", ["memory.db", "memory.db-wal", "other", "other/copy.db"])
def test_a_backup_replaces_no_file_and_leaves_no_piece(path, tmp_path, target):
    other = tmp_path / "other"
    other.write_text("mine")
    with opened(path) as memory:
        memory.add("Carl has a boat.")
        before = files_in(tmp_path)
        with pytest.raises(StorageError, match=r"name a new file|cannot open"):
            memory.admin.backup(tmp_path / target)
        assert files_in(tmp_path) == before
    assert other.read_text() == "mine"


def files_in(folder):
    """The numbers of the files in a folder, by name."""
    return {each.name: each.stat().st_ino for each in folder.iterdir()}


def evidence_in(memory):
    evidence = {}
    with memory._store.reading(("default",)) as (connection, space):
        for tier in TIERS:
            for row in tiers.tier_rows(connection, space.id, tier):
                evidence[row.item.id] = row.item.evidence
    return evidence


def test_why_a_memory_is_one_of_its_own_survives_a_reopening(db):
    config = MemoryConfig(merge_threshold=0.5)
    with opened(db, config=config) as memory:
        memory.add(["The locker code is 4711"] * 2)
        memory.add("The locker code is 4712")
        before = evidence_in(memory)
    reasons = sorted(str(each.unlike) for each in before.values())
    lengths = [each.resultant for each in before.values()]
    assert reasons == ["None", "number"]
    assert max(lengths) == pytest.approx(2.0)
    with opened(db, config=config) as memory:
        assert evidence_in(memory) == before
        recalled = memory.recall("code", threshold=0.0)
        differing = [each for each in recalled if "differs in a number" in each.why]
        assert len(differing) == 1


# Bad days


def killed(action) -> None:
    """Run an action in a child that dies in it."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(1)
    os.waitpid(child, 0)


def dies(*_, **__) -> None:
    os._exit(9)


@needs_fork
def test_a_first_opening_that_is_killed_leaves_nothing_in_the_way_of_the_next(db, monkeypatch):
    monkeypatch.setattr("ecs_plugins.storage.places.publish", dies)
    killed(lambda: opened(db))
    monkeypatch.undo()
    assert not db.exists()
    with opened(db) as memory:
        assert memory.add(FACT)


@pytest.mark.parametrize("then", ["nothing", "another file"])
def test_a_file_that_is_deleted_while_it_is_open_takes_nothing_more(path, tmp_path, then):
    with opened(path) as memory:
        memory.admin.backup(tmp_path / "copy.db")
        path.unlink()
        if then == "another file":
            (tmp_path / "copy.db").rename(path)
        with pytest.raises(StorageError, match="deleted or replaced while it was open"):
            memory.add("lost")
        with pytest.raises(StorageError, match="deleted or replaced while it was open"):
            memory.recall(FACT)


@needs_fork
def test_a_copy_over_a_killed_memory_is_refused_and_restored_as_it_was(path, tmp_path):
    copy = tmp_path / "copy.db"
    with opened(path) as memory:
        memory.admin.backup(copy)
        said = memory.messages()

    def say_more():
        opened(path).add([f"Carl has {number} boats." for number in range(50)])
        os._exit(9)

    killed(say_more)
    assert path.with_name("memory.db-wal").stat().st_size
    shutil.copyfile(copy, path)
    with pytest.raises(StorageError, match="ecs-plugins memory restore"):
        opened(path)
    restore(copy, path)
    with opened(path) as memory:
        assert (memory.messages(), memory.admin.verify().problems) == (said, ())


def test_a_restore_is_refused_while_somebody_has_the_file_open_or_the_copy_is_none(path, tmp_path):
    copy = tmp_path / "copy.db"
    with opened(path) as memory:
        memory.admin.backup(copy)
        with pytest.raises(StorageError, match="is open"):
            restore(copy, path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT count(*) FROM meta").fetchone()
        with pytest.raises(StorageError, match="open elsewhere"):
            restore(copy, path)
    with pytest.raises(StorageError, match="check the path"):
        restore(tmp_path / "none.db", path)


@needs_fork
@pytest.mark.parametrize("then", ["delete", "back up"])
def test_the_copy_of_a_killed_backup_is_deleted_with_the_next_use_of_its_folder(
    path, tmp_path, monkeypatch, then
):
    folder = tmp_path if then == "delete" else tmp_path / "elsewhere"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr("ecs_plugins.storage.places.publish", dies)
    killed(lambda: opened(path).admin.backup(folder / "copy.db"))
    monkeypatch.undo()
    assert [*folder.glob(".copy.db.*.ecs-copy")]
    with opened(path) as memory:
        if then == "delete":
            memory.delete(memory.messages()[0].id)
        else:
            memory.admin.backup(folder / "copy.db")
    assert [*folder.glob(".*")] == []


@needs_fork
def test_a_copy_that_another_process_writes_is_not_deleted(path, tmp_path):
    def copies(target):
        with places.private_copy(target):
            places.delete_left_copies(target.parent)
            return in_child(lambda: count_after_cleaning(target.parent))

    def count_after_cleaning(folder):
        places.delete_left_copies(folder)
        return len([*folder.glob(".*.ecs-copy")])

    assert copies(tmp_path / "copy.db") == "1"
    assert count_after_cleaning(tmp_path) == 0


@pytest.mark.parametrize("name", ["memory.db-copy-x", ".memory.db.0123456789abcdef.ecs-copy"])
def test_no_path_in_a_file_next_to_a_memory_is_followed(path, tmp_path, name):
    folder = tmp_path / "another"
    folder.mkdir()
    victim = folder / "precious"
    victim.write_text("mine")
    (tmp_path / name).write_text(f"999999\n{victim}")
    (tmp_path / ".link.fedcba9876543210.ecs-copy").symlink_to(victim)
    with opened(path) as memory:
        memory.delete(memory.messages()[0].id)
        memory.admin.compact()
    assert victim.read_text() == "mine"


def test_an_opening_changes_the_mode_of_no_file(path, tmp_path):
    other = tmp_path / "nginx.conf"
    other.write_text("server {}")
    for file in (other, path):
        file.chmod(0o644)
    with pytest.raises(StorageError):
        opened(other)
    opened(path).close()
    modes = [stat.S_IMODE(file.stat().st_mode) for file in (other, path)]
    assert modes == [0o644, 0o644]


# Several openings


def locks_on(path: Path) -> int:
    """Count the POSIX locks of this process on a file."""
    inode = path.stat().st_ino
    mine = str(os.getpid())
    held = 0
    for line in Path("/proc/locks").read_text().splitlines():
        row = line.split()
        is_waiting = row[1] == "->"
        if not is_waiting and row[4] == mine and row[5].endswith(f":{inode}"):
            held += 1
    return held


def import_itself(memory):
    with pytest.raises(StorageError, match="that is open"):
        memory.admin.import_(memory.path)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs the kernel's table of locks")
@pytest.mark.parametrize(
    "touch",
    [
        lambda memory: opened(memory.path).close(),
        lambda memory: EntropicMemory.open(memory.path, read_only=True).close(),
        lambda memory: memory.admin.export(f"{memory.path}.jsonl"),
        import_itself,
        lambda memory: memory.admin.verify(),
        lambda memory: memory.admin.compact(),
        lambda memory: memory.admin.backup(f"{memory.path}.copy"),
    ],
)
def test_nothing_that_a_process_does_drops_its_locks(path, touch):
    files = Path(f"{path}-shm"), path
    with opened(path) as memory:
        memory.add(FACT)
        before = [locks_on(file) for file in files]
        assert before[0] > 0
        touch(memory)
        assert [locks_on(file) for file in files] == before


@pytest.mark.parametrize("file", ["memory.db", "memory.db-wal", "other-name"])
def test_an_open_memory_cannot_be_overwritten_by_an_export(path, tmp_path, file):
    with opened(path) as memory:
        memory.add(FACT)
        (tmp_path / "other-name").hardlink_to(path)
        with pytest.raises(StorageError, match="that is open"):
            memory.admin.export(tmp_path / file)
        assert memory.admin.verify().problems == ()


@needs_fork
def test_writes_of_a_child_survive_its_parents_close(path):
    memory = opened(path)
    child_is_ready, ready = os.pipe()
    child_may_go, go = os.pipe()
    child = os.fork()
    if child == 0:
        memory.recall("parent")  # connects while the parent is still connected
        os.write(ready, b"x")
        os.read(child_may_go, 1)
        for number in range(20):
            memory.add(f"The child said {number}.")
        os._exit(0)
    memory.recall("parent")
    os.read(child_is_ready, 1)
    memory.close()
    os.write(go, b"x")
    os.waitpid(child, 0)
    with opened(path) as again:
        texts = [message.text for message in again.messages(limit=None)]
    assert texts[2:] == [f"The child said {n}." for n in range(20)]


@needs_fork
def test_a_file_that_is_in_use_during_a_fork_is_closed_to_the_child(path, monkeypatch):
    monkeypatch.setattr("ecs_plugins.storage.sqlite._FORK_WAIT", 0.05)
    inside = threading.Event()
    leave = threading.Event()
    with opened(path) as memory:

        def hold() -> None:
            with memory._store.database.read():
                inside.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait()
        refused = in_child(lambda: memory.add("lost?"))
        refused_again = in_child(lambda: opened(path).add("lost?"))
        leave.set()
        thread.join()
        assert refused.startswith("StorageError")
        assert "spawn" in refused
        assert refused_again.startswith("StorageError")
        said = in_child(lambda: memory.add("kept") and "added")
        assert said == "added"
        *_, latest = memory.messages()
        assert latest.text == "kept"


@needs_fork
def test_a_memory_in_memory_is_copied_into_the_child():
    with opened(":memory:") as memory:
        memory.add(FACT)
        assert in_child(lambda: memory.add("Bob.") and len(memory.messages())) == "2"
        assert len(memory.messages()) == 1


@pytest.mark.parametrize(
    "handed_out",
    [
        lambda memory, space: memory.recall("tea", namespace=space, threshold=-1)[0],
        lambda memory, space: memory.get(memory.messages(space)[0].id),
        lambda memory, space: memory.messages(space)[0],
        lambda memory, space: memory.memories(space)[0],
    ],
)
def test_metadata_that_is_handed_out_is_nobody_elses(path, handed_out):
    ada = ("ada",)
    bob = ("bob",)
    with opened(path) as memory:
        for tenant in (ada, bob):
            tags = {"tags": ["a", "b"]}
            memory.add("somebody likes tea", namespace=tenant, metadata=tags, pinned=True)
        own = handed_out(memory, ada)
        own.metadata["tags"].append("secret of ada")
        assert handed_out(memory, bob).metadata == {"tags": ["a", "b"]}
        memory.sleep(bob)
        assert handed_out(memory, ada).metadata == {"tags": ["a", "b"]}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_refused_has_no_new_neighbour(tmp_path, read_only):
    file = tmp_path / "settings.json"
    file.write_text("{}")
    with pytest.raises(StorageError):
        opened(file, read_only=read_only)
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
