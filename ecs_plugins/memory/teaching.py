"""What an answer teaches a memory: what it rested on is asked for, and what did nothing less so.

A recall is an event of demand for everything that it returns, because nobody knows yet what the
answer will rest on. Once that is known, half an event is given to what the answer rests on for
certain, and half is taken from what it does not rest on at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.admission import decayed
from ecs_plugins.memory.types import Evidence

IN_VAIN = 0.5
"""Events of demand that are taken from what did nothing for an answer."""


def taught(evidence: Evidence, share: float, step: int) -> Evidence:
    """The evidence after an answer that rests on the memory with this probability."""
    evidence = decayed(evidence, step)
    demand = max(0.0, evidence.demand + share - IN_VAIN)
    return replace(evidence, demand=demand)


def checked_shares(shares: Mapping[str, float] | None) -> dict[str, float]:
    """The shares by id, as plain numbers; none where none are given.

    Raises:
        InvalidInputError: A share is no number in [0, 1].
    """
    plain: dict[str, float] = {}
    for id, share in (shares or {}).items():
        number = float(share)
        if not math.isfinite(number) or not 0.0 <= number <= 1.0:
            raise InvalidInputError(f"the share of {id!r} lies in [0, 1], got {share!r}")
        plain[id] = number
    return plain
