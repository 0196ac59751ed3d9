import threading

import numpy as np
import pytest

from ecs_plugins.memory.store.index import VectorIndex
from ecs_plugins.memory.store.index_config import IndexConfig
from ecs_plugins.memory.store.screening import screened


def latent(count: int, dimension: int = 48, seed: int = 0) -> np.ndarray:
    """Unit vectors that lie near an 8-dimensional subspace, as sentence vectors nearly do."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, 8)) @ np.random.default_rng(99).normal(size=(8, dimension))
    points += 0.1 * rng.normal(size=points.shape)
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def filled(count: int, **config) -> tuple[VectorIndex, np.ndarray]:
    vectors = latent(count)
    index = VectorIndex(vectors.shape[1], IndexConfig(links=8, ef_construction=40, **config))
    index.add(np.arange(count) + 1000, vectors)
    return index, vectors


def recall_at(index: VectorIndex, queries: np.ndarray, k: int) -> float:
    hits = 0
    for query in queries:
        exact = set(index.search(query, k, exact=True)[0].tolist())
        hits += len(exact & set(index.search(query, k)[0].tolist()))
    return hits / (k * len(queries))


def test_a_small_index_scans_exactly_and_never_builds_a_graph():
    index, vectors = filled(50, exact_limit=100)
    index.maintain(everything=True)
    entries, scores = index.search(vectors[7], 3)
    assert index.linked == 0
    assert entries[0] == 1007
    np.testing.assert_allclose(scores, np.sort(vectors @ vectors[7])[::-1][:3], rtol=1e-5)


def test_the_graph_finds_what_the_exact_scan_finds():
    index, _ = filled(3000, exact_limit=500)
    index.maintain()
    assert index.linked == 3000
    assert recall_at(index, latent(60, seed=1), 3) >= 0.97


def test_the_graph_keeps_its_recall_when_half_of_it_is_dead():
    index, _ = filled(3000, exact_limit=500)
    index.maintain()
    rng = np.random.default_rng(2)
    dead = 1000 + rng.choice(3000, 1490, replace=False)
    index.remove(dead)
    found = {entry for q in latent(60, seed=1) for entry in index.search(q, 5)[0].tolist()}
    assert index.dead == 1490
    assert not found & set(dead.tolist())
    assert recall_at(index, latent(60, seed=1), 3) >= 0.97


def test_a_half_dead_graph_is_built_anew():
    index, _ = filled(2000, exact_limit=200)
    index.maintain()
    index.remove(np.arange(1000, 2000))
    assert index.needs_build
    index.maintain()
    assert (index.linked, index.dead, len(index)) == (1000, 0, 1000)


def test_new_entries_are_found_before_and_after_they_are_linked():
    index, _ = filled(1000, exact_limit=100)
    index.maintain()
    fresh = latent(30, seed=5)
    index.add(np.arange(30), fresh)
    assert [index.search(v, 1)[0][0] for v in fresh] == list(range(30))
    index.maintain(everything=True)
    assert index.linked == 1030
    assert [index.search(v, 1)[0][0] for v in fresh] == list(range(30))


@pytest.mark.parametrize("arrivals", [0, 3, 9])
@pytest.mark.parametrize("linked", [False, True], ids=["scanned", "graph"])
def test_replacing_is_removing_and_adding(linked, arrivals):
    one, other = (filled(60, exact_limit=20 if linked else 100)[0] for _ in range(2))
    gone, new = np.array([1003, 1059, 1062, 1065, 5]), 2000 + np.arange(arrivals)
    vectors = latent(arrivals, seed=3) if arrivals else np.empty((0, 48), np.float32)
    for index in (one, other):
        index.maintain()
        assert bool(index.linked) is linked
        index.add(np.arange(1060, 1070), latent(10, seed=4))
        near = index.near(screened(vectors), 4, 0.5)  # with short forms from before the change
        assert len(near) == arrivals
    one.replace(gone, new, vectors)
    other.remove(gone)
    other.add(new, vectors)
    assert sorted(one.entries()) == sorted(other.entries())
    for query in latent(20, seed=5):
        ours, theirs = (
            dict(zip(*i.search(query, 99, exact=True), strict=True)) for i in (one, other)
        )
        assert ours == pytest.approx(theirs, abs=1e-6)
    queries = screened(latent(20, seed=5))
    for ours, theirs in zip(one.near(queries, 9, 0.3), other.near(queries, 9, 0.3), strict=True):
        assert dict(ours) == pytest.approx(dict(theirs), abs=1e-6)


def test_a_removed_entry_can_return_in_another_row():
    index, vectors = filled(600, exact_limit=100)
    index.maintain()
    index.remove(np.array([1005]))
    index.add(np.array([1005]), vectors[5:6])
    assert index.search(vectors[5], 1)[0].tolist() == [1005]
    assert len(index) == 600


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_filter_is_answered_with_full_recall(share):
    index, _ = filled(3000, exact_limit=100)
    index.maintain()
    allowed = 1000 + np.random.default_rng(3).choice(3000, int(3000 * share), replace=False)
    hits = 0
    for query in latent(40, seed=4):
        exact = index.search(query, 5, allowed=allowed, exact=True)[0].tolist()
        found = index.search(query, 5, allowed=allowed)[0].tolist()
        assert set(found) <= set(allowed.tolist())
        hits += len(set(exact) & set(found))
    assert hits / 200 >= 0.97


def test_a_filter_that_allows_nothing_finds_nothing():
    index, vectors = filled(300, exact_limit=0)
    index.maintain()
    assert len(index.search(vectors[0], 3, allowed=np.empty(0, dtype=np.int64))[0]) == 0


def test_changes_made_while_a_graph_is_built_are_kept():
    index, vectors = filled(2000, exact_limit=100)
    changed = threading.Event()

    def change(done: int, total: int) -> None:
        if not changed.is_set():
            changed.set()
            index.remove(np.array([1000, 1001]))
            index.add(np.array([7]), latent(1, seed=9))

    index.maintain(progress=change)
    assert changed.is_set()
    assert index.linked == 2000
    assert index.dead == 2
    assert index.search(latent(1, seed=9)[0], 1)[0].tolist() == [7]
    assert 1000 not in index.search(vectors[0], 50)[0]


def test_searching_and_changing_together_is_safe():
    index, vectors = filled(1500, exact_limit=50)
    index.maintain()
    stop, failures = threading.Event(), []

    def search() -> None:
        try:
            while not stop.is_set():
                for vector in vectors[:20]:
                    entries, scores = index.search(vector, 5)
                    assert len(entries) == len(scores) == 5
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(12):
        index.add(np.arange(40) + 10_000 + 40 * number, latent(40, seed=number + 20))
        index.maintain(everything=number % 3 == 0)
        index.remove(np.arange(20) + 10_000 + 40 * number)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(index) == 1500 + 12 * 20


def test_a_saved_graph_is_restored_with_its_tombstones():
    index, vectors = filled(500, exact_limit=50)
    index.maintain()
    index.remove(np.array([1003]))
    content = index.graph_bytes()
    assert content is not None
    restored = VectorIndex(index.dimension, index.config)
    restored.restore(*content)
    assert sorted(restored.entries()) == sorted(index.entries())
    assert restored.search(vectors[3], 4)[0].tolist() == index.search(vectors[3], 4)[0].tolist()


def test_erased_vectors_are_known_until_the_graph_is_built_anew():
    index, _ = filled(500, exact_limit=50)
    index.maintain()
    index.remove(np.array([1003]), erased=True)
    assert index.holds_erased
    index.maintain(everything=True)
    assert not index.holds_erased
    assert index.dead == 0
