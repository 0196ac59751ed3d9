"""Several signals as one number: the probability that a passage helps.

A logistic regression on what the signals order by, fitted on a user's own labelled examples:

    P(helps) = 1 / (1 + exp(-(b + sum_i w_i z_i)))

with z_i the z-score of the i-th signal among the passages that are scored for the same question.
Signals are in different units, and where zero lies and how far they spread depends on the model
and on the question; a probability has one meaning for all of them, and so has a threshold on it. It
holds for the model and for the mixture of evidence and distractors that it was fitted on.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ecs_plugins.common.files import read_text, write_atomically
from ecs_plugins.errors import ConfigurationError, InvalidInputError, ScoringError
from ecs_plugins.lm.base import ChatLayout, LanguageModel, ScoreRequest, ScoreResult
from ecs_plugins.lm.prompts import PLAIN
from ecs_plugins.shaping.combination import (
    CalibrationRecord,
    Combination,
    PassageModel,
    probability_of,
)
from ecs_plugins.shaping.diagnostics import artefact
from ecs_plugins.shaping.diagnostics.examples import LabelledExample, data_hash
from ecs_plugins.shaping.diagnostics.observe import Observations, Progress, observe, resolved
from ecs_plugins.shaping.diagnostics.statistics import (
    Floats,
    Labels,
    folds,
    held_out_threshold,
    question_auc,
)
from ecs_plugins.shaping.protocol import ScoringTask, Signal, UnitUtility, reads_best_first
from ecs_plugins.shaping.signals import SIGNALS
from ecs_plugins.tokens import TokenLedger

DEFAULT_SIGNALS = ("query_likelihood", "query_likelihood+bm25")
"""What is combined if nothing else is asked for; none of them needs an answer."""
MIN_QUESTIONS = 20
"""Questions with evidence and distractors below which nothing is fitted."""
SETTLED_QUESTIONS = 100
"""Questions from which on the coefficients are held back no more than by a standard normal prior;
with fewer the prior is narrower in proportion."""


@dataclass(frozen=True)
class CalibratedSignal:
    """A signal whose utility is the probability that a passage helps.

    It takes one scoring call and costs the sum of its signals; what they share is computed once.
    A passage is compared with those that are scored together with it, so it cannot be seen that
    none of them helps. With ``acceptance="stream"``, which scores them one at a time, there is
    nothing to compare with, and the probabilities say less.

    Attributes:
        signals: What is combined.
        combination: How.
        threshold: The probability from which on a passage helps; the fitted one by default, None
            if the combination knows no more than the share of evidence.
    """

    signals: tuple[Signal, ...]
    combination: Combination
    threshold: float | None = None

    unit = "probability"

    @property
    def name(self) -> str:
        """``calibrated`` and the signals."""
        return f"calibrated({'+'.join(signal.name for signal in self.signals)})"

    @property
    def needs_answer(self) -> bool:
        """Whether one of the signals does."""
        return any(signal.needs_answer for signal in self.signals)

    @property
    def reads_best_first(self) -> bool:
        """Whether one of the signals does."""
        return any(map(reads_best_first, self.signals))

    @property
    def cost(self) -> str:
        """That of all signals."""
        return "; and ".join(signal.cost for signal in self.signals)

    @classmethod
    def fit(
        cls,
        model: LanguageModel,
        examples: Sequence[LabelledExample],
        signals: Sequence[str | Signal] = DEFAULT_SIGNALS,
        *,
        seed: int = 42,
        progress: Progress | None = None,
    ) -> CalibratedSignal:
        """Fit on labelled examples.

        Args:
            model: The model that will score.
            examples: At least `MIN_QUESTIONS` with evidence and distractors, with as many
                distractors as there will be: the probability learns their share.
            signals: Names or own signals. Where one needs an answer, all are told it.
            seed: Of the folds.
            progress: Told after every question of every signal.

        Raises:
            InvalidInputError: Too few examples, or an answer is missing.
            ConfigurationError: A signal is unknown, or asks for what the model does not give.
            ModelError: The model cannot score.

        Warns:
            RuntimeWarning: The signals do not tell evidence from distractors.
        """
        require_enough(examples)
        chosen = resolved(signals)
        observed = observe(
            model,
            examples,
            chosen,
            unrelated=0,
            noise_questions=0,
            with_answers=any(signal.needs_answer for signal in chosen),
            seed=seed,
            progress=progress,
        )
        return cls.of(observed, examples, model=model.name, seed=seed)

    @classmethod
    def of(
        cls,
        observed: Observations,
        examples: Sequence[LabelledExample],
        *,
        model: str,
        seed: int = 42,
    ) -> CalibratedSignal:
        """Fit on what was observed already; see `fit`."""
        from ecs_plugins import __version__

        whole = np.isfinite(observed.orders).all(axis=1)
        values, labels = observed.orders[whole], observed.labels[whole]
        questions = observed.questions[whole]
        _, number = question_auc(values[:, 0], labels, questions)
        _require_enough(number)
        prior = min(1.0, number / SETTLED_QUESTIONS)
        held_out = np.full(len(labels), np.nan)
        shares = np.full(len(labels), np.nan)
        for inside, outside in folds(questions, seed=seed):
            part = PassageModel.fit(values[inside], labels[inside], questions[inside], prior=prior)
            for question in np.unique(questions[outside]):
                at = questions == question
                held_out[at] = part.log_odds(values[at])
            shares[outside] = labels[inside].mean()
        probabilities = probability_of(held_out)
        estimate, _ = question_auc(held_out, labels, questions, seed=seed)
        threshold = held_out_threshold(probabilities, labels, questions, seed=seed)
        assert estimate is not None
        assert threshold is not None
        record = CalibrationRecord(
            model=model,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            package_version=__version__,
            data_hash=data_hash(examples),
            seed=seed,
            questions=number,
            passages=len(labels),
            evidence=int(labels.sum()),
            auc=estimate,
            log_loss=_log_loss(probabilities, labels),
            base_log_loss=_log_loss(shares, labels),
            threshold=threshold,
        )
        names = tuple(signal.name for signal in observed.signals)
        fitted = PassageModel.fit(values, labels, questions, prior=prior)
        trusted = _trusted_threshold(record)
        if trusted is None:
            warnings.warn(
                f"{'+'.join(names)} with {model} does not tell evidence from distractors on "
                f"questions held out (AUC {estimate}, log-loss {record.log_loss:.3f} against "
                f"{record.base_log_loss:.3f} without any signal): it only ranks",
                RuntimeWarning,
                stacklevel=2,
            )
        return cls(observed.signals, Combination(names, fitted, record), trusted)

    def prepare(self, task: ScoringTask, model: LanguageModel, ledger: TokenLedger) -> ScoringTask:
        """Let every signal prepare in turn; answers that one drafted serve the others as well.

        Warns:
            RuntimeWarning: The model is not the one that was calibrated.
        """
        fitted_on = self.combination.record.model
        if model.name != fitted_on:
            warnings.warn(
                f"{self.name} was fitted with {fitted_on!r} and is used with {model.name!r}: its "
                "probabilities mean nothing there. Fit it again",
                RuntimeWarning,
                stacklevel=2,
            )
        for signal in self.signals:
            task = signal.prepare(task, model, ledger)
        return task

    def requests(self, task: ScoringTask, layout: ChatLayout) -> list[ScoreRequest]:
        """Those of all signals, one behind the other."""
        return [request for signal in self.signals for request in signal.requests(task, layout)]

    def utilities(self, task: ScoringTask, results: Sequence[ScoreResult]) -> list[UnitUtility]:
        """The probability that each passage helps, ordered by its log-odds."""
        found: list[list[UnitUtility]] = []
        at = 0
        for signal in self.signals:
            # How many requests a signal makes does not depend on the layout.
            number = len(signal.requests(task, PLAIN))
            found.append(signal.utilities(task, results[at : at + number]))
            at += number
        if at != len(results):
            raise ScoringError(f"{len(results)} results for the {at} requests of {self.name}")
        table = np.array([[_value(unit) for unit in units] for units in found]).T
        log_odds = self.combination.model.log_odds(table)
        return [
            self._combined(units, float(value))
            for units, value in zip(zip(*found, strict=True), log_odds, strict=True)
        ]

    def _combined(self, units: Sequence[UnitUtility], log_odds: float) -> UnitUtility:
        if math.isnan(log_odds):
            return UnitUtility(math.nan, reason=next((u.reason for u in units if u.reason), ""))
        parts = {s.name: _value(u) for s, u in zip(self.signals, units, strict=True)}
        return UnitUtility(
            float(probability_of(np.array(log_odds))),
            {**parts, "log_odds": log_odds},
            order_by=log_odds,
        )

    def report(self) -> str:
        """What it was fitted on and what to expect of it, in words."""
        record, combination = self.combination.record, self.combination
        weights = ", ".join(
            f"{name} {weight:+.2f}"
            for name, weight in zip(
                combination.signals, combination.model.among.weights, strict=True
            )
        )
        expected = record.threshold
        decides = (
            f"threshold {self.threshold:.2f}: on held-out questions precision "
            f"{expected.precision:.2f}, recall {expected.recall:.2f}"
            if self.threshold is not None
            else "no threshold: held out, it tells no more than the share of evidence, so it only "
            "ranks"
        )
        return (
            f"{self.name} with {record.model}, fitted {record.created} on {record.questions} "
            f"questions, {record.passages} passages, {record.evidence} of them evidence\n"
            f"  log-odds per standard deviation: {weights}\n"
            f"  held out: AUC within a question {record.auc}, log-loss {record.log_loss:.3f} "
            f"(share of evidence alone {record.base_log_loss:.3f})\n"
            f"  {decides}"
        )

    def to_json(self) -> str:
        """Versioned JSON: names and numbers, no pickle.

        Raises:
            ConfigurationError: A signal is not one that is known by its name.
        """
        for signal in self.signals:
            if signal.name not in SIGNALS or SIGNALS[signal.name]() != signal:
                raise ConfigurationError(
                    f"{signal.name!r} with settings of its own cannot be stored: combine signals "
                    f"by their names ({', '.join(SIGNALS)})"
                )
        return artefact.to_json(self.combination)

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text") -> CalibratedSignal:
        """Read what `to_json` wrote; the threshold is the fitted one.

        Raises:
            InvalidInputError: It is something else, damaged, or of a newer version.
            ConfigurationError: It names a signal that this version does not have.
        """
        found = artefact.from_json(Combination, text, source)
        return cls(resolved(found.signals), found, _trusted_threshold(found.record))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_json` into a file, whole or not at all.

        Raises:
            StorageError: It cannot be written.
            ConfigurationError: As by `to_json`.
        """
        return write_atomically(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibratedSignal:
        """Read a file that `save` wrote.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: As by `from_json`.
        """
        return cls.from_json(read_text(path), source=str(path))


def require_enough(examples: Sequence[LabelledExample]) -> None:
    """Refuse examples that are too few to fit probabilities.

    Raises:
        InvalidInputError: Fewer than `MIN_QUESTIONS` have both evidence and distractors.
    """
    _require_enough(sum(0 < len(e.evidence) < len(e.passages) for e in examples))


def _require_enough(questions: int) -> None:
    if questions < MIN_QUESTIONS:
        raise InvalidInputError(
            f"{questions} questions with both evidence and distractors are too few to fit "
            f"probabilities; give at least {MIN_QUESTIONS}, better {SETTLED_QUESTIONS}. Until then "
            "use one signal, and rank with it"
        )


def _trusted_threshold(record: CalibrationRecord) -> float | None:
    informed = record.log_loss < record.base_log_loss and record.auc.low > 0.5
    return record.threshold.value if informed else None


def _log_loss(probabilities: Floats, labels: Labels) -> float:
    from sklearn.metrics import log_loss

    return float(log_loss(labels, probabilities, labels=[False, True]))


def _value(unit: UnitUtility) -> float:
    """What a signal orders a passage by."""
    return unit.utility if unit.order_by is None else unit.order_by
