"""The probability that a passage helps to answer: one number that means the same everywhere.

A logistic function of what a signal says of a passage, fitted to public questions whose evidence is
known. It belongs to a model and a signal: `SHIPPED` holds what comes with the package, and
`ModelDiagnostics` fits one to examples of your own.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter

from ecs_plugins.common.files import read_text, read_versioned, write_atomically
from ecs_plugins.ranking.fused import learned, z_scores
from ecs_plugins.shaping.signals.base import UnitUtility, by_score
from ecs_plugins.shaping.statistics import Floats, Labels

FEATURES = (
    "explained",
    "relevance",
    "place",
    "query_shift_per_token",
    "answer_shift_per_token",
)
"""Parts of a verdict that a fit uses where the signal gives them; else it uses the utility."""
_FORMAT = "ecs_plugins.ProbabilityFit"
PRIOR_SD = 3.0
"""How far a weight may well lie from that of a prior: half of what the shipped ones are."""
NO_PRIOR_SD = 10.0
"""The same without a prior, around 0."""


class LabelledList(NamedTuple):
    """Passages that were scored together: the parts of each, and labels of those that help."""

    parts: Sequence[Mapping[str, float]]
    labels: Sequence[bool]


@dataclass(frozen=True, slots=True)
class ProbabilityFit:
    """``1 / (1 + exp(-(intercept + sum of weight * part)))`` over parts of a verdict by name."""

    intercept: float
    weights: Mapping[str, float]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a JSON file, whole or not at all.

        Raises:
            StorageError: It cannot be written.
        """
        head = {"format": _FORMAT, "version": 1}
        text = json.dumps({**head, **asdict(self)}, indent=1, allow_nan=False)
        return write_atomically(Path(path), f"{text}\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ProbabilityFit:
        """Read a file that `save` wrote.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: It is something else, damaged, or of another version.
        """
        return read_versioned(
            TypeAdapter(cls),
            read_text(path),
            _FORMAT,
            1,
            source=str(path),
            otherwise="does not hold a fitted probability; write one with save",
            again="fit again",
        )

    def of(self, parts: Mapping[str, float]) -> float | None:
        """Return the probability, in [0, 1]; None where a part is missing."""
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
        prior: ProbabilityFit | None = None,
    ) -> ProbabilityFit | None:
        """Fitted to passages of which it is known whether they help; None if all are alike.

        It maximises the likelihood of the labels and the normal density of intercept and weights
        around those of ``prior``, or around 0, with a standard deviation of `PRIOR_SD` or
        `NO_PRIOR_SD`: few examples move a prior little.
        """
        if len(set(labels)) < 2:
            return None
        common = set(FEATURES).intersection(*parts)
        names = [name for name in FEATURES if name in common] or ["utility"]
        rows = [[1.0, *(each[name] for name in names)] for each in parts]
        expected = np.zeros(1 + len(names))
        sd = NO_PRIOR_SD
        if prior is not None:
            weights = [prior.weights.get(name, 0.0) for name in names]
            expected = np.array([prior.intercept, *weights])
            sd = PRIOR_SD
        fitted = _most_likely(np.array(rows), np.array(labels, dtype=bool), expected, sd)
        intercept, *own_weights = fitted.tolist()
        return cls(intercept, dict(zip(names, own_weights, strict=True)))

    @classmethod
    def fitted_to_lists(
        cls, lists: Iterable[LabelledList], prior: ProbabilityFit | None = None
    ) -> ProbabilityFit | None:
        """Fit to lists of passages, each also without its evidence; see `fitted`.

        From lists that all hold their evidence it would learn that the first one always helps.
        """
        parts: list[Mapping[str, float]] = []
        labels: list[bool] = []
        for each in lists:
            others = without_evidence(each)
            parts += [*each.parts, *others]
            labels += [*each.labels, *[False] * len(others)]
        return cls.fitted(parts, labels, prior)


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


def _most_likely(rows: Floats, labels: Labels, expected: Floats, sd: float) -> Floats:
    """Intercept and weights ``[n]`` of a logistic regression, expected to be some."""
    from scipy.optimize import minimize

    signs = np.where(labels, 1.0, -1.0)
    precision = 1.0 / sd**2

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signs * (rows @ weights)
        away = weights - expected
        # The derivative of ln(1 + exp(-m)) is that of its logistic function, without overflow.
        wrong = 0.5 * (1.0 - np.tanh(0.5 * margins))
        value = np.logaddexp(0.0, -margins).sum() + 0.5 * precision * (away @ away)
        gradient = precision * away - rows.T @ (signs * wrong)
        return float(value), gradient

    found: Floats = minimize(loss, expected, jac=True, method="L-BFGS-B").x
    return found


def _shipped() -> ProbabilityFit:
    fit = learned()["probability"]
    return ProbabilityFit(fit["intercept"], fit["weights"])


SHIPPED: dict[tuple[str, str], ProbabilityFit] = {
    ("SmolLM2-135M-Instruct", "query_likelihood+bm25+dense"): _shipped()
}
"""Fits by the names of model and signal. ``python -m benchmarks fusion`` makes them."""
