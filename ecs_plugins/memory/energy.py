"""The thermodynamics, as pure functions: utility, entropy, free energy, acceptance, temperature.

Paper, section 2 and A.1: ``F = E + lambda * S``, ``E = -utility``, and a candidate c replaces a
victim v with ``P = min(1, exp(-(F(c) - F(v)) / T))``. What S and the utility are is open there;
each reading is a function of its own here. All logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ecs_plugins.memory.types import Floats, FreeEnergy, Matrix


def free_energy(utility: float, entropy: float, entropy_weight: float) -> FreeEnergy:
    """Return ``F = E + lambda * S`` with ``E = -utility`` (paper, section 2)."""
    energy = -utility
    return FreeEnergy(energy, entropy, energy + entropy_weight * entropy)


@dataclass(frozen=True, slots=True)
class FreeEnergies:
    """`free_energy` of many memories at once, side by side in arrays [n]."""

    energies: Floats
    entropies: Floats
    totals: Floats

    @classmethod
    def of(cls, utilities: Floats, entropies: Floats, entropy_weight: float) -> FreeEnergies:
        """Return ``F = E + lambda * S`` of each memory."""
        return cls(-utilities, entropies, -utilities + entropy_weight * entropies)

    def __len__(self) -> int:
        return len(self.totals)

    def at(self, position: int) -> FreeEnergy:
        """Return the free energy of one memory."""
        return FreeEnergy(
            float(self.energies[position]),
            float(self.entropies[position]),
            float(self.totals[position]),
        )

    def first(self, count: int) -> FreeEnergies:
        """Return those of the first memories, as views."""
        return FreeEnergies(self.energies[:count], self.entropies[:count], self.totals[:count])


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


def annealed_temperature(start: float, end: float, factor: float, cycle: int) -> float:
    """Return ``end + (start - end) * factor ** cycle``: from ``start`` towards ``end``."""
    return end + (start - end) * factor**cycle


def scaled_temperature(temperature: float, totals: Floats | Sequence[float]) -> float:
    """Return T in units of the standard deviation of F over the store.

    A rule that is a tenth of a standard deviation from indifferent is so whatever the scale of
    the utility. With fewer than two memories there is no spread, and T is 0.
    """
    return temperature * float(np.std(totals)) if len(totals) > 1 else 0.0


def query_utility(
    vectors: Matrix, queries: Matrix, ages: Floats, *, decay: float, reduce: str = "mean"
) -> Floats:
    """Return the cosine of each memory to the recent queries, weighted by recency (paper, A.1).

    Args:
        vectors: Memories [n, d], normalised.
        queries: Recent queries [q, d], normalised.
        ages: Steps since each query [q].
        decay: Weight of a query per step of age, in [0, 1].
        reduce: ``mean`` (weighted) or ``max`` (of weight times cosine).

    Returns:
        Utilities [n]; zeros when there are no queries.
    """
    if not len(queries):
        return np.zeros(len(vectors))
    weights = decay**ages
    cosines = (vectors @ queries.T).astype(np.float64)
    if reduce == "max":
        return np.asarray((cosines * weights).max(axis=1))
    return np.asarray(cosines @ weights / weights.sum())


def effective_age(age: Floats, half_life: float) -> Floats:
    """Return the decayed exposure ``integral of 2**(-t / half_life)`` over the age, at least 1."""
    if math.isinf(half_life):
        return np.maximum(age, 1.0)
    tau = half_life / math.log(2.0)
    return np.maximum(tau * -np.expm1(-age / tau), 1.0)


def log_demand_rate(
    demand: Floats, exposure: Floats, prior_rate: float, prior_events: float = 1.0
) -> Floats:
    """Return the log of the posterior mean rate at which each memory is in demand.

    Gamma-Poisson: ``(demand + a) / (exposure + a / r)`` with a prior of ``a`` events at rate r.

    >>> rate = np.exp(log_demand_rate(np.array([3.0]), np.array([100.0]), 0.01))
    >>> round(float(rate[0]), 6)
    0.02
    """
    return np.asarray(np.log(demand + prior_events) - np.log(exposure + prior_events / prior_rate))


def cluster_variance(vectors: Matrix) -> float:
    """Return the mean squared distance of the members [m, d] to their mean (paper, A.1).

    For unit vectors it is ``1 - |mean|**2``, in [0, 1].
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    return float(((vectors - mean) ** 2).sum(axis=1).mean())


def gaussian_entropy(vectors: Matrix, floor: float = 1e-6) -> float:
    """Return the differential entropy per dimension of an isotropic Gaussian fit, in nats.

    ``0.5 * ln(2 pi e * variance)``, where the variance per dimension is at least ``floor``, so
    that a single member has a finite entropy.
    """
    variance = cluster_variance(vectors) / vectors.shape[1]
    return 0.5 * math.log(2.0 * math.pi * math.e * max(variance, floor))


def spectral_entropy(vectors: Matrix) -> float:
    """Return the Shannon entropy of the normalised spectrum of the members' Gram matrix.

    0 for one member or identical members, ``ln m`` for m orthogonal ones.
    """
    spectrum = np.linalg.eigvalsh((vectors @ vectors.T).astype(np.float64))
    return shannon_entropy(np.clip(spectrum, 0.0, None))


def softmax_entropy(vector: Floats | Matrix) -> float:
    """Return the Shannon entropy of ``softmax(e)`` over the coordinates of one embedding.

    The paper's letter (``S(m) = H(e_m)``). For unit vectors it is ``ln d`` to four digits
    whatever the text, so it tells no memory from another; it is here to show that.
    """
    exponents = np.exp(vector.astype(np.float64) - float(vector.max()))
    return shannon_entropy(exponents)


def shannon_entropy(weights: Floats) -> float:
    """Return the entropy of non-negative weights after normalisation; 0 if they sum to 0."""
    total = float(weights.sum())
    if total <= 0.0:
        return 0.0
    p = weights / total
    p = p[p > 0.0]  # after the division, which can underflow
    return float(-(p * np.log(p)).sum())


def outcome_entropy(weights: Iterable[float], labels: int, prior: float = 1.0) -> float:
    """Return the entropy of the next outcome of a memory, given the outcomes seen with it.

    The predictive distribution gives outcome i ``w_i / (W + prior)`` and shares the remaining
    ``prior / (W + prior)`` among the outcomes never seen. So a memory that always says the same
    tends to 0, one that says something else each time to ``ln labels``, and one of which nothing
    is known stands at ``ln labels``.

    Args:
        weights: Weight of each distinct outcome seen.
        labels: How many outcomes are possible; raised to the number seen plus one.
        prior: Weight of what was never seen.
    """
    seen = [weight for weight in weights if weight > 0.0]
    total = math.fsum(seen) + prior
    unseen = max(labels - len(seen), 1)
    rest = prior / total
    entropy = -rest * math.log(rest / unseen)
    return entropy - sum(weight / total * math.log(weight / total) for weight in seen)
