"""Is this model fit for context shaping? Answered by measurement, on a user's own examples.

The paper found the same signal to be worth .265 F1 with one model and .020 with another (section
4.4.2), which is why this is measured before anything is deployed.

A signal is *fit* where it puts evidence before distractors clearly more often than chance and its
threshold lies above both its numeric noise and what unrelated passages do to it. It is *weak* where
it ranks and one of these fails, and *unfit* where it may as well be chance.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter

from ecs_plugins.common.files import read_text, read_versioned, write_atomically
from ecs_plugins.common.pages import rendered
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.config import ShapingConfig, is_signal
from ecs_plugins.shaping.observations import LabelledExample, Noise, Progress, data_hash, observe
from ecs_plugins.shaping.probability import ProbabilityFit
from ecs_plugins.shaping.result import ShapedContext
from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.statistics import (
    Distribution,
    Estimate,
    Threshold,
    held_out_threshold,
    question_auc,
)

VERSION = 1
"""Of the format in which diagnostics are written."""
_FORMAT = "ecs_plugins.ModelDiagnostics"
ANSWER_SIGNALS = ("answer_shift", "joint_shift")
"""Measured by default where every example has an answer."""
LABEL_FREE_SIGNALS = ("query_likelihood", "query_likelihood+bm25")
"""Measured by default."""
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
class ModelDiagnostics:
    """What labelled examples say of a model; `measure` makes one.

    Attributes:
        model: Name of the model; the numbers hold for no other.
        created: ISO 8601 date and time with time zone.
        data_hash: SHA-256 of the examples.
        examples, passages, evidence: How many.
        signals: The best first.
    """

    model: str
    created: str
    package_version: str
    data_hash: str
    examples: int
    passages: int
    evidence: int
    seed: int
    signals: Annotated[tuple[SignalDiagnostics, ...], Field(min_length=1)]

    @classmethod
    def measure(
        cls,
        model: LanguageModel,
        examples: Sequence[LabelledExample],
        *,
        signals: Sequence[str | Signal] | None = None,
        seed: int = 42,
        progress: Progress | None = None,
    ) -> ModelDiagnostics:
        """Measure how well a model tells evidence from distractors.

        Args:
            model: The model.
            examples: Labelled questions of the kind that will be asked; 20 to 50 do.
            signals: Names or own signals; by default `LABEL_FREE_SIGNALS`, and `ANSWER_SIGNALS`
                where every example has an answer.
            seed: Draws unrelated passages, folds and resamples.
            progress: Told after every question of every signal.

        Raises:
            InvalidInputError: Too few examples, or a signal needs answers that they lack.
            ConfigurationError: A signal is unknown, or asks for what the model does not give.
            ModelError: The model cannot score.
        """
        from ecs_plugins import __version__

        if signals is None:
            answered = all(example.answers for example in examples)
            signals = LABEL_FREE_SIGNALS + (ANSWER_SIGNALS if answered else ())
        observed = observe(model, examples, signals, seed=seed, progress=progress)
        found = [_concluded(*each, examples, seed) for each in observed]
        order = list(Fitness)  # the best first, then by what its ranking is worth at least
        found.sort(key=lambda s: (order.index(s.verdict), -(s.auc.low if s.auc else 0.0)))
        return cls(
            model=model.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            package_version=__version__,
            data_hash=data_hash(examples),
            examples=len(examples),
            passages=sum(len(example.passages) for example in examples),
            evidence=sum(len(example.evidence) for example in examples),
            seed=seed,
            signals=tuple(found),
        )

    @property
    def verdict(self) -> Fitness:
        """That of the best signal: a model is as fit as what it is best at."""
        return self.signals[0].verdict

    def signal(self, name: str) -> SignalDiagnostics:
        """One of the signals.

        Raises:
            ConfigurationError: It was not measured.
        """
        for found in self.signals:
            if found.signal == name:
                return found
        raise ConfigurationError(
            f"the signal {name!r} was not measured with {self.model}; measured are "
            f"{', '.join(s.signal for s in self.signals)}"
        )

    def config(
        self, signal: str | None = None, *, threshold: float | None = None, **settings: Any
    ) -> ShapingConfig:
        """A configuration whose threshold was measured.

        Args:
            signal: A measured signal; the best by default.
            threshold: Yours instead of the fitted one.
            **settings: Other fields of `ShapingConfig`.

        Returns:
            With the threshold, or without one where none can be trusted: the signal only ranks
            then. With the fitted probability either way.

        Raises:
            ConfigurationError: The signal was not measured or is not known by its name, your
                threshold lies within the numeric noise, or a setting is unknown.

        Warns:
            RuntimeWarning: The signal is unfit, or the threshold lets unrelated passages pass.
        """
        found = self.signals[0] if signal is None else self.signal(signal)
        if not is_signal(found.signal):
            raise ConfigurationError(
                f"{found.signal!r} is an own signal: pass the object to ShapingConfig(signal=...)"
            )
        if threshold is not None and threshold <= found.noise.largest:
            raise ConfigurationError(
                f"a threshold of {threshold:g} {found.unit} lies within the numeric noise of "
                f"{found.signal} with {self.model} ({found.noise.largest:.2g}): use a higher one, "
                "or a more exact dtype"
            )
        if threshold is None and found.threshold is not None:
            threshold = found.threshold.value
        doubts = _objections(threshold, found.unit, found.noise, found.unrelated)
        if found.verdict is Fitness.UNFIT:
            doubts = found.reasons
        if doubts:
            warnings.warn(
                f"{found.signal} with {self.model}: {'; '.join(doubts)}",
                RuntimeWarning,
                stacklevel=2,
            )
        fitted = {"signal": found.signal, "threshold": threshold, "probability": found.probability}
        return ShapingConfig(**(fitted | settings))

    def report(self) -> str:
        """A paragraph per signal, the best first."""
        return rendered("diagnostics.txt.j2", found=self).rstrip()

    def to_json(self) -> str:
        """Versioned JSON."""
        head = {"format": _FORMAT, "version": VERSION}
        return json.dumps({**head, **asdict(self)}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text") -> ModelDiagnostics:
        """Read what `to_json` wrote.

        Raises:
            InvalidInputError: It is something else, damaged, or of a newer version.
        """
        return read_versioned(
            TypeAdapter(cls),
            text,
            _FORMAT,
            VERSION,
            source=source,
            otherwise="does not hold diagnostics; write them with save",
            again="measure again",
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_json` into a file, whole or not at all.

        Raises:
            StorageError: It cannot be written.
        """
        return write_atomically(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelDiagnostics:
        """Read a file that `save` wrote.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: As by `from_json`.
        """
        return cls.from_json(read_text(path), source=str(path))


def _concluded(
    signal: Signal,
    found: Sequence[ShapedContext],
    noise: Noise,
    examples: Sequence[LabelledExample],
    seed: int,
) -> SignalDiagnostics:
    """What follows for one signal."""
    sizes = [len(example.passages) for example in examples]
    pairs = list(zip(sizes, found, strict=True))
    own = [verdict for size, shaped in pairs for verdict in shaped.verdicts[:size]]
    foreign = [verdict for size, shaped in pairs for verdict in shaped.verdicts[size:]]
    # Utility and score are None where a passage was not scored.
    scored = np.array([verdict.score is not None for verdict in own])
    labels = np.array([label for example in examples for label in example.labels])[scored]
    questions = np.repeat(np.arange(len(examples)), sizes)[scored]
    utilities = np.array([v.utility for v in own if v.score is not None], dtype=np.float64)
    orders = np.array([v.score for v in own if v.score is not None], dtype=np.float64)
    unrelated = Distribution.of(np.array([v.utility for v in foreign], dtype=np.float64))
    estimate, number = question_auc(orders, labels, questions, seed=seed)
    by_utility, _ = question_auc(utilities, labels, questions, seed=seed)
    threshold = held_out_threshold(utilities, labels, questions, seed=seed)
    verdict, reasons = _judged(estimate, number, noise, Distribution.of(utilities))
    if verdict is Fitness.UNFIT:
        threshold = None
    elif by_utility is not None and by_utility.low <= 0.5:
        # Some signals order by more than the utility, which a threshold is compared with.
        verdict, threshold = Fitness.WEAK, None
        reasons += (
            f"its utility alone puts evidence first with probability {by_utility}, which may be "
            "chance, so it has no threshold: rank only",
        )
    if threshold is not None and threshold.value <= noise.largest:
        verdict = Fitness.WEAK
        reasons += (
            f"the fitted threshold of {threshold.value:.3g} lies within the numeric noise of "
            f"{noise.largest:.2g} and is refused: rank only",
        )
        threshold = None
    elif threshold is not None:
        doubts = _objections(threshold.value, signal.unit, noise, unrelated)
        verdict = Fitness.WEAK if doubts else verdict
        reasons += doubts
        if threshold.f1 < POOR_F1:
            reasons += (
                f"its threshold decides poorly (precision {threshold.precision:.2f}, recall "
                f"{threshold.recall:.2f} on questions held out): rank with top_k",
            )
    reasons += tuple(
        f"its own threshold: {doubt}"
        for doubt in _objections(signal.threshold, signal.unit, noise, unrelated)
    )
    passages = sum(v.tokens for v in (*own, *foreign) if v.utility is not None)
    return SignalDiagnostics(
        signal=signal.name,
        unit=signal.unit,
        verdict=verdict,
        reasons=reasons,
        auc=estimate,
        evidence=Distribution.of(utilities[labels]),
        distractors=Distribution.of(utilities[~labels]),
        unrelated=unrelated,
        noise=noise,
        threshold=threshold,
        questions=number,
        unscored=int((~scored).sum()),
        tokens=sum(shaped.ledger.total() for shaped in found) / max(1, passages),
        probability=ProbabilityFit.fitted(
            [{**v.parts, "utility": v.utility} for v in own if v.utility is not None],
            labels.tolist(),
        ),
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
    threshold: float | None, unit: str, noise: Noise, unrelated: Distribution | None
) -> tuple[str, ...]:
    """What speaks against a threshold."""
    if threshold is None:
        return ()
    found: list[str] = []
    if threshold <= noise.largest:
        found.append(f"{threshold:.3g} {unit} lie within the numeric noise of {noise.largest:.2g}")
    if unrelated is not None and (share := unrelated.share_above(threshold)) > UNRELATED_SHARE:
        found.append(
            f"{threshold:.3g} {unit} let {share:.0%} of unrelated passages pass, whose 95 % "
            f"quantile is {unrelated.quantile(0.95):.3g}"
        )
    return tuple(found)
