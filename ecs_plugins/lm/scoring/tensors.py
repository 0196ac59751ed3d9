"""What is done to tensors in more than one place of scoring."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_CACHED_AT_ONCE = 2**19
_LAUNCHED_AT_ONCE = 2**25


def on_device(
    numbers: Sequence[int] | Sequence[Sequence[int]],
    device: torch.device,
    dtype: torch.dtype = torch.long,
) -> Tensor:
    """Numbers as a tensor; nothing waits for a GPU that is still computing."""
    tensor = torch.tensor(numbers, dtype=dtype)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def rows_at_once(logits: Tensor) -> int:
    """Rows per chunk of a softmax in float32.

    On a processor a chunk stays in the cache; elsewhere it is 128 MiB, worth a launch.
    """
    numbers = _CACHED_AT_ONCE if logits.device.type == "cpu" else _LAUNCHED_AT_ONCE
    return max(1, numbers // logits.shape[1])


def divergence_of(candidate: Tensor, base: Tensor) -> Tensor:
    """``D_KL(candidate || base)`` in nats, per row.

    Args:
        candidate: Log-probabilities, float32, ``[n, vocabulary]``.
        base: Like ``candidate``.

    Returns:
        float32, ``[n]``, never negative.
    """
    # Summed as p ln(p / q) - p + q, which is the same because both sum to one: no term of it is
    # negative, so what rounding leaves of two equal distributions cannot be less than zero.
    p, q = candidate.exp(), base.exp()
    terms = torch.where(p > 0, p * (candidate - base) - p, p) + q
    return terms.clamp_min(0.0).sum(dim=-1)
