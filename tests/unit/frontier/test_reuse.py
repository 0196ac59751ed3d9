import multiprocessing
import os
import pickle
import sqlite3
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ecs_plugins.common import sqlite
from ecs_plugins.common.files import read_text, write_atomically
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier import reuse
from ecs_plugins.frontier.reuse import ReuseLedger, fit_reuse

KEY = ("memory_compression", '{"ratio":0.25}')


@pytest.fixture
def ledger(tmp_path):
    with ReuseLedger(tmp_path / "reuse.db") as made:
        yield made


def test_queries_are_counted_per_context(ledger):
    assert [ledger.record("a") for _ in range(3)] == [1, 2, 3]
    assert ledger.record("b", queries=5) == 5
    assert (ledger.count("a"), ledger.count("b"), ledger.count("c")) == (3, 5, 0)
    assert len(ledger) == 2


def test_namespaces_do_not_see_each_other(tmp_path):
    one = ReuseLedger(tmp_path / "r.db", namespace=("a", "b"))
    other = ReuseLedger(tmp_path / "r.db", namespace=("a/b",))
    one.record("x")
    one.mark_prepared("x", KEY)
    assert other.count("x") == 0
    assert other.prepared("x") == frozenset()
    assert not other.forget("x")
    assert one.count("x") == 1


def test_forget_deletes_everything_about_a_context(ledger, tmp_path):
    ledger.record("secret-context")
    ledger.mark_prepared("secret-context", KEY)
    assert ledger.forget("secret-context")
    assert not ledger.forget("secret-context")
    assert ledger.count("secret-context") == 0
    assert ledger.prepared("secret-context") == frozenset()


def _count_in_process(path):
    with ReuseLedger(path) as ledger:
        return [ledger.record("a") for _ in range(40)]


@pytest.mark.slow
def test_many_processes_lose_no_count(tmp_path):
    path = str(tmp_path / "r.db")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        totals = pool.map(_count_in_process, [path] * 3)
    assert sorted(n for got in totals for n in got) == list(range(1, 121))


def test_a_locked_ledger_is_a_storage_error(tmp_path, monkeypatch):
    monkeypatch.setattr(reuse, "_BUSY_SECONDS", 0.05)
    path = tmp_path / "r.db"
    with ReuseLedger(path) as ledger:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            ledger.record("a")
        blocker.execute("ROLLBACK")
        assert ledger.record("a") == 1
        blocker.close()


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    path = tmp_path / "r.db"
    path.write_text("this is not a database, and longer than a header " * 30)
    with pytest.raises(StorageError, match="not a database"):
        ReuseLedger(path)
    assert path.read_text().startswith("this is not a database")


def test_a_ledger_of_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "r.db"
    ReuseLedger(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(StorageError, match="newer version"):
        ReuseLedger(path)


def test_a_ledger_can_be_pickled_for_a_worker(ledger):
    ledger.record("a")
    again = pickle.loads(pickle.dumps(ledger))
    assert again.record("a") == 2
    with pytest.raises(TypeError, match="memory"):
        pickle.dumps(ReuseLedger(":memory:"))


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def forked(action):
    """Start a child that does ``action``; what waits for it and returns what it said."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(action())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(sink, said.encode())
        os._exit(0)
    os.close(sink)

    def wait():
        with os.fdopen(source) as file:
            said = file.read()
        os.waitpid(child, 0)
        return said

    return wait


@needs_fork
def test_what_a_child_counts_survives_the_close_of_its_parent(tmp_path):
    path = tmp_path / "r.db"
    ledger = ReuseLedger(path)
    ledger.record("a")
    ready, go = os.pipe(), os.pipe()

    def count():
        ledger.count("a")  # connects while the parent is still connected
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        return [ledger.record("a") for _ in range(20)][-1]

    wait = forked(count)
    ledger.count("a")
    os.read(ready[0], 1)
    ledger.close()
    os.write(go[1], b"x")
    assert wait() == "21"
    with ReuseLedger(path) as again:
        assert again.count("a") == 21


@needs_fork
def test_a_ledger_in_use_during_a_fork_is_closed_to_the_child(ledger, monkeypatch):
    monkeypatch.setattr(sqlite, "_FORK_WAIT", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with ledger._pool.connection():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    refused = forked(lambda: ledger.record("lost?"))()
    leave.set()
    thread.join()
    assert refused.startswith("StorageError")
    assert "spawn" in refused
    assert forked(lambda: ledger.record("kept"))() == "1"
    assert (ledger.count("lost?"), ledger.count("kept")) == (0, 1)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs the kernel's table of locks")
def test_no_file_that_is_read_or_written_drops_the_locks_of_a_ledger(ledger, tmp_path):
    def locks():
        inode, mine = (tmp_path / "reuse.db-shm").stat().st_ino, str(os.getpid())
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return sum(row[4] == mine and row[5].endswith(f":{inode}") for row in rows)

    ledger.record("a")
    before = locks()
    assert before > 0
    ReuseLedger(tmp_path / "reuse.db").close()
    for name in ("reuse.db", "reuse.db-wal", "reuse.db-shm"):
        for touch in (read_text, lambda path: write_atomically(path, "lost")):
            with pytest.raises(StorageError, match="open"):
                touch(tmp_path / name)
    assert locks() == before


@pytest.mark.parametrize("call", [("", 1), ("a", 0), ("a", -2)])
def test_impossible_counts_are_refused(ledger, call):
    with pytest.raises(InvalidInputError):
        ledger.record(*call)
    assert len(ledger) == 0


def test_impossible_settings_are_refused(tmp_path):
    with pytest.raises(ConfigurationError):
        ReuseLedger(tmp_path / "r.db", idle_seconds=0)
    with pytest.raises(ConfigurationError, match="tuple of names"):
        ReuseLedger(tmp_path / "r.db", namespace="team")


def simulate(a, b, contexts, seed=0):
    rng = np.random.default_rng(seed)
    return rng.geometric(np.clip(rng.beta(a, b, contexts), 1e-9, 1)).tolist()


@pytest.mark.parametrize(("a", "b"), [(3.0, 6.0), (6.0, 2.0), (1.5, 4.0)])
def test_the_fit_recovers_the_distribution_it_came_from(a, b):
    counts = simulate(a, b, 4000)
    model = fit_reuse(Counter(counts), {})
    for seen in (1, 3, 10):
        going_on = b + seen - 1
        assert model.remaining(seen, 1) == pytest.approx(going_on / (a + going_on), abs=0.035)


def test_contexts_that_may_go_on_do_not_count_as_ended():
    counts = simulate(3.0, 12.0, 3000)
    rng = np.random.default_rng(1)
    ended, alive = Counter(), Counter()
    # How far a context has come when we look depends on its age, not on where it will end.
    for count, age in zip(counts, rng.integers(1, 12, len(counts)).tolist(), strict=True):
        if count > age:
            alive[age] += 1
        else:
            ended[count] += 1
    censored = fit_reuse(ended, alive)
    naive = fit_reuse(ended + alive, {})
    truth = 12.0 / 2.0
    assert abs(censored.remaining(1) - truth) < abs(naive.remaining(1) - truth)


def test_a_context_asked_often_is_expected_to_be_asked_more(tmp_path):
    now = [0.0]
    with ReuseLedger(tmp_path / "r.db", idle_seconds=10, clock=lambda: now[0]) as ledger:
        for index, count in enumerate(simulate(2.5, 4.0, 300)):
            ledger.record(f"c{index}", queries=count)
        now[0] = 100.0
        ledger.record("new")
        ledger.record("busy", queries=30)
        new, busy = ledger.forecast("new"), ledger.forecast("busy")
        assert busy > 3 * new
        # Posterior mean of the model that made the data: (4 + n - 1) / 1.5.
        assert new == pytest.approx(4 / 1.5, rel=0.4)
        assert busy == pytest.approx(33 / 1.5, rel=0.4)


def test_the_model_is_fitted_again_when_there_is_much_more_to_learn_from(ledger):
    ledger.record("a")
    assert ledger.model().contexts == 1
    for index in range(50):
        ledger.record(f"c{index}", queries=20)
    assert ledger.model().contexts == 51


def test_without_any_history_the_forecast_is_a_weak_prior(ledger):
    assert 0 < ledger.forecast("never seen") < 20
