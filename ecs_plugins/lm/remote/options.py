"""How a `RemoteLM` treats its servers: parallelism, patience, retries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ecs_plugins.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Limits of a `RemoteLM`.

    Attributes:
        max_parallel: Requests on the wire at once, over all calls and servers.
        deadline_s: How long a call of `score` or `generate` may take altogether; without end if
            None.
        request_timeout_s: How long a server may be silent before it counts as hanging.
        connect_timeout_s: How long a connection may take.
        max_retries: How often a request is sent again after a passing fault.
        backoff_s: A server that failed rests for up to this long, twice as long after each
            further failure in a row.
        max_backoff_s: The longest of these rests.
        ca_file: Certificates of a private authority (PEM), for ``https://`` addresses.

    Raises:
        ConfigurationError: A value is out of range.
    """

    max_parallel: int = 16
    deadline_s: float | None = 300.0
    request_timeout_s: float = 60.0
    connect_timeout_s: float = 5.0
    max_retries: int = 4
    backoff_s: float = 0.2
    max_backoff_s: float = 10.0
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if self.max_parallel < 1:
            raise ConfigurationError(f"max_parallel must be positive, got {self.max_parallel}")
        if self.max_retries < 0:
            raise ConfigurationError(f"max_retries must not be negative, got {self.max_retries}")
        for name in ("deadline_s", "request_timeout_s", "connect_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"{name} must be positive, got {value}")
        if self.ca_file is not None and not Path(self.ca_file).is_file():
            raise ConfigurationError(f"ca_file is no file: {self.ca_file}")
        if not 0 <= self.backoff_s <= self.max_backoff_s:
            raise ConfigurationError(
                f"backoff_s must be between 0 and max_backoff_s, got {self.backoff_s} and "
                f"{self.max_backoff_s}"
            )
