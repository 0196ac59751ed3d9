"""Prompts of a batch read one by one, then decoded together: faster on a processor.

A padded batch pays for its padding, and under a padding mask attention takes a slower path; a
long prompt fills a processor's cores alone. So each prompt is read unpadded, continuing from the
tokens that it shares with the one before, and its keys and values are copied into buffers that
have room for what will be written: decoding then appends in place, where the cache of
transformers copies everything for every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Ids = tuple[int, ...]
WORTH_SHARING = 16
"""Fewer equal tokens at the start of two prompts are read again: a mask would cost more."""


class _Buffer(DynamicLayer):  # type: ignore[no-untyped-call]  # its __init_subclass__
    """Keys and values of one layer, written in place."""

    def __init__(self, like: DynamicLayer, rows: int, room: int, used: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        assert like.keys is not None
        assert like.values is not None
        self.lazy_initialization(like.keys, like.values)
        # Padding stays zero: masked, but it must be finite.
        self._room = tuple(
            states.new_zeros((rows, states.shape[1], room, states.shape[3]))
            for states in (like.keys, like.values)
        )
        self._use(used)

    def take(self, row: int, layer: DynamicLayer) -> None:
        """Copy the states of one prompt, flush right."""
        used = self.get_seq_length()
        for buffer, states in zip(self._room, (layer.keys, layer.values), strict=True):
            assert states is not None
            buffer[row, :, used - states.shape[-2] : used] = states[0]

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_args: object,
        **_kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append behind what is there."""
        used = self.get_seq_length()
        end = used + key_states.shape[-2]
        for buffer, states in zip(self._room, (key_states, value_states), strict=True):
            buffer[:, :, used:end] = states
        return self._use(end)

    def _use(self, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._room)
        return self.keys, self.values


def read_prompts(model: PreTrainedModel, prompts: Sequence[Ids], new: int) -> Cache | None:
    """Keys and values of all prompts but their last tokens, padded on the left.

    Args:
        model: Its positions must follow the attention mask.
        prompts: At least two tokens each.
        new: Tokens that will be written behind them.

    Returns:
        A cache for `generate`; None if the model keeps something else than keys and values.
    """
    used = max(map(len, prompts)) - 1
    buffers: list[_Buffer] = []
    # Without a configuration, layers with a sliding window keep everything too: their masks
    # know the window, and a prompt can go on from any point of the one before.
    past, read = DynamicCache(), Ids()
    for row in sorted(range(len(prompts)), key=prompts.__getitem__):
        ids = prompts[row][:-1]
        shared = _shared(read, ids)
        if shared < WORTH_SHARING:
            past, shared = DynamicCache(), 0
        elif shared < len(read):
            past.crop(shared - len(read))
        if ids[shared:]:
            rest = torch.tensor([ids[shared:]], device=model.device)
            model.base_model(input_ids=rest, past_key_values=past, use_cache=True)
        read = ids
        layers = [layer for layer in past.layers if type(layer) is DynamicLayer]
        if not layers or len(layers) < len(past.layers):
            return None
        if not buffers:
            room = used + new + 1
            buffers = [_Buffer(layer, len(prompts), room, used) for layer in layers]
        for buffer, layer in zip(buffers, layers, strict=True):
            buffer.take(row, layer)
    return Cache(layers=list(buffers))


def _shared(first: Ids, second: Ids) -> int:
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
