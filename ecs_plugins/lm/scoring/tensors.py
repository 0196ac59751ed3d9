"""What scoring does to tensors, and how it calls torch's attention kernels."""

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
    """``D_KL(candidate || base)`` in nats, ``[n]``, never negative.

    Both are log-probabilities, float32, ``[n, vocabulary]``.
    """
    # Summed as p ln(p / q) - p + q, which is the same because both sum to one: no term of it is
    # negative, so what rounding leaves of two equal distributions cannot be less than zero.
    p, q = candidate.exp(), base.exp()
    terms = torch.where(p > 0, p * (candidate - base) - p, p) + q
    return terms.clamp_min(0.0).sum(dim=-1)


def attend(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Flash attention on a CPU, memory-efficient attention elsewhere, with its log-sum-exp.

    Queries are ``[batch, heads, rows, dim]``, keys and values ``[batch, kv_heads, keys, dim]``; the
    log-sum-exp is ``[batch, heads, rows]`` in float32.
    """
    ops = torch.ops.aten
    if query.device.type == "cpu":
        out, lse = ops._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scale
        )
        return out, lse.float()
    batch, heads, rows, _ = query.shape
    out, lse, *_ = ops._scaled_dot_product_efficient_attention(
        *by_key_head(query, key, value), None, True, 0.0, causal, scale=scale
    )
    # Its log-sum-exp is padded to a multiple of 32 rows.
    lse = lse[..., :rows].reshape(batch, heads, rows).float()
    return out.reshape(batch, heads, rows, value.shape[3]), lse


def by_key_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``[batch * kv_heads, heads / kv_heads, ...]``, keys repeated without a copy."""
    batch, heads, rows, width = query.shape
    kv_heads = key.shape[1]
    groups = heads // kv_heads
    grouped = query.reshape(batch * kv_heads, groups, rows, width)
    key, value = (
        states.flatten(0, 1).unsqueeze(1).expand(-1, groups, -1, -1) for states in (key, value)
    )
    return grouped, key, value
