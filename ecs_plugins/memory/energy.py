"""The thermodynamics, as pure functions: utility, entropy, free energy, acceptance, temperature.

Paper, section 2 and A.1: ``F = E + lambda * S``, ``E = -utility``, and a candidate c replaces a
victim v with ``P = min(1, exp(-(F(c) - F(v)) / T))``. What S and the utility are is open there;
each reading is a function of its own here. All logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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

    def __len__(self) -> int:
        return len(self.totals)

    def __getitem__(self, at: int) -> FreeEnergy:
        terms = self.energies[at], self._entropies[at], self.totals[at]
        return FreeEnergy(*map(float, terms))

    def __iter__(self) -> Iterator[FreeEnergy]:
        return (self[at] for at in range(len(self)))

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


def scaled_temperature(temperature: float, totals: Floats | Sequence[float]) -> float:
    """Return T in units of the standard deviation of F over the store.

    A rule that is a tenth of a standard deviation from indifferent is so whatever the scale of
    the utility. With fewer than two memories there is no spread, and T is 0.
    """
    if len(totals) < 2:
        return 0.0
    return temperature * float(np.std(totals))


def query_utility(vectors: Matrix, queries: Matrix, ages: Floats, *, decay: float) -> Floats:
    """Return the mean cosine of each memory to the recent queries, weighted by recency (A.1).

    Args:
        vectors: Memories [n, d], normalised.
        queries: Recent queries [q, d], normalised.
        ages: Steps since each query [q].
        decay: Weight of a query per step of age, in [0, 1].

    Returns:
        Utilities [n]; zeros when there are no queries.
    """
    if not len(queries):
        return np.zeros(len(vectors))
    weights = decay**ages
    cosines = (vectors @ queries.T).astype(np.float64)
    totals = cosines @ weights
    return np.asarray(totals / weights.sum())


def effective_age(age: Floats, half_life: float) -> Floats:
    """Return the decayed exposure ``integral of 2**(-t / half_life)`` over the age, at least 1."""
    tau = half_life / math.log(2.0)
    exposure = -tau * np.expm1(-age / tau)
    return np.maximum(exposure, 1.0)


def log_demand_rate(
    demand: Floats, exposure: Floats, prior_rate: float, prior_events: float = 0.5
) -> Floats:
    """Return the log of the posterior mean rate at which each memory is in demand.

    Gamma-Poisson: ``(demand + a) / (exposure + a / r)`` with a prior of ``a`` events at rate r.
    Half an event: most memories are never asked for, so one that was says much of itself.

    >>> rate = np.exp(log_demand_rate(np.array([3.0]), np.array([100.0]), 0.01))
    >>> round(float(rate[0]), 6)
    0.023333
    """
    events = demand + prior_events
    time = exposure + prior_events / prior_rate
    return np.asarray(np.log(events) - np.log(time))


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
