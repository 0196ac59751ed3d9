import random

import numpy as np
import pytest
from sklearn.metrics import f1_score, ndcg_score, roc_auc_score

from benchmarks.evidence.metrics import auc, evidence_f1, ndcg, other_hops, recall_at


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
    assert ndcg(order, evidence, 5) == pytest.approx(ndcg_score([relevant], [scores], k=5))


def test_evidence_outside_the_pool_counts_as_not_found():
    assert recall_at([3, 1], [1, 9], 10) == 0.5
    assert evidence_f1([1, 3], [1, 9]) == 0.5
    assert ndcg([9, 1], [7], 10) == 0.0


def test_auc_needs_evidence_and_something_else_in_the_order():
    assert auc([1, 2], [1, 2]) is None
    assert auc([1, 2], [5]) is None


def test_the_second_hop_excludes_the_first():
    evidence, hops = (0, 1, 5), ("a", "a", "b")
    assert other_hops([0, 1, 5], evidence, hops, 2) == 0.0
    assert other_hops([0, 1, 5], evidence, hops, 3) == 1.0
    assert other_hops([5, 2, 0], evidence, hops, 3) == 1.0
    assert other_hops([8, 9, 7], evidence, hops, 3) == 0.0


def test_a_single_hop_has_no_second_one():
    assert other_hops([0, 1], (0, 1), ("a", "a"), 2) is None
