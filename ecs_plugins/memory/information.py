"""Utility from what a text has to tell, beside how often it was in demand.

In a chat most turns carry little: greetings, applause, questions back. Few turns have been asked
for by the time when they must be judged, and earlier questions hardly show which ones will be;
how much a text says can be seen at once. The measure is crude and costs nothing: the log of the
number of distinct words, in nats, added to the log of the rate of demand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import QueryEvent, Scorable, UtilityFunction
from ecs_plugins.memory.utility import observed_utility

_WORD = re.compile(r"\w+")


def informed_utility(config: MemoryConfig, *, weight: float = 1.0) -> UtilityFunction:
    """A utility that expects more of a text that says more.

    Args:
        config: The settings of the memory; demand decays by its ``half_life``.
        weight: Of the information beside the demand.

    Returns:
        The utility: ``ln rate + weight * ln(1 + distinct words)``.
    """
    if not weight >= 0:
        raise InvalidInputError(f"weight is {weight}; it must be at least 0")

    def utility(
        items: Sequence[Scorable], queries: Sequence[QueryEvent], step: int
    ) -> Sequence[float]:
        del queries
        demand = observed_utility([item.evidence for item in items], step, config)
        return [
            float(value) + weight * math.log1p(distinct_words(item.text))
            for value, item in zip(demand, items, strict=True)
        ]

    return utility


def distinct_words(text: str) -> int:
    """How many different words a text has, whatever their case."""
    return len(set(_WORD.findall(text.casefold())))
