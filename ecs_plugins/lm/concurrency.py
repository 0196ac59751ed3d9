"""How calls on one loaded model wait for each other: limits and deadlines."""

from __future__ import annotations

from dataclasses import dataclass

from ecs_plugins.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How calls of a `LocalLM` wait for each other.

    Attributes:
        window_s: How long a round may wait for callers that were there in the last one.
        max_waiting: Calls that may wait or be under way before the next has to wait outside.
        queue_timeout_s: How long a call waits outside; for ever if None, not at all at 0.
        deadline_s: How long a call may take altogether; without end if None.

    Raises:
        ConfigurationError: A value is out of range.
    """

    window_s: float = 0.005
    max_waiting: int = 1024
    queue_timeout_s: float | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if not self.window_s >= 0:
            raise ConfigurationError(f"window_s must not be negative, got {self.window_s}")
        if self.max_waiting < 1:
            raise ConfigurationError(f"max_waiting must be positive, got {self.max_waiting}")
        if self.queue_timeout_s is not None and not self.queue_timeout_s >= 0:
            raise ConfigurationError(
                f"queue_timeout_s must not be negative, got {self.queue_timeout_s}"
            )
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise ConfigurationError(f"deadline_s must be positive, got {self.deadline_s}")


DEFAULT_CONCURRENCY = Concurrency()
