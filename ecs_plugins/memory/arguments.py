"""Checks of arguments before anything is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import TIERS, Tier

_FAR = 1e12  # seconds; beyond any date
_TIERS: Mapping[str, tuple[Tier, ...]] = {"both": TIERS, "hot": ("hot",), "cold": ("cold",)}


def check_wanted(k: int | None, threshold: float | None, at: float | None) -> None:
    """Refuse arguments of a recall that are out of range."""
    if k is not None and not _is_count(k):
        raise InvalidInputError(f"k is {k!r:.80}; it must be a number of at least 1")
    if threshold is not None and not _is_within(threshold, 1):
        raise InvalidInputError(f"threshold is {threshold!r:.80}; it must be a number up to 1")
    if at is not None and not _is_within(at, _FAR):
        raise InvalidInputError(f"at is {at!r:.80}; it must be a Unix time in seconds")


def check_outdated(outdated: str) -> str:
    """Return the argument ``outdated`` of a recall; refuse an unknown one."""
    if outdated not in ("mark", "hide"):
        raise InvalidInputError(f"outdated is 'mark' or 'hide', got {outdated!r:.80}")
    return outdated


def _is_count(value: Any) -> bool:
    is_whole = isinstance(value, Integral)
    return is_whole and bool(value >= 1)


def _is_within(value: Any, limit: float) -> bool:
    """Return True for a number no farther from 0 than a limit."""
    is_number = isinstance(value, Real)
    return is_number and bool(-limit <= value <= limit)


def searched_tiers(tiers: str | None, config: MemoryConfig) -> tuple[Tier, ...]:
    """Return the tiers that a recall searches."""
    if tiers is None:
        tiers = "cold" if config.rule == "paper" else "both"
    if tiers not in _TIERS:
        raise InvalidInputError(f"tiers is 'both', 'hot' or 'cold', got {tiers!r}")
    return _TIERS[tiers]


def listed(values: Collection[Any], name: str) -> Collection[Any]:
    """Return a collection as it is; refuse anything else, and a bare text."""
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidInputError(f"{name} is a collection, got {values!r:.80}; write [...]")
    return values
