"""Operations on tensors, and calls of torch's attention kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_CACHED_AT_ONCE = 2**19
_LAUNCHED_AT_ONCE = 2**25
_FLASH_WIDTH = 256
_FLASH_MULTIPLE = 8
_FLASH_CAPABILITY = (8, 0)
_BOTTOM_RIGHT = 2
"""The number of memory-efficient attention for a causal mask that ends where the keys end."""

Numbers = Sequence[int] | npt.NDArray[np.int64]


def on_device(
    numbers: Sequence[int] | Sequence[Sequence[int]],
    device: torch.device,
    dtype: torch.dtype = torch.long,
) -> Tensor:
    """Copy numbers to a device without waiting for it."""
    return _sent(torch.tensor(numbers, dtype=dtype), device)


def together_on_device(
    lists: Sequence[Numbers],
    device: torch.device,
) -> list[Tensor]:
    """Copy lists of integers to a device in one copy."""
    arrays = [np.asarray(numbers, dtype=np.int64) for numbers in lists]
    whole = torch.tensor(np.concatenate(arrays))
    sizes = [len(array) for array in arrays]
    there: Any = _sent(whole, device)
    return list(there.split(sizes))


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type == "cuda" and torch.cuda.is_available():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def from_device(numbers: Tensor) -> npt.NDArray[np.float32]:
    """Return the numbers of a tensor, once its device has computed them."""
    found: npt.NDArray[np.float32] = numbers.cpu().numpy()
    return found


Receiver = Callable[[npt.NDArray[np.float32]], None]


class Readings:
    """Numbers that a device may still be computing, read in one copy once all are asked for."""

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._receivers: list[Receiver] = []

    def add(self, numbers: Tensor, receive: Receiver) -> None:
        """Note one-dimensional float32 numbers, and the function that gets them."""
        self._numbers.append(numbers)
        self._receivers.append(receive)

    def read(self) -> None:
        """Wait for the device, and tell everybody."""
        if not self._numbers:
            return
        whole = from_device(torch.cat(self._numbers))
        at = 0
        pairs = zip(self._numbers, self._receivers, strict=True)
        for numbers, receive in pairs:
            end = at + len(numbers)
            receive(whole[at:end])
            at = end
        self._numbers.clear()
        self._receivers.clear()


def rows_at_once(logits: Tensor) -> int:
    """Return the rows per chunk of a softmax in float32.

    On a processor a chunk stays in the cache; elsewhere it is 128 MiB, worth a launch.
    """
    numbers = _CACHED_AT_ONCE if logits.device.type == "cpu" else _LAUNCHED_AT_ONCE
    return max(1, numbers // logits.shape[1])


def divergence_of(candidate: Tensor, base: Tensor) -> Tensor:
    """Return ``D_KL(candidate || base)`` in nats, ``[n]``, never negative.

    Both are log-probabilities, float32, ``[n, vocabulary]``.
    """
    # Summed as p ln(p / q) - p + q, which is the same because both sum to one: no term of it is
    # negative, so what rounding leaves of two equal distributions cannot be less than zero.
    p = candidate.exp()
    q = base.exp()
    logs = p * (candidate - base)
    terms = torch.where(p > 0, logs - p, p) + q
    return terms.clamp_min(0.0).sum(dim=-1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Compute flash attention on a processor, with its log-sum-exp.

    Queries are ``[batch, heads, rows, dim]``, keys and values ``[batch, kv_heads, keys, dim]``; the
    log-sum-exp is ``[batch, heads, rows]`` in float32.
    """
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query,
        key,
        value,
        0.0,
        causal,
        scale=scale,
    )
    return out, lse.float()


class Sequences(NamedTuple):
    """Sequences of queries and of keys, each laid one after the other.

    Attributes:
        query_starts: int32, ``[number + 1]``: where each sequence of queries begins, and the end.
        key_starts: The same of the keys.
        most_queries: Queries of the longest sequence.
        most_keys: Keys of the longest sequence.
        causal: Whether the last query of a sequence sees all of its keys, the one before it all
            but the last, and so on; else all queries see all keys.
    """

    query_starts: Tensor
    key_starts: Tensor
    most_queries: int
    most_keys: int
    causal: bool


def attend_sequences(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Compute the attention of every sequence to its own keys, in one kernel on a card.

    Args:
        query: ``[rows, heads, dim]``.
        key: ``[keys, kv_heads, dim]``.
        value: ``[keys, kv_heads, dim of values]``.
        sequences: Which queries see which keys.
        scale: Of the products.

    Returns:
        ``[rows, heads, dim of values]``, and the log-sum-exp ``[heads, rows]`` in float32.
    """
    if _suits_flash(query, value):
        out, lse, *_ = torch.ops.aten._flash_attention_forward(
            query,
            key,
            value,
            sequences.query_starts,
            sequences.key_starts,
            sequences.most_queries,
            sequences.most_keys,
            0.0,
            sequences.causal,
            False,
            scale=scale,
        )
        return out, lse
    return _attend_efficiently(query, key, value, sequences, scale)


def _suits_flash(query: Tensor, value: Tensor) -> bool:
    """Return True if flash attention supports the dtype, the width and the card."""
    width = query.shape[2]
    if query.dtype not in (torch.float16, torch.bfloat16):
        return False
    if width != value.shape[2] or width > _FLASH_WIDTH or width % _FLASH_MULTIPLE:
        return False
    if not torch.cuda.is_available():  # on shapes alone
        return True
    capability = torch.cuda.get_device_capability(query.device)
    return capability >= _FLASH_CAPABILITY


def _attend_efficiently(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Compute memory-efficient attention, for float32 and cards without flash attention."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key = key.repeat_interleave(groups, dim=1)
        value = value.repeat_interleave(groups, dim=1)
    out, padded, *_ = torch.ops.aten._efficient_attention_forward(
        query.unsqueeze(0),
        key.unsqueeze(0),
        value.unsqueeze(0),
        None,
        sequences.query_starts,
        sequences.key_starts,
        sequences.most_queries,
        sequences.most_keys,
        0.0,
        _BOTTOM_RIGHT if sequences.causal else 0,
        True,
        scale=scale,
    )
    # Its log-sum-exp is ``[sequence, head, place]``, padded to the longest sequence.
    starts = sequences.query_starts
    number = len(starts) - 1
    rows = query.shape[0]
    lengths = starts[1:] - starts[:-1]
    sequence = torch.repeat_interleave(
        torch.arange(number, device=query.device),
        lengths.long(),
        output_size=rows,
    )
    row = torch.arange(rows, device=query.device)
    place = row - starts[sequence]
    lse = padded[sequence, :, place]
    return out[0], lse.transpose(0, 1)
