"""Keys and values of tokens in fixed pages of memory that is allocated once.

Passages of all lengths come and go. If each brought tensors of its own, two per layer, they would
break up the heap of a process until it takes several times their size. So the memory is taken
once and handed out in pages of a few tokens (the idea of paged attention, arXiv 2309.06180): the
budget is the memory. A call reads its part by slices, or by index in one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

PAGE = 16
"""Tokens of a page. Smaller pages waste less after each passage and break it up more."""

_COPIED_AT_ONCE = 256
"""Tokens."""

KeyValues = tuple[Tensor, Tensor]
"""Keys and values of one layer, each ``[1, kv_heads, tokens, width]``."""


class LayerShape(NamedTuple):
    """Shape of a layer's keys and values of one token: heads, and widths of key and value."""

    kv_heads: int
    key_width: int
    value_width: int

    @property
    def numbers(self) -> int:
        """Return numbers that one token takes."""
        return self.kv_heads * (self.key_width + self.value_width)


@dataclass(frozen=True, slots=True)
class StateShape:
    """Shape of a model's keys and values of one token in all layers, and their device."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Return bytes that one token takes."""
        numbers = sum(layer.numbers for layer in self.layers)
        return self.dtype.itemsize * numbers


class Arena:
    """Memory for the keys and values of a fixed number of pages of tokens.

    A slot is the place of one token. Pages are reference-counted: two runs may share one.

    Args:
        shape: Shape of the state of a token.
        pages: Number of pages.
        page: Tokens of a page.

    Attributes:
        layers: The keys and values of all slots, per layer.
        free: Number of unused pages.
    """

    def __init__(
        self,
        shape: StateShape,
        pages: int,
        page: int = PAGE,
    ) -> None:
        self.shape = shape
        self.pages = pages
        self.page = page
        self.free = pages
        self.layers = _allocate(shape, pages * page)
        self._uses = np.zeros(pages, dtype=np.int32)
        self._next = 0

    @property
    def page_bytes(self) -> int:
        """Return bytes of one page."""
        return self.page * self.shape.token_bytes

    @property
    def nbytes(self) -> int:
        """Return bytes of all pages."""
        return self.pages * self.page_bytes

    def pages_for(self, tokens: int) -> int:
        """Return the number of pages for some tokens."""
        return -(-tokens // self.page)

    def take(self, tokens: int) -> list[range]:
        """Take slots for some tokens, in as few runs as possible.

        Raises:
            ValueError: There are not so many free pages.
        """
        number = self.pages_for(tokens)
        if number > self.free:
            raise ValueError(f"{number} pages are wanted, and {self.free} are free")
        runs = self._find(number)
        slots = []
        left = tokens
        for pages in runs:
            self._uses[pages.start : pages.stop] += 1
            length = min(left, len(pages) * self.page)
            start = pages.start * self.page
            slots.append(range(start, start + length))
            left -= length
        self.free -= number
        self._next = runs[-1].stop
        return slots

    def share(self, slots: range) -> None:
        """Count one more run on the pages of these slots."""
        self._uses[self._pages(slots)] += 1

    def give_back(self, slots: range) -> None:
        """Count one run less on the pages of these slots."""
        uses = self._uses[self._pages(slots)]
        uses -= 1
        self.free += int((uses == 0).sum())

    def write(
        self,
        layer: int,
        states: KeyValues,
        rows: Tensor,
        slots: Tensor,
    ) -> None:
        """Copy some rows of a layer's keys and values into slots."""
        # A processor copies a few at a time, which takes no memory to speak of.
        step = _COPIED_AT_ONCE if rows.device.type == "cpu" else max(1, len(rows))
        for at in range(0, len(rows), step):
            part = slice(at, at + step)
            pairs = zip(self.layers[layer], states, strict=True)
            for target, source in pairs:
                chosen = source.index_select(2, rows[part])
                target.index_copy_(2, slots[part], chosen)

    def read(self, layer: int, slots: range) -> KeyValues:
        """Return a layer's keys and values in a run of slots: views, no copy."""
        keys, values = self.layers[layer]
        run = slice(slots.start, slots.stop)
        return keys[:, :, run], values[:, :, run]

    def _pages(self, slots: range) -> slice:
        first = slots.start // self.page
        stop = self.pages_for(slots.stop)
        return slice(first, stop)

    def _find(self, number: int) -> list[range]:
        """Find runs of free pages: after the last taken ones, else side by side, else any."""
        following = range(self._next, self._next + number)
        if following.stop <= self.pages:
            uses = self._uses[following.start : following.stop]
            if not uses.any():
                return [following]
        free = np.flatnonzero(self._uses == 0)
        last = free[number - 1 :]
        first_of_each = free[: len(last)]
        distances = last - first_of_each
        side_by_side = np.flatnonzero(distances == number - 1)
        if len(side_by_side):
            first = int(free[side_by_side[0]])
            return [range(first, first + number)]
        chosen = free[:number]
        breaks = np.flatnonzero(np.diff(chosen) != 1) + 1
        parts = np.split(chosen, breaks)
        return [range(int(part[0]), int(part[-1]) + 1) for part in parts]


def _allocate(shape: StateShape, slots: int) -> list[KeyValues]:
    """Allocate one tensor for all fields of equal shape, and return views for each layer."""
    fields: dict[tuple[int, int], list[int]] = {}
    for number, layer in enumerate(shape.layers):
        key = (layer.kv_heads, layer.key_width)
        value = (layer.kv_heads, layer.value_width)
        fields.setdefault(key, []).append(2 * number)
        fields.setdefault(value, []).append(2 * number + 1)
    made: dict[int, Tensor] = {}
    for (heads, width), numbers in fields.items():
        size = (len(numbers), 1, heads, slots, width)
        whole = _empty(shape, size)
        made.update(zip(numbers, whole, strict=True))
    layers = []
    for number in range(len(shape.layers)):
        keys = made[2 * number]
        values = made[2 * number + 1]
        layers.append((keys, values))
    return layers


def _empty(shape: StateShape, size: Sequence[int]) -> Tensor:
    """Allocate ``[fields, 1, heads, slots, width]`` in the layout that the device reads.

    A processor reads run after run of one head. A card gathers whole tokens by index.
    """
    if shape.device.type == "cpu":
        return torch.empty(size, dtype=shape.dtype, device=shape.device)
    fields, one, heads, slots, width = size
    by_token = (fields, one, slots, heads, width)
    whole = torch.empty(by_token, dtype=shape.dtype, device=shape.device)
    return whole.transpose(2, 3)
