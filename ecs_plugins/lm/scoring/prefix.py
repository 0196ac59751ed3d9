"""Keys and values of computed prefixes, kept between calls under a byte budget.

A conversation grows at its end, and an accepted passage is appended to the context: both find
what they share with an earlier prefix here and compute only the rest. A causal model's keys
and values depend on what stands before alone, so any leading part of a kept prefix is as good
as computed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from operator import itemgetter

import torch
from cachetools import LRUCache

from ecs_plugins.lm.scoring.request import Ids, common_length

KeyValues = tuple[tuple[torch.Tensor, torch.Tensor], ...]

DEFAULT_CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class PrefixState:
    """A computed prefix.

    Attributes:
        ids: Its token ids.
        layers: Per attention layer, keys and values ``[1, kv_heads, len(ids), head_dim]``.
    """

    ids: Ids = ()
    layers: KeyValues = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(k.nbytes + v.nbytes for k, v in self.layers)

    def head(self, length: int) -> PrefixState:
        """The state of the first ``length`` tokens: views, no copy."""
        if length >= len(self.ids):
            return self
        if not length:
            return PrefixState()
        return PrefixState(
            self.ids[:length],
            tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers),
        )

    def append(self, ids: Ids, layers: KeyValues) -> PrefixState:
        """This state with what was computed behind it; neither input is changed."""
        if not self.ids:
            joined = tuple((k.contiguous(), v.contiguous()) for k, v in layers)
        else:
            joined = tuple(
                (torch.cat((k, k2), dim=2), torch.cat((v, v2), dim=2))
                for (k, v), (k2, v2) in zip(self.layers, layers, strict=True)
            )
        return PrefixState(self.ids + ids, joined)


class PrefixCache:
    """Least recently used prefixes under a byte budget. Thread-safe.

    Args:
        max_bytes: The budget; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._entries = _entries(max_bytes)
        self._lock = threading.Lock()

    @property
    def max_bytes(self) -> int:
        """The budget."""
        return int(self._entries.maxsize)

    def find(self, ids: Ids) -> PrefixState:
        """The longest kept leading part of ``ids``; the empty state if there is none."""
        with self._lock:
            best, length = max(
                ((key, common_length(key, ids)) for key in self._entries),
                key=itemgetter(1),
                default=((), 0),
            )
            return self._entries[best].head(length) if length else PrefixState()

    def keep(self, state: PrefixState) -> None:
        """Keep a state, and drop what it extends and what no longer fits."""
        if not state.ids or state.nbytes > self.max_bytes:
            return
        with self._lock:
            for key in [key for key in self._entries if state.ids[: len(key)] == key]:
                del self._entries[key]
            self._entries[state.ids] = state

    def resize(self, max_bytes: int) -> None:
        """Change the budget; what no longer fits is dropped at once."""
        with self._lock:
            before, self._entries = self._entries, _entries(max_bytes)
            while before:  # the least recently used first
                key, state = before.popitem()
                if state.nbytes <= max_bytes:
                    self._entries[key] = state

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries.clear()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return int(self._entries.currsize)

    def __len__(self) -> int:
        return len(self._entries)


def _entries(max_bytes: int) -> LRUCache[Ids, PrefixState]:
    return LRUCache(max_bytes, getsizeof=lambda state: state.nbytes)
