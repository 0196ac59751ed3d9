"""One file opened several times in a process, before and after a fork, and by several processes.

POSIX locks belong to a process and a file: closing any descriptor of the file drops all of them,
and a forked child inherits SQLite's note of the locks without the locks.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ecs_plugins.errors import StorageError
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def locks_on(path: Path) -> int:
    """How many POSIX locks this process holds on a file, by the kernel's table."""
    inode, mine = path.stat().st_ino, str(os.getpid())
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(row[4] == mine and row[5].endswith(f":{inode}") for row in lines if row[1] != "->")


def open_file(path: Path) -> EntropicMemory:
    return EntropicMemory.open(path, embedder=FakeEmbedder(16))


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs the kernel's table of locks")
@pytest.mark.parametrize(
    "touch", ["open", "read", "export", "import", "verify", "compact", "backup"]
)
def test_nothing_that_a_process_does_drops_its_locks(tmp_path, touch):
    path = tmp_path / "memory.db"
    with open_file(path) as memory:
        memory.add(["Ada lives in Paris.", "Bob lives in Rome."])
        before = locks_on(Path(f"{path}-shm")), locks_on(path)
        assert before[0] > 0
        if touch == "open":
            open_file(path).close()
        elif touch == "read":
            EntropicMemory.open(path, read_only=True).close()
        elif touch == "export":
            memory.admin.export(tmp_path / "out.jsonl")
        elif touch == "import":
            with pytest.raises(StorageError, match="that is open"):
                memory.admin.import_(path)
        elif touch == "backup":
            memory.admin.backup(tmp_path / "copy.db")
        elif touch == "verify":
            memory.admin.verify()
        else:
            memory.admin.compact()
        assert (locks_on(Path(f"{path}-shm")), locks_on(path)) == before


@pytest.mark.parametrize("file", ["memory.db", "memory.db-wal", "other-name"])
def test_an_open_memory_cannot_be_overwritten_by_an_export(tmp_path, file):
    path = tmp_path / "memory.db"
    with open_file(path) as memory:
        memory.add("Ada lives in Paris.")
        (tmp_path / "other-name").hardlink_to(path)
        with pytest.raises(StorageError, match="that is open"):
            memory.admin.export(tmp_path / file)
        assert memory.admin.verify().problems == ()


WORKER = """
import json, sys, time
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.memory import EntropicMemory
path, name = sys.argv[1:]
long_lived = EntropicMemory.open(path, embedder=FakeEmbedder(16))
end = time.monotonic() + 2.5
number = 0
while time.monotonic() < end:
    with EntropicMemory.open(path, embedder=FakeEmbedder(16)) as request:
        ids = request.add(f"{name} said {number}")
    ids += long_lived.add(f"{name} repeated {number}")
    number += 1
    print(json.dumps(ids), flush=True)
long_lived.close()
"""


@pytest.mark.slow
def test_two_workers_that_open_the_file_per_request_lose_nothing(tmp_path):
    path = tmp_path / "memory.db"
    open_file(path).close()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), name],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for name in ("first", "second")
    ]
    said = [worker.communicate(timeout=120)[0].decode().split("\n") for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    acknowledged = {name for lines in said for line in lines if line for name in json.loads(line)}
    with open_file(path) as memory:
        log = memory.messages()
        assert acknowledged
        assert acknowledged <= {message.id for message in log}
        assert [message.step for message in log] == list(range(1, len(log) + 1))
        assert memory.admin.verify().problems == ()


def in_child(action) -> str:
    """What ``action`` returns or raises in a forked child, as text."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        try:
            said = str(action())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(sink, said.encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


@needs_fork
def test_what_a_child_acknowledges_survives_the_close_of_its_parent(tmp_path):
    path = tmp_path / "memory.db"
    memory = open_file(path)
    memory.add("The parent was here.")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        memory.recall("parent")  # connects while the parent is still connected
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        for number in range(20):
            memory.add(f"The child said {number}.")
        os._exit(0)
    memory.recall("parent")
    os.read(ready[0], 1)
    memory.close()
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    with open_file(path) as again:
        texts = {message.text for message in again.messages(limit=None)}
    assert texts == {"The parent was here.", *(f"The child said {n}." for n in range(20))}


@needs_fork
def test_a_file_that_is_in_use_during_a_fork_is_closed_to_the_child(tmp_path, monkeypatch):
    from ecs_plugins.common import sqlite

    monkeypatch.setattr(sqlite, "_FORK_WAIT", 0.05)
    path = tmp_path / "memory.db"
    with open_file(path) as memory:
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with memory._store.database.read():
                inside.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait()
        refused = in_child(lambda: memory.add("lost?"))
        refused_again = in_child(lambda: open_file(path).add("lost?"))
        leave.set()
        thread.join()
        assert refused.startswith("StorageError")
        assert "spawn" in refused
        assert refused_again.startswith("StorageError")
        assert in_child(lambda: memory.add("kept") and "added") == "added"
        assert [message.text for message in memory.messages()] == ["kept"]


@needs_fork
def test_a_memory_in_memory_is_copied_into_the_child(tmp_path):
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(16)) as memory:
        memory.add("Ada lives in Paris.")
        assert in_child(lambda: memory.add("Bob.") and len(memory.messages())) == "2"
        assert len(memory.messages()) == 1


@pytest.mark.parametrize("handed_out", ["recall", "get", "messages", "memories"])
def test_metadata_that_is_handed_out_is_nobody_elses(tmp_path, handed_out):
    with open_file(tmp_path / "memory.db") as memory:
        for tenant in ("ada", "bob"):
            memory.add(f"{tenant} likes tea", namespace=(tenant,), metadata={"tags": ["a", "b"]})
            if handed_out == "memories":
                memory.update(memory.messages((tenant,))[0].id, pinned=True)

        def metadata(tenant: str):
            if handed_out == "recall":
                return memory.recall("tea", namespace=(tenant,), threshold=-1)[0].metadata
            if handed_out == "memories":
                return memory.memories((tenant,))[0].metadata
            message = memory.messages((tenant,))[0]
            return memory.get(message.id).metadata if handed_out == "get" else message.metadata

        metadata("ada")["tags"].append("secret of ada")
        assert metadata("bob") == {"tags": ["a", "b"]}
        memory.sleep(("bob",))
        assert metadata("ada") == {"tags": ["a", "b"]}
