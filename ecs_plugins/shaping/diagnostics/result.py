"""Is this model fit? All signals with one model, as a value that can be stored.

The paper found the same signal to be worth .265 F1 with one model and .020 with another (section
4.4.2), which is why this is measured before anything is deployed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ecs_plugins.common.files import read_text, write_atomically
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.diagnostics.examples import LabelledExample, data_hash
from ecs_plugins.shaping.diagnostics.observe import (
    NOISE_QUESTIONS,
    UNRELATED,
    Observations,
    Progress,
    observe,
)
from ecs_plugins.shaping.diagnostics.verdicts import (
    Fitness,
    SignalDiagnostics,
    concluded,
    standing,
)
from ecs_plugins.shaping.protocol import Signal
from ecs_plugins.shaping.signals import SIGNALS

ANSWER_SIGNALS = ("answer_shift", "joint_shift")
"""Measured by default where every example has an answer."""
LABEL_FREE_SIGNALS = ("query_likelihood", "query_likelihood+bm25")
"""Measured by default."""


@dataclass(frozen=True, slots=True)
class ModelDiagnostics:
    """What labelled examples say of a model; `measure` makes one.

    Attributes:
        model: Name of the model; the numbers hold for no other.
        created: ISO 8601 date and time with time zone.
        package_version: Of this package.
        data_hash: SHA-256 of the examples.
        examples: How many.
        passages: Of all examples.
        evidence: How many of them are evidence.
        seed: Of everything random.
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
    signals: tuple[SignalDiagnostics, ...]

    @classmethod
    def measure(
        cls,
        model: LanguageModel,
        examples: Sequence[LabelledExample],
        *,
        signals: Sequence[str | Signal] | None = None,
        unrelated: int = UNRELATED,
        noise_questions: int = NOISE_QUESTIONS,
        seed: int = 42,
        progress: Progress | None = None,
    ) -> ModelDiagnostics:
        """Measure how well a model tells evidence from distractors.

        Args:
            model: The model.
            examples: Labelled questions of the kind that will be asked; 20 to 50 do.
            signals: Names or own signals; by default `LABEL_FREE_SIGNALS`, and `ANSWER_SIGNALS`
                where every example has an answer.
            unrelated: Passages of other questions that each question gets.
            noise_questions: Questions that are computed in other ways as well.
            seed: Draws unrelated passages, folds and resamples.
            progress: Told after every question of every signal.

        Raises:
            InvalidInputError: Too few examples, or a signal needs answers that they lack.
            ConfigurationError: A signal is unknown, or asks for what the model does not give.
            ModelError: The model cannot score.
        """
        observed = observe(
            model,
            examples,
            default_signals(examples) if signals is None else signals,
            unrelated=unrelated,
            noise_questions=noise_questions,
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
    ) -> ModelDiagnostics:
        """Conclude from what was observed already."""
        from ecs_plugins import __version__

        found = [concluded(observed, n, seed) for n in range(len(observed.signals))]
        return cls(
            model=model,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            package_version=__version__,
            data_hash=data_hash(examples),
            examples=len(examples),
            passages=len(observed.labels),
            evidence=int(observed.labels.sum()),
            seed=seed,
            signals=tuple(sorted(found, key=standing)),
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
        self, signal: str | None = None, *, threshold: float | None = None, **settings: object
    ) -> ShapingConfig:
        """A configuration whose threshold was measured.

        Args:
            signal: A measured signal; the best by default.
            threshold: Yours instead of the fitted one.
            **settings: Other fields of `ShapingConfig`.

        Returns:
            With the threshold, or without one where none can be trusted: the signal only ranks
            then.

        Raises:
            ConfigurationError: The signal was not measured or is not known by its name, your
                threshold lies within the numeric noise, or a setting is unknown.

        Warns:
            RuntimeWarning: The signal is unfit, or the threshold lets unrelated passages pass.
        """
        found = self.signals[0] if signal is None else self.signal(signal)
        if found.signal not in SIGNALS:
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
        doubts = () if threshold is None else found.objections(threshold)
        if found.verdict is Fitness.UNFIT:
            doubts = found.reasons
        if doubts:
            warnings.warn(
                f"{found.signal} with {self.model}: {'; '.join(doubts)}",
                RuntimeWarning,
                stacklevel=2,
            )
        try:
            return ShapingConfig(signal=found.signal, threshold=threshold, **settings)  # type: ignore[arg-type]
        except TypeError as error:
            raise ConfigurationError(f"{error}; see ShapingConfig") from error

    def require_model(self, model: LanguageModel) -> None:
        """Refuse another model than the one measured.

        Raises:
            ConfigurationError: Its name differs.
        """
        if model.name != self.model:
            raise ConfigurationError(
                f"this was measured with {self.model!r}, not {model.name!r}; thresholds do not "
                "carry over, so measure again: ecs-plugins diagnose"
            )

    def report(self) -> str:
        """All of it in words."""
        from ecs_plugins.shaping.diagnostics.report import report

        return report(self)

    def to_json(self) -> str:
        """Versioned JSON."""
        from ecs_plugins.shaping.diagnostics.artefact import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text") -> ModelDiagnostics:
        """Read what `to_json` wrote.

        Raises:
            InvalidInputError: It is something else, damaged, or of a newer version.
        """
        from ecs_plugins.shaping.diagnostics.artefact import from_json

        return from_json(cls, text, source)

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


def default_signals(examples: Sequence[LabelledExample]) -> tuple[str, ...]:
    """What is measured if nothing else is asked for."""
    answered = all(example.answers for example in examples)
    return (*LABEL_FREE_SIGNALS, *(ANSWER_SIGNALS if answered else ()))
