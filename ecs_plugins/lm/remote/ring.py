"""Which replica a prompt goes to: consistent hashing, so that server caches hit.

Every replica owns many points of a circle. A prompt goes to the owner of the first point behind
its own hash and, if that one is away, to the next owner: when a replica leaves, only its share
of the prompts moves.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from hashlib import blake2b

POINTS = 64
"""Points per replica; the shares of two replicas then differ by some 10 to 20 percent."""

LONG_PREFIX = 64
"""Tokens from which on a prefix decides alone; shorter ones are shared by too many prompts."""

HASHED = 512
"""Tokens of a prefix that count, so that a conversation stays where it began."""


class Ring:
    """A circle of replicas.

    Args:
        names: Distinct names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        points = sorted(
            (_hash(f"{name}#{n}".encode()), owner)
            for owner, name in enumerate(names)
            for n in range(POINTS)
        )
        self._at = [at for at, _ in points]
        self._owners = [owner for _, owner in points]
        self._number = len(names)

    def order(self, key: bytes) -> list[int]:
        """Indices of all replicas, the one to ask first in front."""
        start = bisect.bisect(self._at, _hash(key))
        found: dict[int, None] = {}
        for n in range(len(self._owners)):
            found.setdefault(self._owners[(start + n) % len(self._owners)])
            if len(found) == self._number:
                break
        return list(found)


def prompt_key(prefix: Sequence[int], candidate: Sequence[int]) -> bytes:
    """What decides where a prompt goes: its prefix, and its candidate too if that is short."""
    ids = prefix if len(prefix) >= LONG_PREFIX else (*prefix, *candidate)
    return b",".join(b"%d" % i for i in ids[:HASHED])


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
