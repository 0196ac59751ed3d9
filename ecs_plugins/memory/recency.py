"""Which of two notes on one thing stands first: the later one.

Two notes that lie near each other and fit a question about as well are often an earlier and a later
state of one thing. Which of them holds can be told by the time alone, so the later one leads.
Nothing is left out, and what fits clearly better stays in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ecs_plugins.common.text import asks
from ecs_plugins.memory.types import Vector

NEAR = 0.5
"""Least cosine of two notes on one thing."""
MARGIN = 0.12
"""How much less of the mean of cosine and coverage the later note may have."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is compared.

    Attributes:
        text: What it says.
        vector: Its vector [d], normalised.
        fit: The mean of its cosine with the question and of the share of it that it covers.
        since: When it was said; None if that is not known.
    """

    text: str
    vector: Vector
    fit: float
    since: float | None


def later_first(notes: Sequence[Note]) -> list[int]:
    """The positions of notes, which come best first, with later ones before what they continue.

    A question says nothing of what holds, so it passes nothing.
    """
    order: list[int] = []
    for position, note in enumerate(notes):
        place = len(order)
        while place and _continues(note, notes[order[place - 1]]):
            place -= 1
        order.insert(place, position)
    return order


def _continues(later: Note, earlier: Note) -> bool:
    if later.since is None or earlier.since is None or later.since <= earlier.since:
        return False
    if later.fit < earlier.fit - MARGIN or asks(later.text):
        return False
    return float(np.dot(later.vector, earlier.vector)) >= NEAR
