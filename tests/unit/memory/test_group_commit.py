"""Threads that share a commit."""

import threading

import pytest

from ecs_plugins.memory.store.group_commit import GroupCommit


def test_a_thread_that_is_interrupted_while_it_waits_holds_up_nobody(monkeypatch) -> None:
    commits: GroupCommit[str] = GroupCommit()
    begun, released = threading.Event(), threading.Event()
    written: list[str] = []

    def write(works):
        if "first" in works:
            begun.set()
            released.wait(10)
        written.extend(works)

    def start(work):
        thread = threading.Thread(target=commits.write, args=(("ana",), work, write), daemon=True)
        thread.start()
        return thread

    first = start("first")
    begun.wait(10)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            commits.write(("ana",), "interrupted", write)
    last = start("last")
    released.set()
    for thread in (first, last):
        thread.join(10)
    assert written == ["first", "last"]


def interrupted(*_):
    raise KeyboardInterrupt
