"""The probability that a passage helps to answer: one number that means the same everywhere.

A logistic function of what a signal says of a passage, fitted to public questions whose evidence is
known. It belongs to a model and a signal: `SHIPPED` holds what comes with the package, and
`ModelDiagnostics` fits one to examples of your own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ecs_plugins.shaping.signals.base import UnitUtility, by_score

FEATURES = (
    "explained",
    "shared_words",
    "crowd",
    "query_shift_per_token",
    "answer_shift_per_token",
)
"""Parts of a verdict that a fit uses where the signal gives them; else it uses the utility."""


@dataclass(frozen=True, slots=True)
class ProbabilityFit:
    """``1 / (1 + exp(-(intercept + sum of weight * part)))`` over parts of a verdict by name."""

    intercept: float
    weights: Mapping[str, float]

    def of(self, parts: Mapping[str, float]) -> float | None:
        """The probability, in [0, 1]; None where a part is missing."""
        if not self.weights.keys() <= parts.keys():
            return None
        log_odds = self.intercept
        for name, weight in self.weights.items():
            log_odds += weight * parts[name]
        return 0.5 * (1.0 + math.tanh(0.5 * log_odds))

    def told(self, scored: Mapping[int, UnitUtility]) -> Mapping[int, UnitUtility]:
        """The same with their probabilities, the largest to the best by score.

        None has one where a passage lacks a part.
        """
        values: list[float] = []
        for utility in scored.values():
            parts = {**utility.parts, "utility": utility.utility}
            value = self.of(parts)
            if value is None:
                return scored
            values.append(value)
        values.sort(reverse=True)
        told: dict[int, UnitUtility] = {}
        for index, value in zip(by_score(scored), values, strict=True):
            told[index] = replace(scored[index], probability=value)
        return told

    @classmethod
    def fitted(
        cls, parts: Sequence[Mapping[str, float]], labels: Sequence[bool]
    ) -> ProbabilityFit | None:
        """Fitted to passages of which it is known whether they help; None if all are alike."""
        from sklearn.linear_model import LogisticRegression

        if len(set(labels)) < 2:
            return None
        common = set(FEATURES).intersection(*parts)
        names = [name for name in FEATURES if name in common] or ["utility"]
        rows = [[each[name] for name in names] for each in parts]
        regression = LogisticRegression(C=100.0, max_iter=1000)
        regression.fit(rows, labels)
        coefficients = regression.coef_[0].tolist()
        intercept = float(regression.intercept_[0])
        weights = dict(zip(names, coefficients, strict=True))
        return cls(intercept, weights)


SHIPPED: dict[tuple[str, str], ProbabilityFit] = {
    ("SmolLM2-135M-Instruct", "query_likelihood+bm25"): ProbabilityFit(
        -3.65, {"explained": 6.86, "shared_words": 7.51, "crowd": -1.05}
    )
}
"""By the names of model and signal. ``python -m benchmarks answerable`` makes them; the weight of
``crowd`` is fitted with the others held, to lists of up to 40 sentences that a ranker found."""
