"""Where a frontier comes from, so that nobody applies it to another model or data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.points import ConfigValue


@dataclass(frozen=True, slots=True)
class Dropped:
    """A configuration that calibration gave up early.

    Attributes:
        strategy: Its strategy.
        config: Its configuration.
        questions: How many questions it was measured on.
        reason: What dominated it.
    """

    strategy: str
    config: Mapping[str, ConfigValue]
    questions: int
    reason: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """What was measured, with what, when.

    Attributes:
        models: Role -> model name: ``answer``, ``compressor``, ``scorer``, ``embedder``.
        data: Name of the data set.
        data_hash: SHA-256 of the questions, answers and contexts.
        questions: How many.
        created: ISO 8601 date and time with time zone.
        package_version: Of this package.
        seed: Of everything random.
        settings: What else shapes the result, such as the prompt.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    data_hash: str = ""
    questions: int = 0
    created: str = ""
    package_version: str = ""
    seed: int = 42
    settings: Mapping[str, ConfigValue] = field(default_factory=dict)

    def require(self, *, answer_model: str | None = None, data_hash: str | None = None) -> None:
        """Refuse another answering model or data set than the one measured.

        Raises:
            ConfigurationError: It differs; a frontier holds for what it was measured on.
        """
        measured = self.models.get("answer", "")
        if answer_model is not None and answer_model != measured:
            raise ConfigurationError(
                f"this frontier was measured with {measured!r}, not {answer_model!r}; "
                "F1 and tokens do not carry over, so calibrate again with the model in use"
            )
        if data_hash is not None and data_hash != self.data_hash:
            raise ConfigurationError(
                f"this frontier was measured on data {self.data_hash[:12]!r}, not "
                f"{data_hash[:12]!r}; calibrate again"
            )
