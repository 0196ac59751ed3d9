"""What cascade attention is told about one packed row: which rows attend to what."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.forest import Forest
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.runner import on_device
from ecs_plugins.lm.scoring.scratch import Scratch

if TYPE_CHECKING:
    from ecs_plugins.lm.scoring.ragged import RaggedPlan


@dataclass(slots=True)
class AttentionPlan:
    """Which rows attend to what, in one packed row.

    Attributes:
        own: Runs of nodes of equal length, as (first row, length, count).
        shared: Inner nodes, as (first row, one past the last, one past the last descendant).
        prefixes: Prefix states, as (first row, one past the last row behind it, state).
        longest: Tokens of the longest path, prefix included.
        kept: The rows that are looked at, ascending; the last layer leaves out the others. None are
            where only keys and values are wanted.
        layers: Attention layers of the model.
        captured: Keys and values of the row itself, per layer, if wanted.
        calls: Attention layers that ran; a model that goes its own way shows here.
        ragged: The same plan for a kernel of variable length, where there is one.
        scratch: Memory for the intermediate results of the layers.
    """

    own: list[tuple[int, int, int]] = field(default_factory=list)
    shared: list[tuple[int, int, int]] = field(default_factory=list)
    prefixes: list[tuple[int, int, PrefixState]] = field(default_factory=list)
    longest: int = 0
    kept: Sequence[int] = ()
    layers: int = 0
    captured: list[tuple[Tensor, Tensor]] | None = None
    calls: int = 0
    ragged: RaggedPlan | None = None
    scratch: Scratch = field(default_factory=Scratch)
    _kept: Tensor | None = None

    def add(self, forest: Forest, prefix: PrefixState, offset: int) -> None:
        """Plan a forest that stands at row ``offset`` behind a prefix."""
        for node in forest.nodes:
            start = node.start + offset
            first, length, count = self.own[-1] if self.own else (0, -1, 0)
            if length == node.length and first + length * count == start:
                self.own[-1] = (first, length, count + 1)
            else:
                self.own.append((start, node.length, 1))
            if node.end > node.stop:
                self.shared.append((start, node.stop + offset, node.end + offset))
            self.longest = max(self.longest, len(prefix.ids) + node.depth + node.length)
        if prefix.ids:
            self.prefixes.append((offset, offset + len(forest.tokens), prefix))

    @property
    def finished(self) -> bool:
        """Whether the last attention layer has been reached."""
        return self.calls == self.layers

    def kept_on(self, device: torch.device) -> Tensor:
        """The kept rows as an index, int64; sent to the device once."""
        if self._kept is None:
            self._kept = on_device(self.kept, device)
        return self._kept

    def kept_within(self, start: int, end: int) -> slice:
        """Which of the kept rows lie in a range of rows."""
        return slice(bisect_left(self.kept, start), bisect_left(self.kept, end))
