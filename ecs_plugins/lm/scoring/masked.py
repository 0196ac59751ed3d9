"""Packed rows under a tree mask: for attention that flash kernels do not know.

Soft-capped scores, attention sinks and whatever else a model adds stay the model's own; it
gets an additive mask in which a token sees the prefix, its ancestors and itself. Slower than a
cascade, because the mask is quadratic in the row, and as exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ecs_plugins.lm.scoring.forest import Forest
from ecs_plugins.lm.scoring.prefix import KeyValues, PrefixState
from ecs_plugins.lm.scoring.runner import Runner


class MaskedForward:
    """A `PackedForward` through the model's own attention."""

    many_prefixes = False
    max_tokens = 768

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.name = runner.name
        self.max_rows = runner.max_rows

    def __call__(
        self,
        groups: Sequence[tuple[Forest, PrefixState]],
        rows: Sequence[int],
        *,
        capture: bool = False,
    ) -> tuple[torch.Tensor, KeyValues]:
        """Run one forest behind one prefix."""
        from transformers import DynamicCache

        ((forest, prefix),) = groups
        past = len(prefix.ids)
        # Made without the configuration, so that no layer forgets what lies outside its window.
        cache = DynamicCache(prefix.layers) if past else DynamicCache()
        with_cache: dict[str, Any] = {"past_key_values": cache} if past or capture else {}
        logits = self._runner.logits(
            self._runner.ids(forest.tokens),
            rows,
            attention_mask=self._mask(forest, past),
            position_ids=self._runner.ids([past + depth for depth in forest.depths]),
            use_cache=bool(with_cache),
            **with_cache,
        )[0]
        if not capture:
            return logits, ()
        return logits, tuple((layer[0][:, :, past:], layer[1][:, :, past:]) for layer in cache)

    def _mask(self, forest: Forest, past: int) -> torch.Tensor:
        """Additive, ``[1, 1, rows, past + rows]``."""
        size, device = len(forest.tokens), self._runner.device
        ends = torch.empty(size, dtype=torch.long)
        for node in forest.nodes:
            ends[node.start : node.stop] = node.end
        row = torch.arange(size, device=device)
        seen = (row[None, :] <= row[:, None]) & (row[:, None] < ends.to(device)[None, :])
        mask = torch.zeros(size, past + size, dtype=self._runner.dtype, device=device)
        mask[:, past:].masked_fill_(~seen, torch.finfo(self._runner.dtype).min)
        return mask[None, None]
