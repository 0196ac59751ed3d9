"""What can be said of utilities whose labels are known: pure functions of arrays.

Passages of one question are alike, so whatever is held out or resampled is whole questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.int64]

FOLDS = 5
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Distribution:
    """How a number is distributed; 101 percentiles, from the smallest value to the largest."""

    count: int
    mean: float
    sd: float
    percentiles: Annotated[tuple[float, ...], Field(min_length=101, max_length=101)]

    @classmethod
    def of(cls, values: Floats) -> Distribution | None:
        """Of the finite values; None if there is none."""
        finite = values[np.isfinite(values)]
        if not finite.size:
            return None
        percentiles = np.percentile(finite, np.arange(101)).tolist()
        mean = float(finite.mean())
        sd = float(finite.std())
        return cls(finite.size, mean, sd, tuple(percentiles))

    def quantile(self, share: float) -> float:
        """The value below which this share lies."""
        percents = np.arange(101)
        value = np.interp(100.0 * share, percents, self.percentiles)
        return float(value)

    def share_above(self, threshold: float) -> float:
        """Which share reaches a threshold, to the nearest percent."""
        reached = np.asarray(self.percentiles) >= threshold
        return float(np.mean(reached))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval, from resampled questions."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold for the best F1, and what to expect of it on questions that were held out.

    ``low`` and ``high`` are the extremes of those that were fitted without some of the questions.
    """

    value: float
    precision: float
    recall: float
    f1: float
    low: float
    high: float


def auc(scores: Floats, labels: Labels) -> float:
    """Probability that evidence scores above a distractor, ties counting half; NaN if undefined."""
    if labels.all() or not labels.any():
        return math.nan
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def question_auc(
    scores: Floats, labels: Labels, questions: Groups, *, seed: int = 42
) -> tuple[Estimate | None, int]:
    """The mean over questions of the AUC within each, and how many questions have one.

    This is what ranking needs: passages compete with others for the same question only.
    """
    of_each: list[float] = []
    for question in np.unique(questions):
        at = questions == question
        of_each.append(auc(scores[at], labels[at]))
    defined = np.array(of_each, dtype=np.float64)
    defined = defined[np.isfinite(defined)]
    if not defined.size:
        return None, 0
    rng = np.random.default_rng(seed)
    draws = rng.integers(defined.size, size=(RESAMPLES, defined.size))
    means = defined[draws].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    estimate = Estimate(
        value=float(defined.mean()),
        low=float(low),
        high=float(high),
    )
    return estimate, int(defined.size)


def best_threshold(scores: Floats, labels: Labels) -> float:
    """The threshold, 0 or more, of the best F1; the larger one of two that are as good.

    It lies midway between two utilities, or at 0 where everything above that is kept.
    """
    values = np.unique([0.0, *scores[scores >= 0.0]])
    between = (values[1:] + values[:-1]) / 2
    candidates = np.concatenate([[0.0], between])
    evidence = scores[labels]
    kept = _reaching(scores, candidates)
    right = _reaching(evidence, candidates)
    together = np.maximum(kept + evidence.size, 1)
    f1 = 2 * right / together
    least = f1.max() - 1e-12
    as_good = np.flatnonzero(f1 >= least)
    largest = as_good[-1]
    return float(candidates[largest])


def _reaching(values: Floats, thresholds: Floats) -> Groups:
    """How many values reach each threshold."""
    ascending = np.sort(values)
    below = np.searchsorted(ascending, thresholds, side="left")
    return values.size - below


def held_out_threshold(
    scores: Floats, labels: Labels, questions: Groups, *, seed: int = 42
) -> Threshold | None:
    """The best threshold, with the precision and recall of those fitted without each fold.

    None with fewer than two questions, or without both evidence and distractors.
    """
    if labels.all() or not labels.any():
        return None
    kept = 0
    right = 0
    fitted: list[float] = []
    for inside, outside in folds(questions, seed=seed):
        if not labels[inside].any():
            continue
        threshold = best_threshold(scores[inside], labels[inside])
        fitted.append(threshold)
        reached = scores[outside] >= threshold
        is_right = reached & labels[outside]
        kept += int(reached.sum())
        right += int(is_right.sum())
    if not fitted:
        return None
    total = int(labels.sum())
    return Threshold(
        value=best_threshold(scores, labels),
        precision=right / kept if kept else 0.0,
        recall=right / total,
        f1=2 * right / (kept + total),
        low=min(fitted),
        high=max(fitted),
    )


def folds(questions: Groups, *, seed: int = 42) -> Iterator[tuple[Labels, Labels]]:
    """Masks of what is fitted on and of what is held out: whole questions, each held out once."""
    unique = np.unique(questions)
    if unique.size < 2:
        return
    rng = np.random.default_rng(seed)
    order = rng.permutation(unique)
    number = min(FOLDS, unique.size)
    for fold in range(number):
        outside = np.isin(questions, order[fold::number])
        yield ~outside, outside
