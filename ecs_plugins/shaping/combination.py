"""A logistic regression on utilities, as plain numbers that can be stored and recomputed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.shaping.diagnostics.statistics import Estimate, Floats, Groups, Labels, Threshold

MIN_COMPANY = 3
"""Passages scored together from which on they are compared with each other."""


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """Where a combination comes from and what it was worth on questions held out.

    Attributes:
        model: Name of the model.
        created: ISO 8601 date and time with time zone.
        package_version: Of this package.
        data_hash: SHA-256 of the examples.
        seed: Of the folds.
        questions: Questions with evidence and distractors.
        passages: How many.
        evidence: How many of them help.
        auc: Mean over held-out questions of the AUC within each.
        log_loss: Mean over held-out passages, in nats.
        base_log_loss: The same if every passage got the share of evidence as its probability.
        threshold: The fitted threshold and what to expect of it.
    """

    model: str
    created: str
    package_version: str
    data_hash: str
    seed: int
    questions: int
    passages: int
    evidence: int
    auc: Estimate
    log_loss: float
    base_log_loss: float
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class LogisticModel:
    """Log-odds from utilities; plain numbers.

    Attributes:
        means: Of every utility in the examples.
        scales: Standard deviations.
        weights: Of every standardised utility.
        intercept: Log-odds of a passage that is average in all.

    Raises:
        InvalidInputError: There are not as many of each, or a scale is not positive.
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float

    def __post_init__(self) -> None:
        if not len(self.means) == len(self.scales) == len(self.weights):
            raise InvalidInputError("a logistic model needs as many means, scales and weights")
        if not all(scale > 0.0 for scale in self.scales):
            raise InvalidInputError("the scales of a logistic model must be positive")

    @classmethod
    def fit(cls, utilities: Floats, labels: Labels, *, prior: float) -> LogisticModel:
        """The most likely weights under a normal prior of this variance around zero.

        Args:
            utilities: ``[passages, signals]``, finite.
            labels: ``[passages]``, of both kinds.
            prior: Variance of the weights; the smaller, the closer to zero they stay.
        """
        from sklearn.linear_model import LogisticRegression

        means, scales = utilities.mean(axis=0), utilities.std(axis=0)
        scales[scales == 0.0] = 1.0
        found = LogisticRegression(C=prior, max_iter=1000)
        found.fit((utilities - means) / scales, labels)
        return cls(
            tuple(float(value) for value in means),
            tuple(float(value) for value in scales),
            tuple(float(value) for value in found.coef_[0]),
            float(found.intercept_[0]),
        )

    def log_odds(self, utilities: Floats) -> Floats:
        """``[passages]`` from ``[passages, signals]``; NaN where a utility is."""
        standardised = (utilities - np.array(self.means)) / np.array(self.scales)
        return np.asarray(standardised @ np.array(self.weights) + self.intercept)


@dataclass(frozen=True, slots=True)
class PassageModel:
    """Log-odds of passages that were scored for the same question.

    Some questions raise the utility of every passage, evidence or not, and some spread them further
    than others, so what counts is by how many standard deviations a passage lies above the mean
    of its question. Where there are too few others for that, the utilities as they are have to do.

    Attributes:
        among: For z-scores over the passages scored together.
        alone: For utilities as they are, where fewer than `MIN_COMPANY` were scored together.
    """

    among: LogisticModel
    alone: LogisticModel

    @classmethod
    def fit(
        cls, utilities: Floats, labels: Labels, questions: Groups, *, prior: float
    ) -> PassageModel:
        """Fit both; see `LogisticModel.fit`."""
        relative = np.array(utilities)
        for question in np.unique(questions):
            at = questions == question
            relative[at] = _z_scores(utilities[at], utilities[at])
        return cls(
            LogisticModel.fit(relative, labels, prior=prior),
            LogisticModel.fit(utilities, labels, prior=prior),
        )

    def log_odds(self, utilities: Floats) -> Floats:
        """``[passages]`` from the ``[passages, signals]`` of one question; NaN where one is."""
        whole = np.isfinite(utilities).all(axis=1)
        if whole.sum() < MIN_COMPANY:
            return self.alone.log_odds(utilities)
        return self.among.log_odds(_z_scores(utilities, utilities[whole]))


@dataclass(frozen=True, slots=True)
class Combination:
    """How signals are combined: all that is ever stored.

    Attributes:
        signals: Their names.
        model: The coefficients.
        record: Where they come from.

    Raises:
        InvalidInputError: The coefficients are not those of so many signals.
    """

    signals: tuple[str, ...]
    model: PassageModel
    record: CalibrationRecord

    def __post_init__(self) -> None:
        sizes = {len(self.model.among.weights), len(self.model.alone.weights)}
        if not self.signals or sizes != {len(self.signals)}:
            raise InvalidInputError("a combination needs one coefficient per signal")


def probability_of(log_odds: Floats) -> Floats:
    """The logistic function, without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(log_odds / 2)))


def _z_scores(utilities: Floats, company: Floats) -> Floats:
    spread = company.std(axis=0)
    spread[spread == 0.0] = 1.0
    return np.asarray((utilities - company.mean(axis=0)) / spread)
