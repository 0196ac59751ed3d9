"""Is this model fit for context shaping? Answered by measurement, on a user's own examples.

The paper found the same signal to be worth .265 F1 with one model and .020 with another (section
4.4.2), which is why this is measured before anything is deployed.

`ecs_plugins.shaping.conclusions` says what makes a signal fit, weak or unfit.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ecs_plugins.common.files import read_text, read_versioned, write_atomically
from ecs_plugins.common.rendering import rendered
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.conclusions import Fitness, SignalDiagnostics, concluded, objections
from ecs_plugins.shaping.config import ShapingConfig, is_signal
from ecs_plugins.shaping.observations import LabelledExample, Progress, data_hash, observe
from ecs_plugins.shaping.signals.base import Signal

VERSION = 1
"""Of the format in which diagnostics are written."""
_FORMAT = "ecs_plugins.ModelDiagnostics"
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
        signal_diagnostics = [concluded(*each, examples, model.name, seed) for each in observed]
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
        """That of the best signal: a model is as fit as what it is best at."""
        return self.signals[0].verdict

    def signal(self, name: str) -> SignalDiagnostics:
        """One of the signals.

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
        doubts = objections(threshold, measured.unit, measured.noise, measured.unrelated)
        if measured.verdict is Fitness.UNFIT:
            doubts = measured.reasons
        if doubts:
            warnings.warn(
                f"{measured.signal} with {self.model}: {'; '.join(doubts)}",
                RuntimeWarning,
                stacklevel=2,
            )
        fitted = {
            "signal": measured.signal,
            "threshold": threshold,
            "probability": measured.probability,
        }
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


def _best_first(diagnostics: SignalDiagnostics) -> tuple[int, float]:
    """By verdict, then by what the ranking is worth at least."""
    lowest = diagnostics.auc.low if diagnostics.auc else 0.0
    return list(Fitness).index(diagnostics.verdict), -lowest
