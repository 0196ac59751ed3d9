"""The probability that a passage helps to answer: one number that means the same everywhere.

A logistic function of what a signal says of a passage, fitted to public questions whose evidence is
known. It belongs to a model and a signal: `SHIPPED` holds what comes with the package, and
`ModelDiagnostics` fits one to examples of your own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from ecs_plugins.ranking.fused import learned, z_scores
from ecs_plugins.shaping.signals.base import UnitUtility, by_score

FEATURES = (
    "explained",
    "relevance",
    "place",
    "query_shift_per_token",
    "answer_shift_per_token",
)
"""Parts of a verdict that a fit uses where the signal gives them; else it uses the utility."""
INVERSE_RIDGE = 100.0
"""Of the regression: few examples give small weights."""


class LabelledList(NamedTuple):
    """Passages that were scored together: the parts of each, and labels of those that help."""

    parts: Sequence[Mapping[str, float]]
    labels: Sequence[bool]


@dataclass(frozen=True, slots=True)
class ProbabilityFit:
    """``1 / (1 + exp(-(intercept + sum of weight * part)))`` over parts of a verdict by name."""

    intercept: float
    weights: Mapping[str, float]

    def of(self, parts: Mapping[str, float]) -> float | None:
        """Return the probability that a passage helps, in [0, 1]; None if a part is missing."""
        if not self.weights.keys() <= parts.keys():
            return None
        log_odds = self.intercept
        for name, weight in self.weights.items():
            log_odds += weight * parts[name]
        return 0.5 * (1.0 + math.tanh(0.5 * log_odds))

    def told(self, scored: Mapping[int, UnitUtility]) -> Mapping[int, UnitUtility]:
        """Return utilities with their probabilities, the largest to the best by score.

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
        cls,
        parts: Sequence[Mapping[str, float]],
        labels: Sequence[bool],
    ) -> ProbabilityFit | None:
        """Fit to passages of which it is known whether they help; None if all are alike."""
        from sklearn.linear_model import LogisticRegression

        if len(set(labels)) < 2:
            return None
        common = set(FEATURES).intersection(*parts)
        names = [name for name in FEATURES if name in common] or ["utility"]
        rows = [[each[name] for name in names] for each in parts]
        fitted = LogisticRegression(C=INVERSE_RIDGE, max_iter=500).fit(rows, labels)
        return cls(
            float(fitted.intercept_[0]), dict(zip(names, fitted.coef_[0].tolist(), strict=True))
        )

    @classmethod
    def fitted_to_lists(cls, lists: Iterable[LabelledList]) -> ProbabilityFit | None:
        """Fit to lists of passages, each also without its evidence; see `fitted`.

        From lists that all hold their evidence it would learn that the first one always helps.
        """
        parts: list[Mapping[str, float]] = []
        labels: list[bool] = []
        for each in lists:
            others = without_evidence(each)
            parts += [*each.parts, *others]
            labels += [*each.labels, *[False] * len(others)]
        return cls.fitted(parts, labels)


def without_evidence(labelled: LabelledList) -> list[dict[str, float]]:
    """Return the parts of the other passages of a list as if those that help were not in it.

    They move up in place, and their relevance is standardised anew.
    """
    if not any(labelled.labels):
        return []
    pairs = zip(labelled.parts, labelled.labels, strict=True)
    others = [dict(parts) for parts, helps in pairs if not helps]
    placed = sorted((each for each in others if "place" in each), key=itemgetter("place"))
    for place, parts in enumerate(placed, 1):
        parts["place"] = math.log(place)
    ranked = [parts for parts in others if "relevance" in parts]
    relevance = z_scores([parts["relevance"] for parts in ranked])
    for parts, value in zip(ranked, relevance, strict=True):
        parts["relevance"] = value
    return others


def _shipped() -> ProbabilityFit:
    fit = learned()["probability"]
    return ProbabilityFit(fit["intercept"], fit["weights"])


SHIPPED: dict[tuple[str, str], ProbabilityFit] = {
    ("SmolLM2-135M-Instruct", "query_likelihood+bm25+dense"): _shipped()
}
"""Fits by the names of model and signal. ``python -m benchmarks fusion`` makes them."""
