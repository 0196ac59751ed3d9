"""Fitness of a model for context shaping, measured on a user's own examples.

The paper found the same signal to be worth .265 F1 with one model and .020 with another (section
4.4.2), so a model is measured before it is deployed.

A signal is *fit* if it puts evidence before distractors clearly more often than chance and its
threshold lies above both its numeric noise and its values for unrelated passages. It is *weak* if
it ranks and one of these fails, and *unfit* if it may as well be chance.
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
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, TypeAdapter

from ecs_plugins.common.files import read_text, read_versioned, write_atomically
from ecs_plugins.common.rendering import rendered
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.config import ShapingConfig, is_signal
from ecs_plugins.shaping.observations import (
    LabelledExample,
    Noise,
    Observed,
    Progress,
    data_hash,
    observe,
)
from ecs_plugins.shaping.probability import SHIPPED, LabelledList, ProbabilityFit
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext
from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.statistics import (
    Distribution,
    Estimate,
    Groups,
    Labels,
    Threshold,
    held_out_threshold,
    question_auc,
)

FIT_AUC = 0.75
"""AUC from which on a signal ranks well."""
POOR_F1 = 0.5
"""Held-out F1 below which a threshold is better not used to decide."""
ENOUGH_QUESTIONS = 20
"""Questions with evidence and distractors below which nothing is called fit."""
VERSION = 1
"""Of the format in which diagnostics are written."""
_FORMAT = "ecs_plugins.ModelDiagnostics"
ANSWER_SIGNALS = ("answer_shift", "joint_shift")
"""Measured by default where every example has an answer."""
LABEL_FREE_SIGNALS = ("query_likelihood", "query_likelihood+bm25+dense")
"""Measured by default."""


class Fitness(StrEnum):
    """Verdicts on a signal with a model."""

    FIT = "fit"
    WEAK = "weak"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class SignalDiagnostics:
    """One signal with one model.

    Attributes:
        auc: Mean over questions of the AUC of evidence against distractors, by the passages' order;
            None without a question that has both.
        evidence, distractors, unrelated: Utilities of passages, the unrelated ones from other
            questions; None if there are none.
        threshold: The fitted one; None if none can be fitted or trusted.
        questions: Number of questions with evidence and distractors.
        unscored: Number of passages that could not be scored.
        tokens: Tokens computed per token of a passage.
        probability: Fit of the probability that a passage helps.
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
    """Result of measuring a model on labelled examples; `measure` makes one.

    Attributes:
        model: Name of the model; the numbers hold for no other.
        created: ISO 8601 date and time with time zone.
        data_hash: SHA-256 of the examples.
        examples, passages, evidence: Their numbers.
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
            progress: Called after every question of every signal.

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
        signal_diagnostics = [_diagnosed(each, examples, model.name, seed) for each in observed]
        signal_diagnostics.sort(key=_best_first)
        return cls(
            model=model.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            package_version=__version__,
            data_hash=data_hash(examples),
            examples=len(examples),
            passages=sum(len(example.passages) for example in examples),
            evidence=sum(len(example.evidence) for example in examples),
            seed=seed,
            signals=tuple(signal_diagnostics),
        )

    @property
    def verdict(self) -> Fitness:
        """Verdict on the best signal."""
        return self.signals[0].verdict

    def signal(self, name: str) -> SignalDiagnostics:
        """Return one of the signals.

        Raises:
            ConfigurationError: It was not measured.
        """
        for measured in self.signals:
            if measured.signal == name:
                return measured
        raise ConfigurationError(
            f"the signal {name!r} was not measured with {self.model}; measured are "
            f"{', '.join(measured.signal for measured in self.signals)}"
        )

    def config(
        self, signal: str | None = None, *, threshold: float | None = None, **settings: Any
    ) -> ShapingConfig:
        """Return a configuration whose threshold was measured.

        Args:
            signal: A measured signal; the best by default.
            threshold: Yours instead of the fitted one.
            **settings: Other fields of `ShapingConfig`.

        Returns:
            The configuration; without a threshold if none can be trusted, and the signal only
            ranks then. The fitted probability is an argument of `ContextShaper`.

        Raises:
            ConfigurationError: The signal was not measured or is not known by its name, your
                threshold lies within the numeric noise, or a setting is unknown.

        Warns:
            RuntimeWarning: The signal is unfit, or the threshold lets unrelated passages pass.
        """
        measured = self.signals[0] if signal is None else self.signal(signal)
        if not is_signal(measured.signal):
            raise ConfigurationError(
                f"{measured.signal!r} is an own signal: pass the object to "
                "ShapingConfig(signal=...)"
            )
        if threshold is not None and threshold <= measured.noise.largest:
            raise ConfigurationError(
                f"a threshold of {threshold:g} {measured.unit} lies within the numeric noise of "
                f"{measured.signal} with {self.model} ({measured.noise.largest:.2g}): use a "
                "higher one, or a more exact dtype"
            )
        if threshold is None and measured.threshold is not None:
            threshold = measured.threshold.value
        doubts: Sequence[str] = objections(
            threshold, measured.unit, measured.noise, measured.unrelated
        )
        if measured.verdict is Fitness.UNFIT:
            doubts = list(measured.reasons)
        if doubts:
            warnings.warn(
                f"{measured.signal} with {self.model}: {'; '.join(doubts)}",
                RuntimeWarning,
                stacklevel=2,
            )
        fitted = {"signal": measured.signal, "threshold": threshold}
        return ShapingConfig(**(fitted | settings))

    def report(self) -> str:
        """Return a paragraph per signal, the best first."""
        return rendered("diagnostics.txt.j2", found=self).rstrip()

    def to_json(self) -> str:
        """Return versioned JSON."""
        head = {"format": _FORMAT, "version": VERSION}
        return json.dumps({**head, **asdict(self)}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text") -> ModelDiagnostics:
        """Read JSON that `to_json` wrote.

        Raises:
            InvalidInputError: It is something else, damaged, or of another version.
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


class _Scored(NamedTuple):
    """Scored passages of all examples, own ones and unrelated ones, with labels and questions."""

    lists: list[LabelledList]
    own: list[PassageVerdict]
    foreign: list[PassageVerdict]
    labels: Labels
    questions: Groups


def _scored(results: Sequence[ShapedContext], examples: Sequence[LabelledExample]) -> _Scored:
    """Take results apart: an example's own passages stand before the unrelated ones."""
    lists: list[LabelledList] = []
    own: list[PassageVerdict] = []
    foreign: list[PassageVerdict] = []
    numbers: list[int] = []
    for number, (shaped, example) in enumerate(zip(results, examples, strict=True)):
        size = len(example.passages)
        pairs = zip(shaped.verdicts[:size], example.labels, strict=True)
        scored = [(verdict, label) for verdict, label in pairs if verdict.score is not None]
        parts = [{**verdict.parts, "utility": verdict.utility or 0.0} for verdict, _ in scored]
        lists.append(LabelledList(parts, [label for _, label in scored]))
        own += [verdict for verdict, _ in scored]
        numbers += [number] * len(scored)
        foreign += [verdict for verdict in shaped.verdicts[size:] if verdict.utility is not None]
    labels = [label for each in lists for label in each.labels]
    questions = np.array(numbers, dtype=np.int64)
    return _Scored(lists, own, foreign, np.array(labels, dtype=np.bool_), questions)


def _diagnosed(
    observed: Observed, examples: Sequence[LabelledExample], model: str, seed: int
) -> SignalDiagnostics:
    """Judge one signal by its results."""
    signal, results, noise = observed
    lists, own, foreign, labels, questions = _scored(results, examples)
    utilities = np.array([verdict.utility for verdict in own], dtype=np.float64)
    orders = np.array([verdict.score for verdict in own], dtype=np.float64)
    unrelated = Distribution.of(np.array([each.utility for each in foreign], dtype=np.float64))
    estimate, number = question_auc(orders, labels, questions, seed=seed)
    verdict, reasons = _ranking(estimate, number, noise, Distribution.of(utilities))
    threshold: Threshold | None = None
    if verdict is not Fitness.UNFIT:
        by_utility, _ = question_auc(utilities, labels, questions, seed=seed)
        fitted = held_out_threshold(utilities, labels, questions, seed=seed)
        threshold, doubts = _trusted(fitted, by_utility, signal.unit, noise, unrelated)
        reasons += doubts
        is_poor = threshold is not None and threshold.f1 < POOR_F1
        if doubts and not (is_poor and len(doubts) == 1):
            verdict = Fitness.WEAK
    reasons += [
        f"its own threshold: {doubt}"
        for doubt in objections(signal.threshold, signal.unit, noise, unrelated)
    ]
    tokens = sum(each.tokens for each in (*own, *foreign))
    return SignalDiagnostics(
        signal=signal.name,
        unit=signal.unit,
        verdict=verdict,
        reasons=tuple(reasons),
        auc=estimate,
        evidence=Distribution.of(utilities[labels]),
        distractors=Distribution.of(utilities[~labels]),
        unrelated=unrelated,
        noise=noise,
        threshold=threshold,
        questions=number,
        unscored=sum(len(example.passages) for example in examples) - len(own),
        tokens=sum(shaped.ledger.total() for shaped in results) / max(1, tokens),
        probability=ProbabilityFit.fitted_to_lists(lists, prior=SHIPPED.get((model, signal.name))),
    )


def _ranking(
    estimate: Estimate | None, questions: int, noise: Noise, utilities: Distribution | None
) -> tuple[Fitness, list[str]]:
    """Judge the ranking alone."""
    if estimate is None or utilities is None:
        return Fitness.UNFIT, ["no question has both evidence and distractors that could be scored"]
    ranking = f"evidence goes before a distractor with probability {estimate}"
    if estimate.low <= 0.5:
        return Fitness.UNFIT, [f"{ranking}, which may be chance"]
    if noise.largest > utilities.sd:
        return Fitness.UNFIT, [
            ranking,
            f"its numeric noise ({noise.largest:.2g}) exceeds the differences between passages "
            f"(standard deviation {utilities.sd:.2g}): load the model in float32",
        ]
    if questions < ENOUGH_QUESTIONS:
        return Fitness.WEAK, [
            ranking,
            f"only {questions} questions have evidence and distractors; {ENOUGH_QUESTIONS} are "
            "needed to call a signal fit",
        ]
    if estimate.value < FIT_AUC:
        return Fitness.WEAK, [f"{ranking}, below {FIT_AUC:g}"]
    return Fitness.FIT, [ranking]


def _trusted(
    threshold: Threshold | None,
    by_utility: Estimate | None,
    unit: str,
    noise: Noise,
    unrelated: Distribution | None,
) -> tuple[Threshold | None, list[str]]:
    """Return the fitted threshold if it can be trusted, and the doubts about it."""
    # Some signals order by more than the utility, which a threshold is compared with.
    if by_utility is not None and by_utility.low <= 0.5:
        return None, [
            f"its utility alone puts evidence first with probability {by_utility}, which may be "
            "chance, so it has no threshold: rank only"
        ]
    if threshold is None:
        return None, []
    if threshold.value <= noise.largest:
        return None, [
            f"the fitted threshold of {threshold.value:.3g} lies within the numeric noise of "
            f"{noise.largest:.2g} and is refused: rank only"
        ]
    doubts = objections(threshold.value, unit, noise, unrelated)
    if threshold.f1 < POOR_F1:
        doubts.append(
            f"its threshold decides poorly (precision {threshold.precision:.2f}, recall "
            f"{threshold.recall:.2f} on held-out questions): rank with top_k"
        )
    return threshold, doubts


def objections(
    threshold: float | None, unit: str, noise: Noise, unrelated: Distribution | None
) -> list[str]:
    """Return the objections to a threshold."""
    doubts: list[str] = []
    if threshold is None:
        return doubts
    if threshold <= noise.largest:
        doubts.append(f"{threshold:.3g} {unit} lie within the numeric noise of {noise.largest:.2g}")
    if unrelated is not None and threshold < unrelated.high:
        doubts.append(
            f"{threshold:.3g} {unit} let more than 5 % of unrelated passages pass, whose 95 % "
            f"quantile is {unrelated.high:.3g}"
        )
    return doubts


def _best_first(diagnostics: SignalDiagnostics) -> tuple[int, float]:
    """Order by verdict, then by the lower end of the AUC."""
    lowest = diagnostics.auc.low if diagnostics.auc else 0.0
    return list(Fitness).index(diagnostics.verdict), -lowest
