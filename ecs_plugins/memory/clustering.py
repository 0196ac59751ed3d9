"""Which hot items say the same: link clusters at a threshold, or the paper's k-means."""

from __future__ import annotations

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import Matrix


def cluster(vectors: Matrix, config: MemoryConfig, seed: int) -> list[list[int]]:
    """Partition the rows of ``vectors`` [n, d]; each cluster lists its rows in order.

    Clusters are ordered by their first row.
    """
    if not len(vectors):
        return []
    if config.clustering == "kmeans":
        labels = kmeans_labels(vectors, config.clusters, seed)
    else:
        labels = link_labels(vectors @ vectors.T, config.merge_threshold)
    clusters: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        clusters.setdefault(label, []).append(row)
    return list(clusters.values())


def link_labels(similarities: Matrix, threshold: float) -> list[int]:
    """Return the connected components of the graph ``similarity >= threshold``.

    Args:
        similarities: Symmetric [n, n].
        threshold: Least similarity of two linked rows.

    Returns:
        For each row the smallest row of its component.
    """
    parent = list(range(len(similarities)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    first, second = np.nonzero(np.triu(similarities >= threshold, k=1))
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return [root(row) for row in range(len(parent))]


def kmeans_labels(vectors: Matrix, clusters: int, seed: int) -> list[int]:
    """Return the k-means labels of the rows, with at most as many clusters as distinct rows."""
    from sklearn.cluster import KMeans

    count = min(clusters, len(np.unique(vectors, axis=0)))
    model = KMeans(n_clusters=count, n_init=1, random_state=seed % 2**32)
    return [int(label) for label in model.fit_predict(vectors)]


def medoid(vectors: Matrix) -> int:
    """Return the row of ``vectors`` [m, d] nearest to their mean."""
    return int(np.argmax(vectors @ vectors.mean(axis=0)))
