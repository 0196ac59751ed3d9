import random

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from benchmarks.evidence.metrics import auc, evidence_f1, recall_at


def rankings():
    rng = random.Random(0)
    for size in (2, 3, 7, 20):
        for _ in range(8):
            order = rng.sample(range(size), size)
            yield order, sorted(rng.sample(range(size), rng.randint(1, size - 1)))


@pytest.mark.parametrize(("order", "evidence"), list(rankings()))
def test_metrics_agree_with_scikit_learn(order, evidence):
    relevant = np.array([i in evidence for i in range(len(order))], dtype=float)
    scores = np.empty(len(order))
    scores[order] = -np.arange(len(order))
    chosen = np.zeros(len(order))
    chosen[order[: len(evidence)]] = 1
    assert evidence_f1(order, evidence) == pytest.approx(f1_score(relevant, chosen))
    assert auc(order, evidence) == pytest.approx(roc_auc_score(relevant, scores))


def test_evidence_outside_the_pool_counts_as_not_found():
    assert recall_at([3, 1], [1, 9], 10) == 0.5
    assert evidence_f1([1, 3], [1, 9]) == 0.5


def test_auc_needs_evidence_and_something_else_in_the_order():
    assert auc([1, 2], [1, 2]) is None
    assert auc([1, 2], [5]) is None
