"""What follows from what was observed of one signal: how well it ranks, and whether to trust it.

A signal is *fit* where it puts evidence before distractors clearly more often than chance and its
threshold lies above both its numeric noise and what unrelated passages do to it. It is *weak* where
it ranks and one of these fails, and *unfit* where it may as well be chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.shaping.diagnostics.observe import Noise, Observations
from ecs_plugins.shaping.diagnostics.statistics import (
    Distribution,
    Estimate,
    Floats,
    Threshold,
    auc,
    held_out_threshold,
    question_auc,
)

FIT_AUC = 0.75
"""AUC from which on a signal ranks well."""
UNRELATED_SHARE = 0.05
"""Share of unrelated passages that a threshold may let pass."""
POOR_F1 = 0.5
"""Held-out F1 below which a threshold is better not used to decide."""
ENOUGH_QUESTIONS = 20
"""Questions with evidence and distractors below which nothing is called fit."""


class Fitness(StrEnum):
    """What is said of a signal with a model."""

    FIT = "fit"
    WEAK = "weak"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class SignalDiagnostics:
    """One signal with one model.

    Attributes:
        signal: Its name.
        unit: Of its utility.
        verdict: What is said of it.
        reasons: Why, in words.
        auc: Mean over questions of the AUC of evidence against distractors, by what passages are
            ordered by; None without a question that has both.
        pooled_auc: AUC over the passages of all questions, by the utility, which is what one
            threshold for all of them can use.
        evidence: Utilities of the evidence; None if there is none.
        distractors: Utilities of the other passages of the same questions; None if there are none.
        unrelated: Utilities of passages of other questions; None if there are none.
        noise: Largest difference between computations that should agree.
        threshold: The fitted one; None where none can be fitted or trusted.
        questions: Questions with evidence and distractors.
        unscored: Passages that could not be scored.
        tokens: Tokens computed per token of a passage.
    """

    signal: str
    unit: str
    verdict: Fitness
    reasons: tuple[str, ...]
    auc: Estimate | None
    pooled_auc: float | None
    evidence: Distribution | None
    distractors: Distribution | None
    unrelated: Distribution | None
    noise: Noise
    threshold: Threshold | None
    questions: int
    unscored: int
    tokens: float

    def unrelated_above(self, threshold: float) -> float | None:
        """Share of unrelated passages that reach a threshold."""
        return None if self.unrelated is None else self.unrelated.share_above(threshold)

    def objections(self, threshold: float) -> tuple[str, ...]:
        """What speaks against a threshold; nothing if it lies above noise and red herrings."""
        return _objections(threshold, self.unit, self.noise, self.unrelated)


def concluded(observed: Observations, n: int, seed: int) -> SignalDiagnostics:
    """What follows for the n-th signal."""
    signal, noise = observed.signals[n], observed.noise[n]
    scored = np.isfinite(observed.utilities[:, n]) & np.isfinite(observed.orders[:, n])
    utilities, labels = observed.utilities[scored, n], observed.labels[scored]
    questions = observed.questions[scored]
    estimate, number = question_auc(observed.orders[scored, n], labels, questions, seed=seed)
    unrelated = _distribution(observed.unrelated[:, n])
    threshold = held_out_threshold(utilities, labels, questions, seed=seed)
    drowned = threshold is not None and threshold.value <= noise.largest
    verdict, reasons = _judged(estimate, number, noise, _distribution(utilities))
    by_utility, _ = question_auc(utilities, labels, questions, seed=seed)
    if verdict is Fitness.UNFIT:
        threshold = None
    elif by_utility is not None and by_utility.low <= 0.5:
        # Some signals order by more than the utility, which a threshold is compared with.
        verdict, threshold = Fitness.WEAK, None
        reasons += (
            f"its utility alone puts evidence first with probability {by_utility}, which may be "
            "chance, so it has no threshold: rank only",
        )
    if threshold is not None and drowned:
        reasons += (
            f"the fitted threshold of {threshold.value:.3g} lies within the numeric noise of "
            f"{noise.largest:.2g} and is refused: rank only",
        )
        threshold = None
    elif threshold is not None:
        doubts = _objections(threshold.value, signal.unit, noise, unrelated)
        drowned = bool(doubts)
        reasons += doubts
        if threshold.f1 < POOR_F1:
            reasons += (
                f"its threshold decides poorly (precision {threshold.precision:.2f}, recall "
                f"{threshold.recall:.2f} on questions held out): rank with top_k, or fit a "
                "CalibratedSignal",
            )
    if verdict is Fitness.FIT and drowned:
        verdict = Fitness.WEAK
    if signal.threshold is not None:
        reasons += tuple(
            f"its own threshold: {doubt}"
            for doubt in _objections(signal.threshold, signal.unit, noise, unrelated)
        )
    pooled = auc(utilities, labels) if utilities.size else float("nan")
    return SignalDiagnostics(
        signal=signal.name,
        unit=signal.unit,
        verdict=verdict,
        reasons=reasons,
        auc=estimate,
        pooled_auc=None if np.isnan(pooled) else pooled,
        evidence=_distribution(utilities[labels]),
        distractors=_distribution(utilities[~labels]),
        unrelated=unrelated,
        noise=noise,
        threshold=threshold,
        questions=number,
        unscored=int((~scored).sum()),
        tokens=observed.tokens[n],
    )


def _judged(
    estimate: Estimate | None, questions: int, noise: Noise, utilities: Distribution | None
) -> tuple[Fitness, tuple[str, ...]]:
    """The verdict on the ranking alone."""
    if estimate is None or utilities is None:
        return Fitness.UNFIT, (
            "no question has both evidence and distractors that could be scored: nothing can be "
            "said of it",
        )
    found = f"evidence goes before a distractor with probability {estimate}"
    if estimate.low <= 0.5:
        return Fitness.UNFIT, (f"{found}, which may be chance",)
    if noise.largest > utilities.sd:
        return Fitness.UNFIT, (
            found,
            f"its numeric noise ({noise.largest:.2g}) exceeds the differences between passages "
            f"(standard deviation {utilities.sd:.2g}): load the model in float32",
        )
    if questions < ENOUGH_QUESTIONS:
        return Fitness.WEAK, (
            found,
            f"only {questions} questions have evidence and distractors; {ENOUGH_QUESTIONS} are "
            "needed to call a signal fit",
        )
    if estimate.value < FIT_AUC:
        return Fitness.WEAK, (f"{found}, below {FIT_AUC:g}",)
    return Fitness.FIT, (found,)


def _objections(
    threshold: float, unit: str, noise: Noise, unrelated: Distribution | None
) -> tuple[str, ...]:
    found: list[str] = []
    if threshold <= noise.largest:
        found.append(f"{threshold:.3g} {unit} lie within the numeric noise of {noise.largest:.2g}")
    if unrelated is not None and (share := unrelated.share_above(threshold)) > UNRELATED_SHARE:
        found.append(
            f"{threshold:.3g} {unit} let {share:.0%} of unrelated passages pass, whose 95 % "
            f"quantile is {unrelated.quantile(0.95):.3g}"
        )
    return tuple(found)


def _distribution(values: Floats) -> Distribution | None:
    try:
        return Distribution.of(values)
    except InvalidInputError:
        return None


def standing(found: SignalDiagnostics) -> tuple[int, float]:
    """The best first: by verdict, then by what its ranking is worth at least."""
    place = list(Fitness).index(found.verdict)
    return place, -(found.auc.low if found.auc is not None else 0.0)
