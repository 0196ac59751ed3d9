"""Statistics of scores whose labels are known: pure functions of arrays.

Passages of one question are alike, so whole questions are held out or resampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.int64]

FOLDS = 5
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of a number: mean, standard deviation, and quantiles at 5, 50 and 95 %."""

    count: int
    mean: float
    sd: float
    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Floats) -> Distribution | None:
        """Summarise the finite values; None if there is none."""
        finite = values[np.isfinite(values)]
        if not finite.size:
            return None
        low, median, high = np.quantile(finite, [0.05, 0.5, 0.95]).tolist()
        return cls(finite.size, float(finite.mean()), float(finite.std()), low, median, high)


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
    """A threshold for the best F1, with its precision and recall on held-out questions.

    ``low`` and ``high`` are the extremes of those that were fitted without some of the questions.
    """

    value: float
    precision: float
    recall: float
    f1: float
    low: float
    high: float


def mean_of(values: Floats, *, seed: int = 42) -> Estimate:
    """Return the mean of at least one value with its bootstrap interval."""
    from scipy.stats import bootstrap

    mean = float(values.mean())
    if np.ptp(values) == 0.0:  # nothing to resample
        return Estimate(mean, mean, mean)
    resampled = bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=seed
    ).confidence_interval
    return Estimate(mean, float(resampled.low), float(resampled.high))


def auc(scores: Floats, labels: Labels) -> float:
    """Return the probability that evidence scores above a distractor; NaN if undefined."""
    if labels.all() or not labels.any():
        return math.nan
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def question_auc(
    scores: Floats, labels: Labels, questions: Groups, *, seed: int = 42
) -> tuple[Estimate | None, int]:
    """Return the mean AUC within questions, and the number of questions that have one.

    Ranking needs this one: passages compete only with others for the same question.
    """
    of_each: list[float] = []
    for question in np.unique(questions):
        own = questions == question
        of_each.append(auc(scores[own], labels[own]))
    defined = np.array(of_each, dtype=np.float64)
    defined = defined[np.isfinite(defined)]
    if not defined.size:
        return None, 0
    return mean_of(defined, seed=seed), int(defined.size)


def best_threshold(scores: Floats, labels: Labels) -> float:
    """Return the threshold, 0 or more, of the best F1; the larger one of equals.

    It lies midway between two scores, or at 0 where everything above that is kept.
    """
    from sklearn.metrics import precision_recall_curve

    # A negative score is never kept: below every candidate, it only counts as missed evidence.
    clipped = np.where(scores < 0.0, -1.0, scores)
    precision, recall, values = precision_recall_curve(labels, clipped)
    together = np.maximum(precision + recall, 1e-12)
    f1 = (2.0 * precision * recall / together)[:-1]
    f1[values < 0.0] = -1.0
    at = len(f1) - 1 - int(np.argmax(f1[::-1] >= f1.max() - 1e-12))
    below = values[at - 1] if at else -1.0
    return 0.0 if below < 0.0 else float((values[at] + below) / 2.0)


def held_out_threshold(
    scores: Floats, labels: Labels, questions: Groups, *, seed: int = 42
) -> Threshold | None:
    """Return the best threshold, with precision and recall of those fitted without each fold.

    None with fewer than two questions, or without both evidence and distractors.
    """
    if labels.all() or not labels.any():
        return None
    from sklearn.metrics import precision_recall_fscore_support

    fitted: list[float] = []
    kept = np.zeros(len(labels), dtype=bool)
    for inside, outside in folds(questions, seed=seed):
        if labels[inside].any():
            fitted.append(best_threshold(scores[inside], labels[inside]))
            kept[outside] = scores[outside] >= fitted[-1]
    if not fitted:
        return None
    precision, recall, f1, _ = precision_recall_fscore_support(
        labels, kept, average="binary", zero_division=0.0
    )
    return Threshold(
        value=best_threshold(scores, labels),
        precision=float(precision),
        recall=float(recall),
        f1=float(f1),
        low=min(fitted),
        high=max(fitted),
    )


def folds(questions: Groups, *, seed: int = 42) -> Iterator[tuple[Labels, Labels]]:
    """Yield masks of the fitted and the held-out part: whole questions, each held out once."""
    from sklearn.model_selection import KFold

    unique = np.unique(questions)
    if unique.size < 2:
        return
    splits = KFold(min(FOLDS, unique.size), shuffle=True, random_state=seed)
    for _, held_out in splits.split(unique):
        outside = np.isin(questions, unique[held_out])
        yield ~outside, outside
