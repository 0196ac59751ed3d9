"""Cascade attention in few calls, however many passages: for kernels that take ranges of rows.

On a CPU a call costs nothing and blocks of equal length pay (``cascade``). On a GPU every call is a
launch, and a pack of thirty passages has dozens of blocks per layer. Here the same plan becomes

* one causal call for all nodes, whatever their lengths;
* one call per level of the forest for ancestors: on one level no row has two of them;
* one call for all prefixes.

Numbers that say who attends to whom are sent to the device once per row, before the first layer;
a layer waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.kernels import Spans, Varlen, spans_of
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.runner import on_device

if TYPE_CHECKING:
    from ecs_plugins.lm.scoring.cascade import AttentionPlan

Rows = slice | Tensor
Range = tuple[int, int]


class Block(NamedTuple):
    """Further keys for some rows.

    Attributes:
        rows: Which rows ask.
        keys: Which rows of the packed row are asked; None if it is prefixes.
        prefixes: The prefixes, one behind the other.
        spans: Who asks whom.
    """

    rows: Rows
    keys: Rows | None
    prefixes: tuple[PrefixState, ...]
    spans: Spans


@dataclass(frozen=True, slots=True)
class RaggedPlan:
    """The plan of one packed row.

    Attributes:
        varlen: The kernel.
        own: All nodes.
        blocks: Ancestors by level, then prefixes.
        kept: The rows that the last layer computes, int64.
        kept_blocks: Like ``blocks``; its rows count within ``kept``.
    """

    varlen: Varlen
    own: Spans
    blocks: tuple[Block, ...]
    kept: Tensor
    kept_blocks: tuple[Block, ...]

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        layer: int,
        scale: float,
        last: bool,
    ) -> Tensor:
        """One layer's attention.

        Args:
            query: ``[1, heads, rows, dim]``.
            key: ``[1, kv_heads, rows, dim]``.
            value: Like ``key``.
            layer: Its number.
            scale: Of the scores.
            last: Whether only the kept rows are looked at.

        Returns:
            ``[1, rows, heads, dim]``.
        """
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        out, weight = self.varlen(query, key, value, self.own, causal=True, scale=scale)
        if not last:
            self._add(self.blocks, query, key, value, out, weight, layer, scale)
            return out.unsqueeze(0)
        query, seen = query.index_select(0, self.kept), out.index_select(0, self.kept)
        weight = weight.index_select(1, self.kept)
        self._add(self.kept_blocks, query, key, value, seen, weight, layer, scale)
        return out.index_copy_(0, self.kept, seen).unsqueeze(0)

    def _add(
        self,
        blocks: Sequence[Block],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        weight: Tensor,
        layer: int,
        scale: float,
    ) -> None:
        """Fold attention to further keys into ``out``, in place; ``weight`` is its log-sum-exp."""
        for number, block in enumerate(blocks, start=1):
            keys, values = _states(block, key, value, layer)
            rows = block.rows
            part, more = self.varlen(
                _taken(query, rows), keys, values, block.spans, causal=False, scale=scale
            )
            seen, before = _taken(out, rows), _taken(weight, rows, dim=1)
            share = torch.sigmoid(more - before).t().unsqueeze(-1)
            seen.lerp_(part, share.to(out.dtype))
            more_follow = number < len(blocks)
            if more_follow:
                torch.logaddexp(before, more, out=before)
            if not isinstance(rows, slice):  # what was taken is a copy
                out.index_copy_(0, rows, seen)
                if more_follow:
                    weight.index_copy_(1, rows, before)


def ragged(plan: AttentionPlan, varlen: Varlen, device: torch.device) -> RaggedPlan:
    """The plan of a row for a kernel of variable length, on the device that it runs on."""
    lengths = [length for _, length, count in plan.own for _ in range(count)]
    levels = _levels(plan.shared)

    def blocks(within: Callable[[int, int], slice]) -> tuple[Block, ...]:
        made = [_behind_ancestors(level, within, device) for level in levels]
        made.append(_behind_prefixes(plan.prefixes, within, device))
        return tuple(block for block in made if block is not None)

    return RaggedPlan(
        varlen,
        spans_of(lengths, lengths, device),
        blocks(slice),
        plan.kept_on(device),
        blocks(plan.kept_within),
    )


def _behind_ancestors(
    level: Iterable[tuple[Range, Range]],
    within: Callable[[int, int], slice],
    device: torch.device,
) -> Block | None:
    """Ranges of rows and the rows that each attends to."""
    asked = [(found, keys) for (a, b), keys in level if (found := _range(within(a, b)))]
    if not asked:
        return None
    rows, keys = [rows for rows, _ in asked], [keys for _, keys in asked]
    spans = spans_of([b - a for a, b in rows], [b - a for a, b in keys], device)
    return Block(_rows(rows, device), _rows(keys, device), (), spans)


def _behind_prefixes(
    groups: Iterable[tuple[int, int, PrefixState]],
    within: Callable[[int, int], slice],
    device: torch.device,
) -> Block | None:
    """Ranges of rows and the prefix that each stands behind."""
    asked = [(found, prefix) for a, b, prefix in groups if (found := _range(within(a, b)))]
    if not asked:
        return None
    rows, prefixes = [rows for rows, _ in asked], [prefix for _, prefix in asked]
    spans = spans_of([b - a for a, b in rows], [len(p.ids) for p in prefixes], device)
    return Block(_rows(rows, device), None, tuple(prefixes), spans)


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


def _range(rows: slice) -> Range | None:
    return (rows.start, rows.stop) if rows.stop > rows.start else None


def _rows(ranges: Sequence[Range], device: torch.device) -> Rows:
    """These rows: a slice where they lie side by side, so that nothing is copied."""
    if all(before[1] == after[0] for before, after in pairwise(ranges)):
        return slice(ranges[0][0], ranges[-1][1])
    return on_device([row for a, b in ranges for row in range(a, b)], device)


def _states(block: Block, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values of a block, ``[keys, kv_heads, dim]``; those of one prefix are not copied."""
    if block.keys is not None:
        return _taken(key, block.keys), _taken(value, block.keys)
    parts = [state.layers[layer] for state in block.prefixes]
    keys, values = (
        states[0] if len(parts) == 1 else torch.cat(states, dim=2)
        for states in zip(*parts, strict=True)
    )
    return keys[0].transpose(0, 1), values[0].transpose(0, 1)


def _taken(states: Tensor, rows: Rows, dim: int = 0) -> Tensor:
    if isinstance(rows, slice):
        return states.narrow(dim, rows.start, rows.stop - rows.start)
    return states.index_select(dim, rows)
