"""Kills of writers and servers at random points lose nothing acknowledged.

After each kill the memory is opened and checked: every acknowledged message is there, every
acknowledged deletion holds, and `verify` is clean. A sleep phase moves messages from the hot tier
into memories, so a message in both, or counts that do not fit, would be a sleep phase half done.

The writer of a file dies 80 times. On a server 10 clients die and 2 servers. Both happen
``ECS_PLUGINS_KILLS`` times as often if that is set, as it is by ``make nightly``.
"""

import json
import os
import random
import select
import signal
import time

import faiss
import pytest

from benchmarks.private_server import private_server
from ecs_plugins.errors import StorageError
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.ranking.embedder import FakeEmbedder

TIMES = int(os.environ.get("ECS_PLUGINS_KILLS", "1"))
FILES = 8 * TIMES
KILLS_PER_FILE = 10
IN_BOTH_TIERS = (
    "SELECT p.message FROM provenance p JOIN tiers t ON t.id = p.item AND t.live = 1"
    " GROUP BY p.message HAVING count(DISTINCT t.tier) > 1"
)


def opened(path) -> EntropicMemory:
    return EntropicMemory.open(
        path,
        embedder=FakeEmbedder(16),
        config=MemoryConfig(hot_capacity=60, cold_capacity=30, merge_threshold=0.95),
        store=StoreConfig(sleep="manual"),
    )


def write_for_ever(path, seed: int, say) -> None:
    """Add, recall, sleep, delete, compact, and acknowledge each step."""
    rng = random.Random(seed)
    memory = opened(path)
    say(opened=True)
    mine: list[str] = []
    while True:
        texts = [f"w{rng.randrange(40)} x{rng.randrange(40)}" for _ in range(rng.randint(1, 6))]
        ids = memory.add(texts)
        say(added=dict(zip(ids, texts, strict=True)))
        mine += ids
        step = rng.random()
        if step < 0.3:
            memory.recall(texts[0])
            say(slept=memory.sleep().id)
        elif step < 0.5:
            gone = mine.pop(rng.randrange(len(mine)))
            say(deleting=gone)
            memory.delete(gone)
            say(deleted=gone)
        elif step < 0.75:
            memory.recall(texts[0])
            memory.admin.compact()
            say(compacted=True)


def kill_writer(child: int) -> None:
    os.kill(child, signal.SIGKILL)


def said_until_killed(
    path, seed: int, delay: float, *, opening=False, kill=kill_writer
) -> list[dict]:
    """Return the acknowledged writes of a killed writer.

    The delay counts from the fork for a kill that is to hit the opening, else from the first
    acknowledgement, however slow the machine is. ``kill`` may kill its server instead.
    """
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        faiss.omp_set_num_threads(1)  # the parent's threads are not there

        def say(**what) -> None:
            os.write(sink, json.dumps(what).encode() + b"\n")

        try:
            write_for_ever(path, seed, say)
        except BaseException as error:
            if kill is kill_writer or not isinstance(error, StorageError):
                say(failed=repr(error))
        finally:
            os._exit(1)
    os.close(sink)
    if not opening:
        select.select([source], [], [], 60)
    time.sleep(delay)
    kill(child)
    os.waitpid(child, 0)
    with os.fdopen(source) as lines:
        return [json.loads(line) for line in lines]


class Promises:
    """Return the acknowledged writes of one file."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.gone: set[str] = set()
        self.steps: set[str] = set()

    def hear(self, said: list[dict]) -> None:
        for line in said:
            assert "failed" not in line, line
            self.steps |= set(line)
            self.kept |= line.get("added", {})
            # Announced but not acknowledged: it may have happened or not.
            self.kept.pop(line.get("deleting", ""), None)
            if "deleted" in line:
                self.gone.add(line["deleted"])

    def check(self, path) -> None:
        with opened(path) as memory:
            there = {message.id: message.text for message in memory.messages()}
            assert self.kept.items() <= there.items()
            assert not self.gone & set(there)
            assert memory.admin.verify().problems == ()
            assert all(each.agrees for each in memory.replay())
            with memory._store.database.read() as connection:
                assert connection.execute(IN_BOTH_TIERS).fetchall() == []


pytestmark = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("file", range(FILES))
def test_a_killed_writer_keeps_every_promise(db, monkeypatch, file):
    monkeypatch.setattr("ecs_plugins.memory.store.index.LARGE", 20)
    rng = random.Random(file)
    promises = Promises()
    for kill in range(KILLS_PER_FILE):
        opening = kill < 2
        delay = rng.uniform(0, 0.01) if opening else rng.uniform(0, 0.25)
        promises.hear(said_until_killed(db, 100 * file + kill, delay, opening=opening))
        if db.exists():
            promises.check(db)
    assert promises.steps >= {"opened", "added"}


@pytest.mark.parametrize("run", range(TIMES))
def test_killed_clients_and_servers_keep_every_promise(run):
    rng = random.Random(run)
    promises = Promises()
    with private_server(flush=False) as server:
        for kill in range(12):
            how = {5: server.kill, 11: server.stop}.get(kill, kill_writer)
            seed, delay = 100 * run + kill, rng.uniform(0, 0.5)
            promises.hear(
                said_until_killed(server.address, seed, delay, opening=not kill, kill=how)
            )
            server.come_back()
            promises.check(server.address)
    assert promises.steps >= {"opened", "added"}
