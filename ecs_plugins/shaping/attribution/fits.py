"""What joins shift and words: a logistic function.

Learned with the bundled model from questions of SQuAD and HotpotQA (CC BY-SA 4.0) and MuSiQue
(CC BY 4.0) by ``python -m benchmarks attribution``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Logistic:
    """``1 / (1 + exp(-(intercept + sum of weight * feature)))`` over features by name."""

    intercept: float
    weights: Mapping[str, float]

    def probability(self, features: Mapping[str, float]) -> float:
        """In [0, 1]; a feature without a weight does not count."""
        products = (weight * features[name] for name, weight in self.weights.items())
        logit = self.intercept + sum(products)
        return 0.5 * (1.0 + math.tanh(0.5 * logit))


CITATION = Logistic(
    -1.495,
    {
        "shift": 0.008,
        "question_shift": -0.842,
        "covered": 2.21,
        "question_covered": -2.951,
        "shift_among_all": 0.468,
        "question_shift_among_all": 1.194,
        "bm25_among_all": 1.171,
    },
)
"""That a passage is evidence of a statement."""
