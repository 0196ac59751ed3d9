"""What follows for one signal from what it made of labelled examples.

A signal is *fit* where it puts evidence before distractors clearly more often than chance and its
threshold lies above both its numeric noise and what unrelated passages do to it. It is *weak* where
it ranks and one of these fails, and *unfit* where it may as well be chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ecs_plugins.shaping.observations import LabelledExample, Noise
from ecs_plugins.shaping.probability import SHIPPED, LabelledList, ProbabilityFit
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext
from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.statistics import (
    Distribution,
    Estimate,
    Floats,
    Groups,
    Labels,
    Threshold,
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
        auc: Mean over questions of the AUC of evidence against distractors, by what passages are
            ordered by; None without a question that has both.
        evidence, distractors, unrelated: Utilities of passages, the unrelated ones from other
            questions; None if there are none.
        threshold: The fitted one; None where none can be fitted or trusted.
        questions: How many have evidence and distractors.
        unscored: How many passages could not be scored.
        tokens: Tokens computed per token of a passage.
        probability: That a passage helps, by what the signal says of it.
    """

    signal: str
    unit: str
    verdict: Fitness
    reasons: tuple[str, ...]
    auc: Estimate | None
    evidence: Distribution | None
    distractors: Distribution | None
    unrelated: Distribution | None
    noise: Noise
    threshold: Threshold | None
    questions: int
    unscored: int
    tokens: float
    probability: ProbabilityFit | None = None


@dataclass(frozen=True, slots=True)
class _ScoredPassages:
    """The passages of all examples that a signal has scored, an array element each.

    Attributes:
        labels: Whether it is evidence.
        questions: The number of its example.
        utilities: What a threshold is compared with.
        orders: What passages are ordered by.
        parts: What the signal said.
        unrelated: Utilities of passages of other questions; None if there are none.
        unscored: How many passages have no score.
        tokens: Tokens of all passages that were scored, the unrelated ones too.
    """

    labels: Labels
    questions: Groups
    utilities: Floats
    orders: Floats
    parts: Sequence[Mapping[str, float]]
    unrelated: Distribution | None
    unscored: int
    tokens: int

    def lists(self) -> list[LabelledList]:
        """By example."""
        lists: list[LabelledList] = []
        for number in np.unique(self.questions):
            own = np.flatnonzero(self.questions == number)
            parts = [self.parts[place] for place in own.tolist()]
            lists.append(LabelledList(parts, self.labels[own].tolist()))
        return lists


def _scored(
    results: Sequence[ShapedContext], examples: Sequence[LabelledExample]
) -> _ScoredPassages:
    """Take apart what was shaped: an example's own passages stand before the unrelated ones."""
    labels: list[bool] = []
    questions: list[int] = []
    scored: list[PassageVerdict] = []
    foreign: list[PassageVerdict] = []
    for number, (shaped, example) in enumerate(zip(results, examples, strict=True)):
        size = len(example.passages)
        foreign += shaped.verdicts[size:]
        for verdict, label in zip(shaped.verdicts[:size], example.labels, strict=True):
            if verdict.score is None:
                continue
            labels.append(label)
            questions.append(number)
            scored.append(verdict)
    return _ScoredPassages(
        labels=np.array(labels, dtype=np.bool_),
        questions=np.array(questions, dtype=np.int64),
        utilities=np.array([verdict.utility for verdict in scored], dtype=np.float64),
        orders=np.array([verdict.score for verdict in scored], dtype=np.float64),
        parts=[{**verdict.parts, "utility": verdict.utility or 0.0} for verdict in scored],
        unrelated=Distribution.of(
            np.array([verdict.utility for verdict in foreign], dtype=np.float64)
        ),
        unscored=sum(len(example.passages) for example in examples) - len(scored),
        tokens=sum(v.tokens for v in (*scored, *foreign) if v.utility is not None),
    )


def concluded(
    signal: Signal,
    results: Sequence[ShapedContext],
    noise: Noise,
    examples: Sequence[LabelledExample],
    model: str,
    seed: int,
) -> SignalDiagnostics:
    """What follows for one signal of a model, by name."""
    scored = _scored(results, examples)
    labels, questions, utilities = scored.labels, scored.questions, scored.utilities
    estimate, number = question_auc(scored.orders, labels, questions, seed=seed)
    by_utility, _ = question_auc(utilities, labels, questions, seed=seed)
    verdict, reasons = _judged(estimate, number, noise, Distribution.of(utilities))
    trusted = _Trusted(None)
    if verdict is not Fitness.UNFIT:
        threshold = held_out_threshold(utilities, labels, questions, seed=seed)
        trusted = _trusted(threshold, by_utility, signal.unit, noise, scored.unrelated)
    if trusted.doubts:
        verdict = Fitness.WEAK
    own_doubts = objections(signal.threshold, signal.unit, noise, scored.unrelated)
    own_doubts = tuple(f"its own threshold: {doubt}" for doubt in own_doubts)
    return SignalDiagnostics(
        signal=signal.name,
        unit=signal.unit,
        verdict=verdict,
        reasons=(*reasons, *trusted.doubts, *trusted.remarks, *own_doubts),
        auc=estimate,
        evidence=Distribution.of(utilities[labels]),
        distractors=Distribution.of(utilities[~labels]),
        unrelated=scored.unrelated,
        noise=noise,
        threshold=trusted.threshold,
        questions=number,
        unscored=scored.unscored,
        tokens=sum(shaped.ledger.total() for shaped in results) / max(1, scored.tokens),
        probability=ProbabilityFit.fitted_to_lists(
            scored.lists(), prior=SHIPPED.get((model, signal.name))
        ),
    )


class _Trusted(NamedTuple):
    """A threshold that can be trusted, if there is one.

    ``doubts`` make a signal weak, ``remarks`` do not.
    """

    threshold: Threshold | None
    doubts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def _trusted(
    threshold: Threshold | None,
    by_utility: Estimate | None,
    unit: str,
    noise: Noise,
    unrelated: Distribution | None,
) -> _Trusted:
    """The fitted threshold of a signal that ranks, if it can be trusted."""
    # Some signals order by more than the utility, which a threshold is compared with.
    if by_utility is not None and by_utility.low <= 0.5:
        chance = (
            f"its utility alone puts evidence first with probability {by_utility}, which may be "
            "chance, so it has no threshold: rank only"
        )
        return _Trusted(None, (chance,))
    if threshold is None:
        return _Trusted(None)
    if threshold.value <= noise.largest:
        refused = (
            f"the fitted threshold of {threshold.value:.3g} lies within the numeric noise of "
            f"{noise.largest:.2g} and is refused: rank only"
        )
        return _Trusted(None, (refused,))
    doubts = objections(threshold.value, unit, noise, unrelated)
    if threshold.f1 >= POOR_F1:
        return _Trusted(threshold, doubts)
    poor = (
        f"its threshold decides poorly (precision {threshold.precision:.2f}, recall "
        f"{threshold.recall:.2f} on questions held out): rank with top_k"
    )
    return _Trusted(threshold, doubts, (poor,))


def _judged(
    estimate: Estimate | None, questions: int, noise: Noise, utilities: Distribution | None
) -> tuple[Fitness, tuple[str, ...]]:
    """The verdict on the ranking alone."""
    if estimate is None or utilities is None:
        return Fitness.UNFIT, (
            "no question has both evidence and distractors that could be scored: nothing can be "
            "said of it",
        )
    ranking = f"evidence goes before a distractor with probability {estimate}"
    if estimate.low <= 0.5:
        return Fitness.UNFIT, (f"{ranking}, which may be chance",)
    if noise.largest > utilities.sd:
        return Fitness.UNFIT, (
            ranking,
            f"its numeric noise ({noise.largest:.2g}) exceeds the differences between passages "
            f"(standard deviation {utilities.sd:.2g}): load the model in float32",
        )
    if questions < ENOUGH_QUESTIONS:
        return Fitness.WEAK, (
            ranking,
            f"only {questions} questions have evidence and distractors; {ENOUGH_QUESTIONS} are "
            "needed to call a signal fit",
        )
    if estimate.value < FIT_AUC:
        return Fitness.WEAK, (f"{ranking}, below {FIT_AUC:g}",)
    return Fitness.FIT, (ranking,)


def objections(
    threshold: float | None, unit: str, noise: Noise, unrelated: Distribution | None
) -> tuple[str, ...]:
    """What speaks against a threshold."""
    if threshold is None:
        return ()
    doubts: list[str] = []
    if threshold <= noise.largest:
        doubts.append(f"{threshold:.3g} {unit} lie within the numeric noise of {noise.largest:.2g}")
    share = 0.0 if unrelated is None else unrelated.share_above(threshold)
    if unrelated is not None and share > UNRELATED_SHARE:
        doubts.append(
            f"{threshold:.3g} {unit} let {share:.0%} of unrelated passages pass, whose 95 % "
            f"quantile is {unrelated.quantile(0.95):.3g}"
        )
    return tuple(doubts)
