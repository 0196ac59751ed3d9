"""Which memories a proposal may repeat, found for all proposals of a sleep phase at once.

Most proposals are near to nothing. Two matrix products say which are, instead of one product with
the whole store for each. They decide nothing, since their last digits are not those of the single
products: whoever is near by them is compared again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ecs_plugins.memory.pairs import pairs_above
from ecs_plugins.memory.types import Matrix, Proposal

ROUNDING: Final = 1e-3
"""More than two ways of computing the cosine of two float32 vectors can differ by."""


class Neighbours:
    """The positions of the memories that are near to each proposal.

    Memories that changed their vectors since are not known here.

    Args:
        proposals: All that will be judged.
        vectors: Of the memories of before [n, d], in their positions.
        least: Least cosine.
    """

    def __init__(self, proposals: Sequence[Proposal], vectors: Matrix, least: float) -> None:
        self._ids = [proposal.id for proposal in proposals]
        self._positions: dict[str, int] = {}  # of the proposals that became memories
        self._before: dict[str, list[int]] = {}
        self._among: dict[str, list[str]] = {}
        if proposals:
            own = np.array([proposal.vector for proposal in proposals])
            if len(vectors):
                self._before = self._grouped(own @ vectors.T, least)
            among = self._grouped(own @ own.T, least)
            self._among = {
                one: [self._ids[other] for other in others] for one, others in among.items()
            }

    def _grouped(self, cosines: Matrix, least: float) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for row, column in pairs_above(cosines, least - ROUNDING):
            groups.setdefault(self._ids[row], []).append(column)
        return groups

    def became(self, proposal: Proposal, position: int) -> None:
        """Note that a proposal became a memory at a position."""
        self._positions[proposal.id] = position

    def of(self, proposal: Proposal) -> list[int]:
        """Return the positions near to a proposal, of memories that may be gone by now."""
        among = (self._positions.get(other) for other in self._among.get(proposal.id, ()))
        return [*self._before.get(proposal.id, ()), *(at for at in among if at is not None)]
