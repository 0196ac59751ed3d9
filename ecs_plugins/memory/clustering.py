"""Which hot items say the same: link clusters at a threshold, or the paper's k-means."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.pairs import pairs_above
from ecs_plugins.memory.types import Matrix

Apart: TypeAlias = Callable[[int, int], bool]
"""Whether two rows must not be in one cluster, however near they are."""


def cluster(
    vectors: Matrix, config: MemoryConfig, seed: int, apart: Apart | None = None
) -> list[list[int]]:
    """Partition the rows of ``vectors`` [n, d]; each cluster lists its rows in order.

    Clusters are ordered by their first row. Only link clusters keep rows ``apart``: what k-means
    puts together is not meant to say the same.
    """
    if not len(vectors):
        return []
    if config.clustering == "kmeans":
        labels = kmeans_labels(vectors, config.clusters, seed)
    else:
        labels = link_labels(vectors @ vectors.T, config.merged_from, apart)
    clusters: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        clusters.setdefault(label, []).append(row)
    return list(clusters.values())


def link_labels(similarities: Matrix, threshold: float, apart: Apart | None = None) -> list[int]:
    """Return the connected components of the graph ``similarity >= threshold``.

    Two components of which some rows must stay apart are not joined; the nearest pairs are
    joined first.

    Args:
        similarities: Symmetric [n, n].
        threshold: Least similarity of two linked rows.
        apart: Which rows must not be in one component; None restricts nothing.

    Returns:
        For each row the smallest row of its component.
    """
    pairs = [(row, column) for row, column in pairs_above(similarities, threshold) if row < column]
    pairs.sort(key=lambda pair: -similarities[pair])
    root = list(range(len(similarities)))
    members = [[row] for row in root]
    for a, b in pairs:
        low, high = sorted((root[a], root[b]))
        if low == high or _conflict(members[low], members[high], apart):
            continue
        for row in members[high]:
            root[row] = low
        members[low] += members[high]
    return root


def _conflict(some: list[int], others: list[int], apart: Apart | None) -> bool:
    return apart is not None and any(apart(row, other) for row in some for other in others)


def kmeans_labels(vectors: Matrix, clusters: int, seed: int) -> list[int]:
    """Return the k-means labels of the rows, with at most as many clusters as distinct rows."""
    from sklearn.cluster import KMeans

    count = min(clusters, len(np.unique(vectors, axis=0)))
    model = KMeans(n_clusters=count, n_init=1, random_state=seed % 2**32)
    return [int(label) for label in model.fit_predict(vectors)]


def medoid(vectors: Matrix) -> int:
    """Return the row of ``vectors`` [m, d] nearest to their mean."""
    return int(np.argmax(vectors @ vectors.mean(axis=0)))
