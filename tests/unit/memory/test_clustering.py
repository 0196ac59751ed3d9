import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.memory.clustering import cluster, kmeans_labels, link_labels
from ecs_plugins.memory.config import MemoryConfig
from tests.unit.memory.factories import axis


def by_flood_fill(similarities, threshold):
    """The definition, slowly: rows reachable through links share the smallest row."""
    labels = list(range(len(similarities)))
    changed = True
    while changed:
        changed = False
        for i in range(len(labels)):
            for j in range(len(labels)):
                if similarities[i][j] >= threshold and labels[j] < labels[i]:
                    labels[i] = labels[j]
                    changed = True
    return labels


@pytest.mark.parametrize("pairs", [10, 1000])
@given(st.integers(0, 12), st.integers(0, 10_000), st.floats(-1, 1))
def test_link_clusters_are_the_connected_components(pairs, count, seed, threshold):
    vectors = np.random.default_rng(seed).standard_normal((count, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ecs_plugins.memory.clustering._BLOCK", pairs)  # compared at a time
        found = link_labels(vectors, threshold, [""] * count)
    assert found == by_flood_fill(vectors @ vectors.T, threshold)


def test_a_large_hot_tier_is_clustered_without_a_matrix_of_all_pairs():
    count = 12_000  # all pairs: 576 MB
    vectors = np.random.default_rng(0).standard_normal((count, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tracemalloc.start()
    cluster(vectors, [""] * count, MemoryConfig(merge_threshold=0.95), seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


def test_kmeans_separates_the_subjects_repeats_by_seed_and_leaves_no_cluster_empty():
    vectors = np.stack([axis(0), axis(1), axis(0), axis(1)])
    labels = kmeans_labels(vectors, 2, seed=3)
    assert labels[0] == labels[2] != labels[1] == labels[3]
    assert labels == kmeans_labels(vectors, 2, seed=3)
    assert kmeans_labels(vectors[[0, 0, 2, 2]], 3, seed=3) == [0] * 4


@given(st.integers(0, 10_000), st.floats(-1, 1), st.lists(st.integers(0, 2), max_size=12))
def test_texts_that_say_something_else_are_in_no_common_cluster(seed, threshold, numbers):
    vectors = np.random.default_rng(seed).standard_normal((len(numbers), 3))
    labels = link_labels(vectors, threshold, [f"the code is {n}" for n in numbers])
    free = link_labels(vectors, threshold, ["the code"] * len(numbers))
    for row in range(len(numbers)):
        for other in range(row):
            if labels[row] == labels[other]:
                assert numbers[row] == numbers[other]
                assert free[row] == free[other]
    if len(set(numbers)) == 1:
        assert labels == free


def test_the_nearest_rows_are_joined_first():
    vectors = np.stack([axis(0, 1, 0.8), axis(0), axis(0, 1, 0.95)])
    texts = ["the code is 1", "the code is 2", "is that the code?"]
    labels = link_labels(vectors, 0.7, texts)
    assert labels == [0, 1, 1]
