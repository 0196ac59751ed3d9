"""Attention kernels: how torch's are called, and which of them a model can use where it is.

Both return the log-sum-exp beside the result, by which partial results are merged exactly.

* `attend`: one block of queries against one block of keys. The only kind on a CPU.
* `flash_varlen`: many ranges of queries, each against a range of keys, in one call; for 16 bits on
  CUDA cards with flash attention.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.runner import on_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Spans(NamedTuple):
    """Ranges of rows: the n-th of the queries attends to the n-th of the keys.

    Attributes:
        queries: Where ranges of queries begin, and where the last ends: int32, ``[n + 1]``.
        keys: Like ``queries``, for keys. No range is empty.
        longest_query: Rows of the longest range of queries.
        longest_key: Rows of the longest range of keys.
    """

    queries: Tensor
    keys: Tensor
    longest_query: int
    longest_key: int


def spans_of(queries: Sequence[int], keys: Sequence[int], device: torch.device) -> Spans:
    """Ranges of these lengths."""
    cuts = (
        on_device([0, *accumulate(lengths)], device, torch.int32) for lengths in (queries, keys)
    )
    return Spans(next(cuts), next(cuts), max(queries), max(keys))


class Varlen(Protocol):
    """Attention over ranges of different lengths."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, spans: Spans, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attend within every pair of ranges.

        Args:
            query: ``[rows, heads, dim]``; only the last dimension has to be contiguous.
            key: ``[keys, kv_heads, dim]``, heads not repeated.
            value: Like ``key``.
            spans: The ranges; they cover all rows and keys.
            causal: Row i of a range sees keys up to i; its keys are as many as its queries.
            scale: Of the scores.

        Returns:
            ``[rows, heads, dim]`` and the log-sum-exp ``[heads, rows]`` in float32.
        """
        ...


def attend(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Flash attention on a CPU, memory-efficient attention elsewhere, with its log-sum-exp.

    Args:
        query: ``[batch, heads, rows, dim]``.
        key: ``[batch, kv_heads, keys, dim]``.
        value: Like ``key``.
        causal: Row i sees keys up to i.
        scale: Of the scores.

    Returns:
        ``[batch, heads, rows, dim]`` and the log-sum-exp ``[batch, heads, rows]`` in float32.
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
    """Every key head as a batch entry of its own, repeated for its query heads without a copy.

    Args:
        query: ``[batch, heads, rows, dim]``.
        key: ``[batch, kv_heads, keys, dim]``.
        value: Like ``key``.

    Returns:
        All three ``[batch * kv_heads, heads / kv_heads, ...]``.
    """
    batch, heads, rows, width = query.shape
    kv_heads = key.shape[1]
    groups = heads // kv_heads
    grouped = query.reshape(batch * kv_heads, groups, rows, width)
    key, value = (
        states.flatten(0, 1).unsqueeze(1).expand(-1, groups, -1, -1) for states in (key, value)
    )
    return grouped, key, value


def flash_varlen(
    query: Tensor, key: Tensor, value: Tensor, spans: Spans, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """`Varlen` by torch's flash attention: float16 and bfloat16 on CUDA."""
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    out, lse = varlen_attn(
        query,
        key,
        value,
        spans.queries,
        spans.keys,
        # An upper bound. At 1, the kernel would take another way, which needs ranges of 1 row each.
        max(spans.longest_query, 2),
        spans.longest_key,
        return_aux=AuxRequest(lse=True),
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
        enable_gqa=True,
    )
    return out, lse


def varlen_of(model: PreTrainedModel) -> Varlen | None:
    """The kernel over ranges that a model can use where it is; None is block by block.

    Whether it gives the right numbers there is the business of the self-check (see ``planner``).
    """
    device = model.device
    if device.type != "cuda" or model.dtype not in (torch.float16, torch.bfloat16):
        return None
    if torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    known = importlib.util.find_spec("torch.nn.attention.varlen") is not None
    return flash_varlen if known else None
