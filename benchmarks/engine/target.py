"""Device and dtype of the benchmark, and its clock.

On a CPU the process's CPU time is measured, which other work on the machine does not change. A GPU
computes while the process waits, so there it is wall time, taken when the card has finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Target:
    """A device and a dtype."""

    device: torch.device
    dtype: torch.dtype

    @property
    def on_card(self) -> bool:
        """Return True on a CUDA card."""
        return self.device.type == "cuda"

    @property
    def dtype_name(self) -> str:
        """Such as ``"bfloat16"``."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def suffix(self) -> str:
        """Return the suffix of results that are not of a CPU in float32."""
        return "" if self == CPU else f" ({self.device}, {self.dtype_name})"

    @classmethod
    def of(cls, device: str, dtype: str) -> Target:
        """Return a target from names; ``"auto"`` is the dtype of `LocalLM`.

        Raises:
            ConfigurationError: There is no such device here.
        """
        from ecs_plugins.lm.devices import resolve_device, resolve_dtype

        found = resolve_device(device)
        return cls(found, resolve_dtype(dtype, found))


CPU = Target(torch.device("cpu"), torch.float32)


def clock_of(device: torch.device) -> Clock:
    """Seconds from some moment on: CPU time, or wall time when a card has finished."""
    if device.type != "cuda":
        return time.process_time

    def finished() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return finished
