"""The thermodynamics, as pure functions: utility, entropy, free energy, acceptance, temperature.

Paper, section 2 and A.1: ``F = E + lambda * S``, ``E = -utility``, and a candidate c replaces a
victim v with ``P = min(1, exp(-(F(c) - F(v)) / T))``. What S and the utility are is open there;
each reading is a function of its own here. All logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ecs_plugins.memory.types import Floats, FreeEnergy, Matrix, Vector


class Energies:
    """``F = E + lambda * S`` of several memories, with ``E = -utility`` (paper, section 2).

    Attributes:
        energies: E [n].
        totals: F [n].
    """

    def __init__(self, energies: Floats, entropies: Floats, entropy_weight: float) -> None:
        self.energies = energies
        self.totals = energies + entropy_weight * entropies
        self._entropies = entropies

    def __getitem__(self, at: int) -> FreeEnergy:
        terms = self.energies[at], self._entropies[at], self.totals[at]
        return FreeEnergy(*map(float, terms))

    def __iter__(self) -> Iterator[FreeEnergy]:
        return (self[at] for at in range(len(self.totals)))

    def take(self, at: int, other: int) -> None:
        """Give a memory the terms of another one."""
        for terms in (self.energies, self._entropies, self.totals):
            terms[at] = terms[other]


def acceptance_probability(delta: float, temperature: float) -> float:
    """Return the Metropolis probability ``min(1, exp(-delta / T))`` (paper, section 2).

    ``T = 0`` is the limit: an improvement or a tie is accepted, anything worse is not. An
    infinite temperature accepts everything.

    >>> acceptance_probability(-3.0, 1.0)
    1.0
    >>> round(acceptance_probability(1.0, 1.0), 4)
    0.3679
    >>> acceptance_probability(1e9, 1e-9)
    0.0
    """
    if delta <= 0.0:
        return 1.0
    if temperature <= 0.0:
        return 0.0
    if math.isinf(temperature):
        return 1.0
    return math.exp(-delta / temperature)


def cluster_variance(vectors: Matrix) -> float:
    """Return the mean squared distance of the members [m, d] to their mean (paper, A.1).

    For unit vectors it is ``1 - |mean|**2``, in [0, 1].
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    squares = ((vectors - mean) ** 2).sum(axis=1)
    return float(squares.mean())


def embedding_entropy(vector: Vector) -> float:
    """Return the Shannon entropy of ``softmax(e)`` over the coordinates of one embedding.

    The paper's ``S(m) = H(e_m)``, section 2. For unit vectors it is ``ln d`` to four digits
    whatever the text, so it tells no memory from another.
    """
    p = np.exp(vector.astype(np.float64) - float(vector.max()))
    p /= p.sum()
    terms = p * np.log(p)
    return float(-terms.sum())
