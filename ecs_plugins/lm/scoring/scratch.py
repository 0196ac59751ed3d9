"""Memory for intermediate results that every layer takes again.

A block of several MiB comes from the system page by page and goes back when it is freed. Taken
once instead of once per layer, it is also still in the processor's cache.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Scratch:
    """Blocks of the processor's memory by name, as large as the largest that was asked for."""

    def __init__(self) -> None:
        self._blocks: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor with undefined content, in the memory of what last had that name."""
        numbers = math.prod(shape)
        block = self._blocks.get(name)
        if block is None or block.numel() < numbers or block.dtype != dtype:
            block = self._blocks[name] = torch.empty(numbers, dtype=dtype)
        return block[:numbers].view(shape)
