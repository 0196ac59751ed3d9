"""Streams of the Infinite Room (paper, section 3 and A.4).

An observation is a concept vector plus an isotropic Gaussian of norm ``noise`` (renormalised),
with the label that the concept has at that step; with probability ``distractors`` it is noise
with a random label instead. Drift relabels one concept at a time. Every choice that the paper
does not state is a field of :class:`World`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ecs_plugins.memory.types import Floats, Matrix

Ints = NDArray[np.int64]

CONCEPTS = 50
LABELS = 50
DIMENSION = 384
CAPACITY = 20
TOP_K = 3
THRESHOLD = 0.7


@dataclass(frozen=True, slots=True)
class World:
    """Environment.

    Attributes:
        name: Short name for tables.
        distractors: Probability that an observation is noise (the paper's p_noise).
        noise: Norm of the Gaussian around a concept: two observations of one concept have
            cosine ``1 / (1 + noise**2)`` on average.
        zipf: Exponent of the concepts' popularity; 0 is uniform.
        drift: Probability per step that one concept, chosen at random, gets another label.
        kind: Distractors are ``fresh`` random vectors, drawn from a recurring ``pool``, or lie
            ``near`` a concept: indistinguishable from an observation of it but for their label.
        pool: Number of recurring distractors.
        reshuffle: Steps between random permutations of the popularity; 0 means never.
        steps: Length of the stream.
    """

    name: str
    distractors: float
    noise: float = 0.5
    zipf: float = 0.0
    drift: float = 0.005
    kind: Literal["fresh", "pool", "near"] = "fresh"
    pool: int = 10
    reshuffle: int = 0
    steps: int = 5000

    def shortened(self, steps: int) -> World:
        """Return the same world with a shorter stream."""
        return replace(self, steps=steps)


def world_a(distractors: float, **changes: object) -> World:
    """Return world A: uniform popularity, tight concepts (same-concept cosine 0.80)."""
    name = f"A, {distractors:.0%} noise"
    return replace(World(name, distractors), **changes)  # type: ignore[arg-type]


def world_b(distractors: float, **changes: object) -> World:
    """Return world B: Zipf 0.45, loose concepts (same-concept cosine 0.72)."""
    world = World(f"B, {distractors:.0%} noise", distractors, noise=0.62, zipf=0.45)
    return replace(world, **changes)  # type: ignore[arg-type]


WORLDS: dict[str, World] = {
    "a10": world_a(0.1),
    "a30": world_a(0.3),
    "a50": world_a(0.5),
    "a70": world_a(0.7),
    "zipf30": world_a(0.3, name="A, 30%, Zipf 1", zipf=1.0),
    "zipf70": world_a(0.7, name="A, 70%, Zipf 1", zipf=1.0),
    "drift30": world_a(0.3, name="A, 30%, drift 0.1", drift=0.1),
    "pool50": world_a(0.5, name="A, 50% recurring", kind="pool"),
    "near50": world_a(0.5, name="A, 50% near", kind="near"),
    "shift30": world_a(0.3, name="A, 30%, Zipf 1, reshuffled", zipf=1.0, reshuffle=1000),
    "b30": world_b(0.3),
    "b50": world_b(0.5),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """Seeded realisation of a world.

    Attributes:
        vectors: Observations [t, d], normalised.
        concepts: Concept behind each observation [t]; -1 for a distractor.
        labels: Label that comes with each observation [t].
        truth: Label of every concept at every step [t, concepts].
        popularity: Popularity of every concept at every step [t, concepts].
        centres: The concept vectors [concepts, d].
        probes: Further observations of each concept [concepts, probes, d], never shown to a
            policy, from which the expected survival rate is computed.
        guesses: A random label per step, the answer when nothing is recalled [t].
    """

    vectors: Matrix
    concepts: Ints
    labels: Ints
    truth: Ints
    popularity: Floats
    centres: Matrix
    probes: Matrix
    guesses: Ints


def stream(world: World, seed: int, probes: int = 2) -> Stream:
    """Draw the stream of a world; policies that are compared see the same one."""
    rng = np.random.default_rng([seed, 20260])
    steps = world.steps
    centres = _unit(rng.standard_normal((CONCEPTS, DIMENSION)))
    popularity = _popularity(world, rng)
    truth = _drifting_labels(world, rng)
    draws = rng.random(steps)
    chosen = (draws[:, None] > np.cumsum(popularity, axis=1)).sum(axis=1).clip(max=CONCEPTS - 1)
    noisy = rng.random(steps) < world.distractors
    base = centres[chosen]
    deviation = _deviation(rng, (steps, DIMENSION), world.noise)
    if world.kind == "pool":
        pool = _unit(rng.standard_normal((world.pool, DIMENSION)))
        base[noisy] = pool[rng.integers(world.pool, size=int(noisy.sum()))]
    elif world.kind == "near":
        base[noisy] = centres[rng.integers(CONCEPTS, size=int(noisy.sum()))]
    else:
        base[noisy] = 0.0
    labels = np.where(noisy, rng.integers(LABELS, size=steps), truth[np.arange(steps), chosen])
    shape = (CONCEPTS, probes, DIMENSION)
    return Stream(
        vectors=_unit(base + deviation),
        concepts=np.where(noisy, -1, chosen),
        labels=labels,
        truth=truth,
        popularity=popularity,
        centres=centres.astype(np.float32),
        probes=_unit(centres[:, None, :] + _deviation(rng, shape, world.noise)),
        guesses=rng.integers(LABELS, size=steps),
    )


def _popularity(world: World, rng: np.random.Generator) -> Floats:
    weights = np.arange(1, CONCEPTS + 1, dtype=np.float64) ** -world.zipf
    weights /= weights.sum()
    if not world.reshuffle:
        return np.tile(weights, (world.steps, 1))
    epochs = -(-world.steps // world.reshuffle)
    orders = np.array([rng.permutation(CONCEPTS) for _ in range(epochs)])
    return np.asarray(weights[orders[np.arange(world.steps) // world.reshuffle]])


def _drifting_labels(world: World, rng: np.random.Generator) -> Ints:
    current = rng.integers(LABELS, size=CONCEPTS)
    truth = np.empty((world.steps, CONCEPTS), dtype=np.int64)
    changes = rng.random(world.steps) < world.drift
    for step in range(world.steps):
        if changes[step]:
            concept = rng.integers(CONCEPTS)
            current[concept] = (current[concept] + rng.integers(1, LABELS)) % LABELS
        truth[step] = current
    return truth


def _deviation(rng: np.random.Generator, shape: tuple[int, ...], norm: float) -> Floats:
    return np.asarray(rng.standard_normal(shape) * (norm / np.sqrt(shape[-1])))


def _unit(vectors: Floats) -> Matrix:
    units = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(units, dtype=np.float32)
