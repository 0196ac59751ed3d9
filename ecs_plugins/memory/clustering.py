"""Which hot items say the same: link clusters at a threshold, or the paper's k-means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.memory.wording import difference

Rows = npt.NDArray[np.int64]

_BLOCK = 1 << 23  # cosines computed at a time


def cluster(
    vectors: Matrix, texts: Sequence[str], config: MemoryConfig, seed: int
) -> list[list[int]]:
    """Partition the rows of ``vectors`` [n, d]; each cluster lists its rows in order.

    Clusters are ordered by their first row. Only link clusters keep ``texts`` apart that say
    different things: what k-means puts together is not meant to say the same.
    """
    if not len(vectors):
        return []
    if config.rule == "paper":
        labels = kmeans_labels(vectors, config.clusters, seed)
    else:
        labels = link_labels(vectors, config.merge_threshold, texts)
    clusters: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        clusters.setdefault(label, []).append(row)
    return list(clusters.values())


def link_labels(vectors: Matrix, threshold: float, texts: Sequence[str]) -> list[int]:
    """Return the connected components of the graph ``cosine >= threshold``.

    Two components are not joined if a text of the one says something else than a text of the
    other (`wording`); the nearest pairs are joined first.

    Returns:
        For each row the smallest row of its component.
    """
    rows, columns, cosines = _links(vectors, threshold)
    nearest_first = np.argsort(-cosines, kind="stable")
    root = list(range(len(vectors)))
    members = [[row] for row in root]
    for a, b in zip(rows[nearest_first].tolist(), columns[nearest_first].tolist(), strict=True):
        low, high = sorted((root[a], root[b]))
        if low == high or any(
            difference(texts[one], texts[other]) for one in members[low] for other in members[high]
        ):
            continue
        for row in members[high]:
            root[row] = low
        members[low] += members[high]
    return root


def _links(vectors: Matrix, threshold: float) -> tuple[Rows, Rows, Vector]:
    """The pairs of rows that are linked, and their cosines, without a matrix of all pairs."""
    found = []
    count = max(1, len(vectors))
    step = max(1, _BLOCK // count)
    for start in range(0, count, step):
        cosines = vectors[start : start + step] @ vectors[start:].T
        rows, columns = np.nonzero(np.triu(cosines >= threshold, k=1))
        found.append((rows + start, columns + start, cosines[rows, columns]))
    rows, columns, near = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows, columns, near


def kmeans_labels(vectors: Matrix, clusters: int, seed: int) -> list[int]:
    """Return the k-means labels of the rows, with at most as many clusters as distinct rows."""
    from sklearn.cluster import KMeans

    count = min(clusters, len(np.unique(vectors, axis=0)))
    model = KMeans(n_clusters=count, n_init=1, random_state=seed % 2**32)
    return [int(label) for label in model.fit_predict(vectors)]


def medoid(vectors: Matrix) -> int:
    """Return the row of ``vectors`` [m, d] nearest to their mean."""
    return int(np.argmax(vectors @ vectors.mean(axis=0)))
