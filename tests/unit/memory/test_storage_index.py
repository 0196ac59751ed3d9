import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.store.index import VectorIndex
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.factories import assert_current, stream


@pytest.fixture(autouse=True)
def _graph_from_the_first_row(monkeypatch):
    monkeypatch.setattr("ecs_plugins.memory.store.index._TAIL", 0)
    monkeypatch.setattr("ecs_plugins.memory.store.index.LARGE", 1)


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
    index.rebuild()
    assert index.linked == count
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


def test_equal_vectors_are_all_found():
    vectors = np.repeat(latent(3), 200, axis=0)
    index = VectorIndex(vectors.shape[1])
    index.add(np.arange(600), vectors)
    index.rebuild()
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


@pytest.mark.parametrize("linked", [0, 300])
def test_rows_that_wait_to_be_linked_are_found_until_they_are_removed(linked):
    vectors = latent(400)
    index = VectorIndex(vectors.shape[1])
    for rows in np.split(np.arange(400), range(30, 400, 30)):
        index.add(rows, vectors[rows])
        if len(index) == linked:
            index.rebuild()
    assert index.linked == linked
    index.remove(np.array([3, 150, 395, 399, 390]))
    left = index.rows()
    assert len(left) == 395
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
    assert index.linked == 1000
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


def test_a_graph_is_not_taken_over_after_its_places_have_changed(monkeypatch):
    monkeypatch.setattr("ecs_plugins.memory.store.index._MIN_DEAD", 0)
    vectors = latent(3000)
    index = VectorIndex(vectors.shape[1])
    index.add(np.arange(3000), vectors)

    class Emptying(threading.Event):
        def is_set(self):
            index.remove(np.arange(2500))
            index.rebuild()
            return False

    index.rebuild(Emptying())
    assert index.linked == 500
    for row in range(2500, 3000, 50):
        rows, _ = index.search(vectors[row], 1)
        assert rows[0] == row


def test_a_large_namespace_is_linked_in_the_background(open_memory, monkeypatch):
    monkeypatch.setattr("ecs_plugins.memory.store.index.LARGE", 50)
    config = MemoryConfig(merge_threshold=1.0, hot_capacity=500)
    texts = [f"subject{i} does thing{i}" for i in range(60)]
    with open_memory(config=config) as memory:
        memory.add(texts)
        assert memory.recall(texts[3])[0].text == texts[3]
        memory.add("a later thing")
        assert memory.admin.wait(60)
        assert memory.admin.stats().indexes["linked"] >= 60
        for text in texts[::10]:
            assert memory.recall(text)[0].text == text
        assert_current(memory)
