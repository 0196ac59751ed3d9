"""How good a choice of turns is: precision, recall and F1 at k, as pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np


def hits(order: Sequence[str], evidence: Collection[str], k: int) -> int:
    """How many of the first ``k`` are evidence."""
    return len(set(order[:k]) & set(evidence))


def precision(order: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Share of the first ``k`` that is evidence."""
    return hits(order, evidence, k) / k


def recall(order: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Share of the evidence that is among the first ``k``."""
    return hits(order, evidence, k) / len(set(evidence))


def evidence_f1(order: Sequence[str], evidence: Collection[str]) -> float:
    """F1 where k is the number of pieces of evidence: precision and recall are equal there."""
    return recall(order, evidence, len(set(evidence)))


def interval(
    values: Sequence[float], *, resamples: int = 2000, seed: int = 42
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean, over questions."""
    data = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = data[rng.integers(0, len(data), (resamples, len(data)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
