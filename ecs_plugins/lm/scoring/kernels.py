"""How torch's attention kernels are called, with the log-sum-exp by which results are merged."""

from __future__ import annotations

import torch
from torch import Tensor


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
