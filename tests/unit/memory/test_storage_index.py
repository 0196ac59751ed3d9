import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.store.index import VectorIndex
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.factories import SECRET, assert_current, in_child, leftovers, stream


@pytest.fixture(autouse=True)
def _graph_from_the_first_row(monkeypatch):
    monkeypatch.setattr("ecs_plugins.memory.store.index._TAIL", 0)
    monkeypatch.setattr("ecs_plugins.memory.store.index.SMALL", 0)


def latent(count: int, dimension: int = 48, seed: int = 0) -> np.ndarray:
    """Unit vectors that lie near an 8-dimensional subspace, as sentence vectors nearly do."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(99).normal(size=(8, dimension))
    points = rng.normal(size=(count, 8)) @ basis
    points += 0.1 * rng.normal(size=points.shape)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / lengths).astype(np.float32)


def filled(count: int) -> tuple[VectorIndex, np.ndarray]:
    vectors = latent(count)
    index = VectorIndex(vectors.shape[1])
    rows = np.arange(count) + 1000
    index.add(rows, vectors)
    return index, vectors


def recall_at(index: VectorIndex, k: int) -> float:
    every = index.rows()
    hits = 0
    queries = latent(60, seed=1)
    for query in queries:
        exact, _ = index.search(query, k, allowed=every)
        near, _ = index.search(query, k)
        hits += len(np.intersect1d(exact, near))
    return hits / (k * len(queries))


@pytest.mark.parametrize("count", [1, 2, 50, 3000])
def test_the_graph_equals_the_exact_scan(count):
    index, vectors = filled(count)
    assert recall_at(index, min(3, count)) >= 0.98
    query = vectors[0]
    rows, scores = index.search(query, 3)
    assert rows[0] == 1000
    falling = np.sort(vectors @ query)[::-1]
    np.testing.assert_allclose(scores, falling[:3], rtol=1e-5)


def test_few_vectors_are_all_compared_and_many_are_looked_for_in_the_graph(monkeypatch):
    monkeypatch.setattr("ecs_plugins.memory.store.index.SMALL", 100)
    searched = []
    search_graph = VectorIndex._search_graph

    def spy(index, query, k, narrow):
        searched.append(index.linked)
        return search_graph(index, query, k, narrow)

    monkeypatch.setattr(VectorIndex, "_search_graph", spy)
    for count, dead in ((100, 1), (102, 1), (398, 199), (404, 202)):
        vectors = latent(count)
        index = VectorIndex(vectors.shape[1])
        index.add(np.arange(count), vectors)
        index.remove(np.arange(dead))
        rows, _ = index.search(vectors[-1], 4)
        assert rows[0] == count - 1
        assert rows.min() >= dead
    assert searched == [102, 404]  # the more of it is dead, the more there must be


def test_equal_vectors_are_all_found():
    vectors = np.repeat(latent(3), 200, axis=0)
    index = VectorIndex(vectors.shape[1])
    index.add(np.arange(600), vectors)
    for start in (0, 200, 400):
        rows, scores = index.search(vectors[start], 20)
        assert len(rows) == 20
        assert scores.min() == pytest.approx(1.0, abs=1e-5)


def test_the_graph_keeps_its_recall_when_half_of_it_is_dead():
    index, _ = filled(3000)
    dead = 1000 + np.random.default_rng(2).choice(3000, 1490, replace=False)
    index.remove(dead)
    assert index.dead == 1490
    for query in latent(60, seed=1):
        rows, _ = index.search(query, 5)
        assert not np.isin(rows, dead).any()
    assert recall_at(index, 3) >= 0.97


@pytest.mark.parametrize("tail", [64, 2048])
def test_rows_that_wait_to_be_linked_are_found_until_they_are_removed(monkeypatch, tail):
    monkeypatch.setattr("ecs_plugins.memory.store.index._TAIL", tail)
    vectors = latent(400)
    index = VectorIndex(vectors.shape[1])
    for rows in np.split(np.arange(400), range(30, 400, 30)):
        index.add(rows, vectors[rows])
    index.remove(np.array([3, 150, 395, 399, 390]))
    left = index.rows()
    assert len(left) == 395
    assert (index.linked > 0) == (tail == 64)
    for query in latent(20, seed=5):
        _, scores = index.search(query, 5)
        falling = np.sort(vectors[left] @ query)[::-1]
        np.testing.assert_allclose(scores, falling[:5], rtol=1e-5)
        allowed = np.array([2, 3, 40, 394, 399])
        rows, _ = index.search(query, 5, allowed=allowed)
        assert set(rows.tolist()) == {2, 40, 394}
    index.rebuild()
    assert sorted(index.rows()) == sorted(left)


def test_changes_made_while_a_graph_is_built_are_kept():
    index, vectors = filled(3000)
    index.remove(np.arange(2000) + 2000)
    late = latent(1, seed=9)

    class Changing(threading.Event):
        def is_set(self):  # asked between two chunks
            index.remove(np.array([1000, 1001]))
            if len(index) == 998:
                index.add(np.array([7]), late)
            return False

    index.rebuild(Changing())
    assert index.linked == 1001
    assert index.dead == 2
    found, _ = index.search(late[0], 1)
    assert found.tolist() == [7]
    near, _ = index.search(vectors[0], 50)
    assert 1000 not in near


def test_searching_and_changing_together_is_safe():
    index, vectors = filled(1500)
    stop = threading.Event()

    def search(_) -> None:
        while not stop.is_set():
            for vector in vectors[:20]:
                rows, scores = index.search(vector, 5)
                assert len(rows) == len(scores) == 5

    with ThreadPoolExecutor(3) as threads:
        searching = threads.map(search, range(3))
        for number in range(12):
            first = 10_000 + 40 * number
            rows = np.arange(first, first + 40)
            index.add(rows, latent(40, seed=number + 20))
            index.remove(rows[:20])
            if number % 3 == 0:
                index.rebuild()
        stop.set()
        list(searching)
    assert len(index) == 1500 + 12 * 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_updated_index_has_the_items_of_a_rebuilt_one(open_memory, seed):
    config = MemoryConfig(merge_threshold=0.8, hot_capacity=60, cold_capacity=30)
    first = open_memory(config=config, embedder=FakeEmbedder(160))
    second = open_memory(config=config, embedder=FakeEmbedder(160))
    said = stream(seed, 120)
    for start in range(0, 120, 12):
        some = said[start : start + 12]
        first.add(some[:5])
        (name,) = first.add(some[5])
        second.add(some[6:])  # as another process would
        second.recall("the boat is blue", threshold=-1.0, tiers="cold")
        if start % 48 == 0:
            second.sleep()
            first.delete(name)
            (red,) = first.add("the mill is red")
            second.update(red, text="the mill is green")
            first.forget(("default",), filter={"source": 1})
        assert_current(first)
        assert_current(second)
    second.forget(("default",))
    first.add("a new beginning")
    assert_current(first)
    assert_current(second)


def test_a_write_that_fails_leaves_nothing_in_the_file_the_index_or_the_words(
    open_memory, monkeypatch
):
    memory = open_memory()
    memory.add("the boat is blue")
    memory.recall("the boat is blue")
    with monkeypatch.context() as patched:
        patched.setattr("ecs_plugins.memory.store.namespaces.Space.save", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            memory.add("a ferry that never sailed")
    assert len(memory.messages()) == 1
    (only,) = memory.recall("a ferry", threshold=0.0)
    assert only.text == "the boat is blue"
    assert_current(memory)
    memory.add("cats chase birds")
    assert_current(memory)
    best, *_ = memory.recall("cats chase birds")
    assert best.text == "cats chase birds"


# The links in the database

ALL_KEPT = MemoryConfig(merge_threshold=1.0, hot_capacity=500)


@pytest.fixture
def filed(open_memory, monkeypatch, db):
    """A closed file with 60 messages and the links of their graph, which counts as large."""
    monkeypatch.setattr("ecs_plugins.memory.store.index.LARGE", 50)
    monkeypatch.setattr("ecs_plugins.memory.store.index._CHUNK", 32)
    with open_memory(config=ALL_KEPT) as memory:
        memory.add(told(0, 60))
        assert memory.admin.wait(60)
    return db


def told(first: int, last: int) -> list[str]:
    return [f"subject{i} does thing{i}" for i in range(first, last)]


def graph_of(memory) -> tuple[int, int]:
    """Vectors and tombstones of the graph that a first recall has, before anything is built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory._sleeper.background, "submit", lambda *_: None)
        best, *_ = memory.recall("subject3 does thing3")
        assert best.text == "subject3 does thing3"
    assert_current(memory)
    ((_, opened),) = memory._store.indexes._open.items()
    index = opened.index
    every = index.rows()
    for text in told(0, 60):
        query = memory._store.embed_query(text)
        _, exact = index.search(query, 3, allowed=every)
        _, near = index.search(query, 3)
        np.testing.assert_allclose(near, exact, rtol=1e-5)
    return index.linked, index.dead


def rows_kept(memory) -> int:
    with memory._store.database.read() as connection:
        row = connection.execute("SELECT sum(length(places) / 8) FROM graphs").fetchone()
    (kept,) = row
    return kept


def test_a_graph_is_searched_at_once_also_after_a_process_was_killed(filed, open_memory):
    assert graph_of(open_memory(config=ALL_KEPT, read_only=True)) == (60, 0)

    def killed():
        memory = open_memory(config=ALL_KEPT)
        memory.add(told(60, 90))
        return memory.admin.wait(60)  # and is never closed

    assert in_child(killed) == "True"
    assert graph_of(open_memory(config=ALL_KEPT)) == (90, 0)


def test_links_drop_erased_items_and_include_new_ones(filed, open_memory, monkeypatch):
    with open_memory(config=ALL_KEPT) as memory:
        (secret,) = memory.add(SECRET)
        assert memory.admin.wait(60)
    memory = open_memory(config=ALL_KEPT)
    assert rows_kept(memory) == 61
    memory.delete(secret)
    assert leftovers(memory) == []
    with monkeypatch.context() as patch:  # as if it were killed
        patch.setattr(memory._store.indexes, "save", lambda *_, **__: None)
        memory.add("a later thing")
        memory.close()
    memory = open_memory(config=ALL_KEPT)
    assert graph_of(memory) == (61, 1)
    assert memory.recall("a later thing")[0].text == "a later thing"
    memory.add("the latest thing")
    assert memory.admin.wait(60)
    assert graph_of(memory) == (63, 1)
    assert memory.admin.verify().ok


DAMAGED = {
    "flipped": "links = CAST(substr(links, 1, 99) || x'ff' || substr(links, 101) AS BLOB)",
    "truncated": "places = CAST(substr(places, 1, 80) AS BLOB)",
    "of another type": "links = 7",
    "of another epoch": "epoch = 5",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_graph_whose_links_are_damaged_or_stale_is_built_anew_meanwhile_all_is_found(
    filed, open_memory, caplog, damage
):
    with closing(sqlite3.connect(filed)) as connection, connection:
        connection.execute(f"UPDATE graphs SET {DAMAGED[damage]}")
    memory = open_memory(config=ALL_KEPT)
    assert graph_of(memory) == (0, 0)
    stale = damage == "of another epoch"
    assert stale or "is built anew" in caplog.text
    assert stale or "('default',)" in memory.admin.verify().problems[0]
    memory.add("a later thing")
    assert memory.recall("a later thing")[0].text == "a later thing"
    assert memory.admin.wait(60)
    assert rows_kept(memory) == 61
    assert memory.admin.verify().ok


def test_links_go_with_their_namespace_and_with_the_embedder(filed, open_memory):
    with open_memory(config=ALL_KEPT) as memory:
        memory.admin.reembed(FakeEmbedder(48))
        assert rows_kept(memory) is None
        memory.recall("subject3 does thing3")
        assert memory.admin.wait(60)
        assert rows_kept(memory) == 60
        memory.forget(("default",))
        assert rows_kept(memory) is None


def test_two_that_write_links_leave_whole_ones(filed, open_memory):
    first, second = (open_memory(config=ALL_KEPT) for _ in "12")
    first.add(told(60, 90))
    second.add(told(90, 160))
    assert first.admin.wait(60)
    assert second.admin.wait(60)
    first.recall("subject1 does thing1")
    second.close()
    first.close()
    assert graph_of(open_memory(config=ALL_KEPT))[1] == 0


def test_closing_does_not_wait_for_other_writers_to_keep_links(filed, open_memory, caplog):
    memory = open_memory(config=ALL_KEPT)
    memory.add(told(60, 65))
    assert memory.admin.wait(60)
    with closing(sqlite3.connect(filed)) as other:
        other.execute("BEGIN IMMEDIATE")
        memory.close()
    assert "could not be written" in caplog.text
    assert graph_of(open_memory(config=ALL_KEPT)) == (60, 0)
