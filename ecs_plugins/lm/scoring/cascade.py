"""Cascade attention: the fastest path on a processor. Exact, without padding, masks or copies.

A row of the packed forest attends to three kinds of keys, each as dense as flash attention
wants it, and the partial results are merged by their log-sum-exp, which is exact (Hydragen,
arXiv 2402.05099, Sec. 3.1):

* the prefix, computed once and kept: one block per piece of it, over all paths after that;
* every ancestor node: one block over all descendants of that node;
* its own node: causal, one call per run of nodes of equal length.

On a card that would start a kernel for every block (see ``varlen``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.arena import KeyValues
from ecs_plugins.lm.scoring.forest import Forest, Node
from ecs_plugins.lm.scoring.prefix import PrefixPiece, PrefixState
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.tensors import attend
from ecs_plugins.lm.scoring.twin import AttentionPlan, Groups, TwinForward


@dataclass(slots=True)
class _Run:
    """Nodes of equal length, side by side."""

    first: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        """Return one past its last row."""
        return self.first + self.length * self.count

    def takes(self, start: int, length: int) -> bool:
        """Add a node that continues the run; return False for any other."""
        if length != self.length or start != self.stop:
            return False
        self.count += 1
        return True


class _Inner(NamedTuple):
    """A node with descendants: its rows, and one past the last row of those."""

    start: int
    stop: int
    end: int


@dataclass(slots=True)
class _Followers:
    """Rows that follow a piece of a prefix."""

    first: int
    stop: int
    piece: PrefixPiece

    def goes_on(self, row: int, piece: PrefixPiece) -> bool:
        """Return True if the rows from ``row`` on see the same piece."""
        if self.stop != row or self.piece.arena is not piece.arena:
            return False
        return self.piece.slots == piece.slots


class CascadePlan(AttentionPlan):
    """Blocks of keys, and the rows that see them."""

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups)
        self._own: list[_Run] = []
        self._inner: list[_Inner] = []
        self._levels: list[list[_Followers]] = []
        """The first pieces of prefixes, the second ones, and so on."""
        offset = 0
        for forest, prefix in groups:
            for node in forest.nodes:
                self._add_node(node, offset)
            self._add_prefix(forest, prefix, offset)
            offset += len(forest.tokens)

    def _add_node(self, node: Node, offset: int) -> None:
        start = node.start + offset
        last = self._own[-1] if self._own else None
        if last is None or not last.takes(start, node.length):
            self._own.append(_Run(start, node.length, 1))
        if node.end > node.stop:
            inner = _Inner(start, node.stop + offset, node.end + offset)
            self._inner.append(inner)

    def _add_prefix(
        self,
        forest: Forest,
        prefix: PrefixState,
        offset: int,
    ) -> None:
        stop = offset + len(forest.tokens)
        for level, piece in enumerate(prefix.pieces):
            if level == len(self._levels):
                self._levels.append([])
            after = self._levels[level]
            if after and after[-1].goes_on(offset, piece):
                after[-1].stop = stop
            else:
                after.append(_Followers(offset, stop, piece))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layer: int,
        scale: float,
    ) -> Tensor:
        """Compute the attention of a layer."""
        _, heads, rows, _ = query.shape
        query = query.contiguous()  # flash reads every row once per block of keys
        by_row = query.new_empty(1, rows, heads, value.shape[-1])
        out = by_row.transpose(1, 2)
        weight = torch.empty(1, heads, rows, dtype=torch.float32, device=query.device)
        for run in self._own:
            own = [_fold(states, run) for states in (query, key, value)]
            part, lse = attend(*own, causal=True, scale=scale)
            own_rows = slice(run.first, run.stop)
            out[0, :, own_rows] = _unfold(part)
            weight[0, :, own_rows] = _unfold(lse)
        for after, states in self._blocks(key, value, layer):
            queries = query[:, :, after]
            part, lse = attend(queries, *states, causal=False, scale=scale)
            before = weight[:, :, after]
            share = torch.sigmoid(lse - before).unsqueeze(-1)
            merged = out[:, :, after]
            merged.lerp_(part, share.to(out.dtype))
            torch.logaddexp(before, lse, out=before)
        return by_row

    def _blocks(
        self,
        key: Tensor,
        value: Tensor,
        layer: int,
    ) -> Iterator[tuple[slice, KeyValues]]:
        """Return rows, and the keys and values of another node or of a prefix that they all see."""
        for inner in self._inner:
            keys = key[:, :, inner.start : inner.stop]
            values = value[:, :, inner.start : inner.stop]
            yield slice(inner.stop, inner.end), (keys, values)
        for level in self._levels:
            for after in level:
                rows = slice(after.first, after.stop)
                yield rows, after.piece.layer(layer)


def _fold(states: Tensor, run: _Run) -> Tensor:
    """Reshape rows of nodes of equal length into a batch: ``[count, heads, length, dim]``."""
    if run.count == 1:
        return states[:, :, run.first : run.stop]
    _, heads, _, width = states.shape
    rows = states[0, :, run.first : run.stop]
    by_node = rows.view(heads, run.count, -1, width)
    return by_node.transpose(0, 1)


def _unfold(parts: Tensor) -> Tensor:
    """Reshape ``[count, heads, length, ...]`` to ``[heads, rows, ...]``."""
    return parts.transpose(0, 1).flatten(1, 2)


class CascadeForward(TwinForward):
    """A `PackedForward` through cascade attention."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner, CascadePlan)
