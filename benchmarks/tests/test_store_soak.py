"""Sixteen users on one store at once, and eight processes on one namespace, sleep phases on.

Each runs for a second by default; `ECS_PLUGINS_SOAK_SECONDS=60 python -m pytest -s` on this file
prints the latencies that docs/measurements/memory_cost.md reports.
"""

import os
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.ranking.embedder import FakeEmbedder

USERS = 16
SECONDS = float(os.environ.get("ECS_PLUGINS_SOAK_SECONDS", "1"))
WORDS = [f"word{n}" for n in range(500)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0


def test_sixteen_users_at_once_see_no_error_and_nothing_of_each_other(tmp_path):
    config = MemoryConfig(hot_capacity=40, cold_capacity=60, sleep_every=10)
    problems: list[str] = []
    latencies: dict[str, list[float]] = {name: [] for name in ("message", "recall", "put", "get")}

    with EntropicMemory.open(tmp_path / "m.db", embedder=FakeEmbedder(), config=config) as memory:
        store = EntropicStore(memory)
        store.put(("warm", "up"), "k", {"text": "up"})
        before = threading.active_count(), open_files()
        end = time.monotonic() + SECONDS

        def timed(name, call, *arguments, **options):
            start = time.perf_counter()
            result = call(*arguments, **options)
            latencies[name].append(time.perf_counter() - start)
            return result

        def live(user: int) -> None:
            mine, notes = ("chats", f"u{user}"), ("notes", f"u{user}")
            random, n = np.random.default_rng(user), 0
            try:
                while n < 12 or time.monotonic() < end:
                    words = " ".join(random.choice(WORDS, 6))
                    said = f"user{user}x says {words}"
                    timed("message", memory.add, said, namespace=mine)
                    found = timed("recall", memory.recall, words, namespace=mine, k=5)
                    timed("put", store.put, notes, f"k{n % 20}", {"text": words, "n": n})
                    item = timed("get", store.get, notes, f"k{n % 20}")
                    others = [i for i in found if f"user{user}x" not in i.text]
                    if others or item.value["n"] != n:
                        problems.append(f"{user}: {others} {item}")
                    n += 1
            except BaseException as error:
                problems.append(f"{user}: {error!r}")

        threads = [threading.Thread(target=live, args=(user,)) for user in range(USERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems, problems[:3]

        stats = memory.admin.stats(("chats",)).namespaces
        assert len(stats) == USERS
        assert all(space.hot <= 40 and space.cold <= 60 for space in stats)
        assert all(space.sleeps for space in stats)
        assert memory.admin.verify().ok
        assert threading.active_count() <= before[0] + 1
        assert open_files() <= before[1] + 3 * USERS
        messages = sum(space.messages for space in stats)
    for name, seconds in latencies.items():
        p50, p99 = np.percentile(np.array(seconds) * 1000, [50, 99])
        sys.stdout.write(f"{name}: {len(seconds)} calls, p50 {p50:.1f} ms, p99 {p99:.1f} ms\n")
    sleeps = sum(space.sleeps for space in stats)
    sys.stdout.write(f"{messages} messages, {sleeps} sleep phases\n")


def write_for_a_while(path, number):
    """Add messages from one of several processes, with sleep phases."""
    config = MemoryConfig(sleep_every=20, hot_capacity=60, cold_capacity=40)
    open_ = partial(EntropicMemory.open, path, embedder=FakeEmbedder(32), config=config)
    added, slept = {}, []
    with open_() as memory:
        claim = memory._store.database.claim

        @contextmanager
        def timed(name, **options):
            with claim(name, **options) as claimed:
                began = time.monotonic()
                yield claimed
                if claimed:
                    slept.append((began, time.monotonic()))

        memory._store.database.claim = timed
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            text = f"process {number} said {len(added)}"
            added |= dict.fromkeys(memory.add(text), text)
            if not len(added) % 10:
                with open_() as request:
                    request.recall(text)
    return added, slept


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_eight_processes_write_once_and_sleep_one_at_a_time(engine, located, tmp_path):
    path = located(tmp_path / "memory.db")
    with get_context("spawn").Pool(8) as processes:
        done = processes.starmap(write_for_a_while, [(path, each) for each in range(8)], 1)
    with EntropicMemory.open(path, embedder=FakeEmbedder(32)) as memory:
        log = memory.messages()
        said = {name: text for added, _ in done for name, text in added.items()}
        assert {message.id: message.text for message in log} == said
        assert [message.step for message in log] == list(range(1, len(log) + 1))
        assert memory.admin.verify().ok
        phases = len(memory.sleeps())
        assert phases >= len(log) // 100  # who finds another one sleeping goes on
    slept = sorted(each for _, mine in done for each in mine)
    if engine == "postgres":
        assert all(before[1] <= after[0] for before, after in pairwise(slept))
    sys.stdout.write(f"{engine}: {len(log)} messages, {phases} sleep phases in {SECONDS:g} s\n")
