"""Attention kernels: how torch's are called, and which of them a model can use where it is.

Both return the log-sum-exp beside the result, by which partial results are merged exactly.

* `attend`: one block of queries against one block of keys. The only kind on a CPU.
* `flash_varlen`: many ranges of queries, each against a range of keys, in one call; for 16 bits on
  CUDA cards with flash attention.

A call costs nothing on a CPU. On a GPU every call is a launch, so there `RaggedPlan` makes a row's
cascade of one causal call for all nodes, one per level of ancestors, and one per level of prefixes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.prefix import PrefixPiece
from ecs_plugins.lm.scoring.tensors import on_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel


Rows = slice | Tensor
Range = tuple[int, int]


class Spans(NamedTuple):
    """Ranges of rows: the n-th of the queries attends to the n-th of the keys; none is empty.

    Where they begin, and where the last ends: int32, ``[n + 1]``; and the rows of the longest.
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


Varlen = Callable[..., tuple[Tensor, Tensor]]
"""Attention within every pair of ranges, ``(query, key, value, spans, *, causal, scale)``.

The ranges cover all rows and keys. Queries are ``[rows, heads, dim]``, keys and values
``[keys, kv_heads, dim]``; only the last dimension has to be contiguous. If causal, row i of a range
sees keys up to i. Returns ``[rows, heads, dim]`` and the log-sum-exp ``[heads, rows]`` in float32.
"""


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


class Block(NamedTuple):
    """Further keys for some rows: other rows of the packed row, or pieces of prefixes."""

    rows: Rows
    keys: Rows | None
    prefixes: tuple[PrefixPiece, ...]
    spans: Spans


@dataclass(frozen=True, slots=True)
class RaggedPlan:
    """Who attends to whom in one packed row, on the device before the first layer.

    All nodes to themselves, then ancestors by level, then prefixes by level.
    """

    varlen: Varlen
    own: Spans
    blocks: tuple[Block, ...]

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *, layer: int, scale: float
    ) -> Tensor:
        """One layer's attention: from ``[1, heads, rows, dim]`` to ``[1, rows, heads, dim]``."""
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        out, weight = self.varlen(query, key, value, self.own, causal=True, scale=scale)
        for block in self.blocks:
            keys, values = _states(block, key, value, layer)
            rows = block.rows
            part, more = self.varlen(
                _taken(query, rows), keys, values, block.spans, causal=False, scale=scale
            )
            seen, before = _taken(out, rows), _taken(weight, rows, dim=1)
            seen.lerp_(part, torch.sigmoid(more - before).t().unsqueeze(-1).to(out.dtype))
            torch.logaddexp(before, more, out=before)
            if not isinstance(rows, slice):  # what was taken is a copy
                out.index_copy_(0, rows, seen)
                weight.index_copy_(1, rows, before)
        return out.unsqueeze(0)


def ragged(
    lengths: Sequence[int],
    shared: Sequence[tuple[int, int, int]],
    prefixes: Sequence[Sequence[tuple[int, int, PrefixPiece]]],
    varlen: Varlen,
    device: torch.device,
) -> RaggedPlan:
    """The plan of a row, from node lengths and the fields of `AttentionPlan` (``cascade``)."""
    blocks = []
    for level in _levels(shared):
        rows, keys = [rows for rows, _ in level], [keys for _, keys in level]
        spans = spans_of([b - a for a, b in rows], [b - a for a, b in keys], device)
        blocks.append(Block(_rows(rows, device), _rows(keys, device), (), spans))
    for behind in prefixes:
        rows = [(a, b) for a, b, _ in behind]
        pieces = tuple(piece for _, _, piece in behind)
        spans = spans_of([b - a for a, b in rows], [len(p.ids) for p in pieces], device)
        blocks.append(Block(_rows(rows, device), None, pieces, spans))
    return RaggedPlan(varlen, spans_of(lengths, lengths, device), tuple(blocks))


def _levels(shared: Sequence[tuple[int, int, int]]) -> list[list[tuple[Range, Range]]]:
    """Inner nodes by how many others they stand behind, as (rows of descendants, own rows)."""
    levels: list[list[tuple[Range, Range]]] = []
    ends: list[int] = []
    for first, stop, end in shared:
        while ends and ends[-1] <= first:
            ends.pop()
        if len(ends) == len(levels):
            levels.append([])
        levels[len(ends)].append(((stop, end), (first, stop)))
        ends.append(end)
    return levels


def _rows(ranges: Sequence[Range], device: torch.device) -> Rows:
    """These rows: a slice where they lie side by side, so that nothing is copied."""
    if all(before[1] == after[0] for before, after in pairwise(ranges)):
        return slice(ranges[0][0], ranges[-1][1])
    return on_device([row for a, b in ranges for row in range(a, b)], device)


def _states(block: Block, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values of a block, ``[keys, kv_heads, dim]``; those of one piece are not copied."""
    if block.keys is not None:
        return _taken(key, block.keys), _taken(value, block.keys)
    parts = [piece.layers[layer] for piece in block.prefixes]
    keys, values = (
        states[0] if len(parts) == 1 else torch.cat(states, dim=2)
        for states in zip(*parts, strict=True)
    )
    return keys[0].transpose(0, 1), values[0].transpose(0, 1)


def _taken(states: Tensor, rows: Rows, dim: int = 0) -> Tensor:
    if isinstance(rows, slice):
        return states.narrow(dim, rows.start, rows.stop - rows.start)
    return states.index_select(dim, rows)
