import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.memory.clustering import cluster, kmeans_labels, link_labels, medoid
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


@given(st.integers(0, 12), st.integers(0, 10_000), st.floats(-1, 1))
def test_link_clusters_are_the_connected_components(count, seed, threshold):
    vectors = np.random.default_rng(seed).standard_normal((count, 3))
    similarities = (vectors @ vectors.T).astype(np.float32)
    assert link_labels(similarities, threshold) == by_flood_fill(similarities, threshold)


def test_there_are_as_many_link_clusters_as_subjects():
    vectors = np.stack([axis(0), axis(1), axis(0), axis(2), axis(1)])
    assert cluster(vectors, MemoryConfig(), seed=0) == [[0, 2], [1, 4], [3]]


def test_clusters_of_nothing_are_none():
    assert cluster(np.zeros((0, 8), dtype=np.float32), MemoryConfig(), seed=0) == []


def test_kmeans_separates_the_subjects_and_repeats_by_seed():
    vectors = np.stack([axis(0), axis(1), axis(0), axis(1)])
    labels = kmeans_labels(vectors, 2, seed=3)
    assert labels[0] == labels[2] != labels[1] == labels[3]
    assert labels == kmeans_labels(vectors, 2, seed=3)


def test_kmeans_asks_for_no_more_clusters_than_distinct_vectors():
    assert kmeans_labels(np.stack([axis(0)] * 6), 5, seed=0) == [0] * 6


def test_the_medoid_is_nearest_to_the_mean():
    vectors = np.stack([axis(0), axis(0, 1, 0.9), axis(0, 1, 0.6)])
    assert medoid(vectors) == 1


@given(st.integers(0, 12), st.integers(0, 10_000), st.floats(-1, 1), st.sets(st.integers(0, 143)))
def test_rows_that_must_stay_apart_are_in_no_common_cluster(count, seed, threshold, pairs):
    vectors = np.random.default_rng(seed).standard_normal((count, 3))
    similarities = (vectors @ vectors.T).astype(np.float32)
    forbidden = {frozenset(divmod(pair, 12)) for pair in pairs}

    def apart(row, other):
        return frozenset((row, other)) in forbidden

    labels = link_labels(similarities, threshold, apart)
    free = link_labels(similarities, threshold)
    for row in range(count):
        for other in range(row):
            if labels[row] == labels[other]:
                assert not apart(row, other)
                assert free[row] == free[other]
    if not forbidden:
        assert labels == free


def test_the_nearest_rows_are_joined_first():
    vectors = np.stack([axis(0, 1, 0.8), axis(0), axis(0, 1, 0.95)])
    labels = link_labels(vectors @ vectors.T, 0.7, lambda row, other: {row, other} == {0, 1})
    assert labels == [0, 1, 1]
