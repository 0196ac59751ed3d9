"""Keys and values of computed prefixes, kept between calls under a byte budget.

A conversation grows at its end, and an accepted passage is appended to the context: both find
what they share with an earlier prefix here and compute only the rest. A causal model's keys
and values depend on what stands before alone, so any leading part of a kept prefix is as good
as computed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

import torch

from ecs_plugins.errors import ConfigurationError
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


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What the cache did since it was made or cleared.

    Attributes:
        lookups: How often a prefix was asked for.
        hits: How often at least one token of it was there.
        tokens_asked: Tokens of all prefixes asked for.
        tokens_found: Tokens of them that did not have to be computed.
        evictions: Entries dropped for others.
        entries: Entries held now.
        bytes: Bytes held now.
    """

    lookups: int = 0
    hits: int = 0
    tokens_asked: int = 0
    tokens_found: int = 0
    evictions: int = 0
    entries: int = 0
    bytes: int = 0


class PrefixCache:
    """Least recently used prefixes under a byte budget. Thread-safe.

    Args:
        max_bytes: The budget; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        _require_budget(max_bytes)
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Ids, PrefixState] = OrderedDict()
        self._lock = threading.Lock()
        self._statistics = CacheStatistics()

    def find(self, ids: Ids) -> PrefixState:
        """The longest kept leading part of ``ids``; the empty state if there is none."""
        with self._lock:
            best, length = None, 0
            for key in reversed(self._entries):
                shared = common_length(key, ids)
                if shared > length:
                    best, length = key, shared
                if length == len(ids):
                    break
            counts = self._statistics
            self._statistics = replace(
                counts,
                lookups=counts.lookups + 1,
                hits=counts.hits + bool(length),
                tokens_asked=counts.tokens_asked + len(ids),
                tokens_found=counts.tokens_found + length,
            )
            if best is None:
                return PrefixState()
            self._entries.move_to_end(best)
            return self._entries[best].head(length)

    def keep(self, state: PrefixState) -> None:
        """Keep a state, and drop what it extends and what no longer fits."""
        if not state.ids or state.nbytes > self.max_bytes:
            return
        with self._lock:
            for key in [key for key in self._entries if state.ids[: len(key)] == key]:
                del self._entries[key]
            self._entries[state.ids] = state
            self._evict()

    def resize(self, max_bytes: int) -> None:
        """Change the budget; what no longer fits is dropped at once.

        Raises:
            ConfigurationError: ``max_bytes`` is negative.
        """
        _require_budget(max_bytes)
        with self._lock:
            self.max_bytes = max_bytes
            self._evict()

    def _evict(self) -> None:
        used = sum(entry.nbytes for entry in self._entries.values())
        dropped = 0
        while used > self.max_bytes:
            used -= self._entries.popitem(last=False)[1].nbytes
            dropped += 1
        self._statistics = replace(self._statistics, evictions=self._statistics.evictions + dropped)

    def clear(self) -> None:
        """Drop everything and start counting anew."""
        with self._lock:
            self._entries.clear()
            self._statistics = CacheStatistics()

    @property
    def statistics(self) -> CacheStatistics:
        """Counts so far and what is held now."""
        with self._lock:
            held = sum(entry.nbytes for entry in self._entries.values())
            return replace(self._statistics, entries=len(self._entries), bytes=held)


def _require_budget(max_bytes: int) -> None:
    if max_bytes < 0:
        raise ConfigurationError(f"the prefix cache cannot have {max_bytes} bytes; 0 keeps nothing")
