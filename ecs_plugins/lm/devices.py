"""Choice of the device and the dtype of a model.

A processor with instructions for bfloat16 (AMX, AVX-512 BF16) multiplies in it several times as
fast as in float32, and one without them many times as slowly. Which one this is, is measured.
"""

from __future__ import annotations

import logging
import timeit
from functools import cache
from typing import TYPE_CHECKING, Any

from ecs_plugins.errors import ConfigurationError

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)

WORTH_ROUNDING = 1.5
"""Least speed-up of products in bfloat16 for which ``dtype="auto"`` chooses it on a CPU."""
_WIDTH = 256
_TIMES = 4


def seconds_of_a_product(dtype: str) -> float:
    """Return the shortest of three times of a product of 256 by 256 numbers, after a warm-up."""
    import torch

    numbers = torch.ones(_WIDTH, _WIDTH, dtype=getattr(torch, dtype))
    _, *seconds = timeit.repeat(lambda: torch.mm(numbers, numbers), number=1, repeat=_TIMES)
    return min(seconds)


@cache
def bfloat16_gain() -> float:
    """Return the speed of products in bfloat16 on this processor, as a multiple of float32.

    It is measured once in a process.
    """
    return seconds_of_a_product("float32") / seconds_of_a_product("bfloat16")


def resolve_device(device: str) -> torch.device:
    """Return a torch device; ``"auto"`` takes CUDA, else MPS, else the CPU.

    Raises:
        ConfigurationError: There is no such device here.
    """
    import torch

    if device == "auto":
        kinds = [kind for kind in ("cuda", "mps") if _number_of(kind)]
        return torch.device(kinds[0] if kinds else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ConfigurationError(
            f"unknown device {device!r}; use 'auto', 'cpu', 'cuda', 'mps' or 'xpu'"
        ) from error
    number = _number_of(resolved.type)
    if number == 0:
        raise ConfigurationError(
            f"device {device!r} is not available here: torch {torch.__version__} finds none, or "
            "was built without it; use device='auto'"
        )
    if (resolved.index or 0) >= number:
        raise ConfigurationError(
            f"device {device!r} is not available here; there are {number}, counted from 0"
        )
    return resolved


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Return a torch dtype by its name.

    ``"auto"`` is 16 bits on a GPU, and on a CPU bfloat16 where a product in it is at least
    `WORTH_ROUNDING` times as fast as in float32.
    """
    import torch

    if dtype != "auto":
        named: torch.dtype = getattr(torch, dtype)
        return named
    if device.type != "cpu":
        return _best_of_gpu(device)
    return _best_of_cpu(bfloat16_gain())


def describe(device: torch.device, dtype: torch.dtype) -> str:
    """Describe the dtype and device of a model, and on a CPU the gain of bfloat16."""
    name = dtype_name(dtype)
    if device.type != "cpu":
        return f"{name} on {device}"
    gain = bfloat16_gain()
    return f"{name} on the CPU, which multiplies {gain:.2g} times as fast in bfloat16 as in float32"


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype as options use it."""
    return str(dtype).removeprefix("torch.")


def _number_of(kind: str) -> int:
    """Count the devices of a kind."""
    import torch

    if kind == "cpu":
        return 1
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module: Any = getattr(torch, kind, None)
    if not hasattr(module, "is_available") or not module.is_available():
        return 0
    return int(module.device_count())


@cache
def _best_of_cpu(gain: float) -> torch.dtype:
    import torch

    if gain < WORTH_ROUNDING:
        return torch.float32
    _log.info(
        "models are loaded in bfloat16, in which this processor multiplies %.1f times as fast as "
        "in float32; dtype='float32' is exact to about 1e-5 nats per token",
        gain,
    )
    return torch.bfloat16


def _best_of_gpu(device: torch.device) -> torch.dtype:
    import torch

    if device.type == "mps":
        return torch.float16
    if device.type == "cuda":
        with torch.cuda.device(device):  # one card may know it and another not
            if not torch.cuda.is_bf16_supported(including_emulation=False):
                return torch.float16
    return torch.bfloat16
