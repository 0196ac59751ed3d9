"""Attention kernels: how torch's are called, and which of them a model can use where it is.

All return the log-sum-exp beside the result, by which partial results are merged exactly.

* `attend`: one block of queries against one block of keys. The only kind on a CPU.
* `flash_varlen`: many ranges of queries, each against a range of keys, in one call; for 16 bits on
  CUDA cards with flash attention.
* `softmax_varlen`: the same as plain arithmetic; the yardstick of the others.

What a card takes is not read from tables: `kernels_of` tries it on a few rows, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.runner import is_out_of_memory, on_device

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


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


class Kernels(NamedTuple):
    """What a model can use.

    Attributes:
        varlen: Attention over ranges of different lengths; None is block by block.
        refusal: Why there is neither, if so.
        name: For people.
    """

    varlen: Varlen | None = None
    refusal: str | None = None
    name: str = "flash, block by block"


class HeadShape(NamedTuple):
    """Heads of an attention layer."""

    heads: int
    kv_heads: int
    key_width: int
    value_width: int


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


def softmax_varlen(
    query: Tensor, key: Tensor, value: Tensor, spans: Spans, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """`Varlen` as plain arithmetic in float64, one range after the other. Slow."""
    groups = query.shape[1] // key.shape[1]
    out = query.new_empty(*query.shape[:2], value.shape[2])
    weight = torch.empty(query.shape[1], query.shape[0], dtype=torch.float32, device=query.device)
    starts = zip(spans.queries.tolist(), spans.keys.tolist(), strict=True)
    for (q0, k0), (q1, k1) in pairwise(starts):
        q = query[q0:q1].double().transpose(0, 1)
        k, v = (
            s[k0:k1].double().transpose(0, 1).repeat_interleave(groups, 0) for s in (key, value)
        )
        scores = scale * q @ k.transpose(1, 2)
        if causal:
            later = torch.ones(scores.shape[1:], dtype=torch.bool, device=query.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        out[q0:q1] = (scores.softmax(dim=-1) @ v).transpose(0, 1).to(out.dtype)
        weight[:, q0:q1] = scores.logsumexp(dim=-1).float()
    return out, weight


def kernels_of(model: PreTrainedModel) -> Kernels:
    """What a loaded model can use, tried once per kind of heads, dtype and device."""
    if model.device.type == "cpu":
        return Kernels()
    try:
        shape = head_shape(model.config.get_text_config())
    except (AttributeError, TypeError):
        return Kernels(None, "its configuration does not name its attention heads", "none")
    return _tried(shape, model.dtype, model.device)


def head_shape(config: PreTrainedConfig) -> HeadShape:
    """The heads that a configuration describes."""
    heads = int(config.num_attention_heads)
    width = getattr(config, "qk_head_dim", None) or getattr(config, "head_dim", None)
    width = int(width or config.hidden_size // heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    return HeadShape(heads, kv_heads, width, int(getattr(config, "v_head_dim", None) or width))


@lru_cache(maxsize=64)
def _tried(shape: HeadShape, dtype: torch.dtype, device: torch.device) -> Kernels:
    reason = "flash attention takes 16 bits"
    if dtype in (torch.float16, torch.bfloat16):
        failure = trial(flash_varlen, shape, dtype, device)
        if failure is None:
            return Kernels(flash_varlen, None, "flash, all passages in one call")
        reason = f"flash attention over ranges {failure}"
    failure = trial(_attend_ranges, shape, dtype, device)
    if failure is None:
        return Kernels(None, None, f"memory-efficient, block by block ({reason})")
    return Kernels(None, f"on {device} its attention kernel {failure}", "none")


def trial(varlen: Varlen, shape: HeadShape, dtype: torch.dtype, device: torch.device) -> str | None:
    """Hold a kernel to `softmax_varlen` on a few rows of random numbers; what is wrong, if so."""
    draw = torch.Generator().manual_seed(0)
    widths = (shape.key_width, shape.key_width, shape.value_width)
    heads = (shape.heads, shape.kv_heads, shape.kv_heads)
    for causal in (True, False):
        # Single rows, and one more than kernels take at once.
        queries = (1, 33, 3)
        keys = queries if causal else (97, 1, 40)
        # As the models hand them over: the rows of a head lie together.
        states = [
            torch.randn(h, rows, w, generator=draw).to(dtype).transpose(0, 1)
            for h, rows, w in zip(heads, (sum(queries), sum(keys), sum(keys)), widths, strict=True)
        ]
        scale = shape.key_width**-0.5
        here = spans_of(queries, keys, torch.device("cpu"))
        wanted = softmax_varlen(states[0], states[1], states[2], here, causal=causal, scale=scale)
        try:
            query, key, value = (part.to(device) for part in states)
            spans = spans_of(queries, keys, device)
            found = varlen(query, key, value, spans, causal=causal, scale=scale)
            parts = [part.cpu() for part in found]
        except (RuntimeError, ValueError, TypeError, ImportError, AttributeError) as error:
            if is_out_of_memory(error):
                raise
            text = " ".join(str(error).split())[:200]
            return f"does not run ({type(error).__name__}: {text})"
        limit = 1e-4 if dtype == torch.float32 else 3e-2
        for part, reference in zip(parts, wanted, strict=True):
            if part.shape != reference.shape:
                return f"answers in another shape, {tuple(part.shape)}"
            off = float((part.double() - reference.double()).abs().max())
            if not off <= limit:
                return f"is off by {off:.2g}"
    return None


def _attend_ranges(
    query: Tensor, key: Tensor, value: Tensor, spans: Spans, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """`Varlen` by `attend`, one range after the other; for trying it."""
    outs, weights = [], []
    starts = zip(spans.queries.tolist(), spans.keys.tolist(), strict=True)
    for (q0, k0), (q1, k1) in pairwise(starts):
        q, k, v = (
            states.transpose(0, 1).unsqueeze(0)
            for states in (query[q0:q1], key[k0:k1], value[k0:k1])
        )
        out, weight = attend(q.contiguous(), k, v, causal=causal, scale=scale)
        outs.append(out[0].transpose(0, 1))
        weights.append(weight[0])
    return torch.cat(outs), torch.cat(weights, dim=1)
