"""Loop of the Infinite Room (observe, recall, predict, learn) and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from benchmarks.infinite_room.entropic import EntropicPolicy, Variant
from benchmarks.infinite_room.policies import (
    CACHES,
    CachePolicy,
    Guess,
    Moment,
    Oracle,
    Policy,
    VotingLfu,
)
from benchmarks.infinite_room.worlds import (
    CAPACITY,
    CONCEPTS,
    LABELS,
    THRESHOLD,
    TOP_K,
    Ints,
    Stream,
    World,
    stream,
)
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import Floats

PolicyFactory: TypeAlias = Callable[[Stream, int], Policy]
EXPECTED_EVERY = 25
OF_THE_WORLD: Mapping[str, Any] = {
    "hot_capacity": 20,
    "cold_capacity": CAPACITY,
    "threshold": THRESHOLD,
    "merge_threshold": THRESHOLD,
    "min_support": 2,
}
"""Settings that follow from the world: capacities, near vectors, and repeated observations."""


@dataclass(frozen=True, slots=True)
class Run:
    """Results of one policy on one stream.

    Attributes:
        survival: Fraction of concept steps answered correctly (the paper's SR).
        expected: The same in expectation over which concept is asked and over the guess:
            exact sums over concepts and guesses, averaged over fixed probe embeddings, every
            ``EXPECTED_EVERY`` steps.
        hit: Fraction of concept steps with a memory of the right label among the top 3,
            whatever its similarity (Hit@3).
        density: ``survival * concepts / capacity`` (the paper's Info Density).
        expected_curve: The expected survival at each evaluated step.
    """

    survival: float
    expected: float
    hit: float
    density: float
    expected_curve: tuple[float, ...]


def policies() -> dict[str, PolicyFactory]:
    """Return every policy by its name in the tables."""
    table: dict[str, PolicyFactory] = {
        "Oracle": lambda source, _seed: Oracle(source),
        "Random (guess)": lambda _source, _seed: Guess(),
    }
    for name, cache in CACHES.items():
        table[name] = _cache_factory(cache, False)
        table[f"{name} + dedup"] = _cache_factory(cache, True)
    table["LFU + dedup + vote"] = _cache_factory(VotingLfu, True)
    for name, variant in (entropic_configs() | readings() | ablations()).items():
        table[name] = entropic_factory(variant)
    return table


def entropic_configs() -> dict[str, Variant]:
    """Return the variants of Entropic Memory that run in every world, by name."""
    return {
        "Entropic, paper()": Variant(MemoryConfig.paper()),
        "Entropic, default": Variant(bounded(MemoryConfig())),
    }


def readings() -> dict[str, Variant]:
    """Return the paper's other readings, by name."""
    changes: dict[str, dict[str, Any]] = {
        "hot 20": {"hot_capacity": 20},
        "centroid": {"proposal": "centroid"},
        "hot 20, centroid": {"hot_capacity": 20, "proposal": "centroid"},
        "no entropy": {"entropy_weight": 0.0},
        "softmax entropy": {"entropy": "embedding"},
    }
    return {
        f"Entropic, paper({name})": Variant(MemoryConfig.paper(**change))
        for name, change in changes.items()
    }


def ablations() -> dict[str, Variant]:
    """Return the default configuration with one part taken out or exchanged, by name."""
    default = Variant(bounded(MemoryConfig()))
    table = {
        "no entropy (lambda = 0)": default.replace(entropy_weight=0.0),
        "entropy of the embeddings (cluster variance)": default.replace(entropy="cluster_variance"),
        "T = 0": default.replace(temperature=0.0),
        "T = 1": default.replace(temperature=1.0),
        "contradiction: newest wins": replace(default, contradiction="newest"),
        "contradiction: never overwrite": replace(default, contradiction="never"),
        "no merging on arrival": replace(default, merges=False),
        "sleep every 100": default.replace(sleep_every=100),
    }
    return {f"Entropic, {name}": variant for name, variant in table.items()}


def bounded(config: MemoryConfig) -> MemoryConfig:
    """Return the settings with those of this world."""
    return config.replace(**OF_THE_WORLD)


def entropic_factory(variant: Variant) -> PolicyFactory:
    """Return a factory for a variant."""
    return lambda _source, seed: EntropicPolicy(variant, seed)


def _cache_factory(cache: type[CachePolicy], deduplicate: bool) -> PolicyFactory:
    return lambda _source, seed: cache(deduplicate, seed)


@lru_cache(maxsize=2)
def _stream(world: World, seed: int) -> Stream:
    return stream(world, seed)


def simulate(world: World, seed: int, factory: PolicyFactory) -> Run:
    """Run one policy through one stream."""
    source = _stream(world, seed)
    policy = factory(source, seed)
    correct = np.zeros(world.steps)
    hits = np.zeros(world.steps, dtype=bool)
    expected = []
    oracle = policy if isinstance(policy, Oracle) else None
    for step in range(world.steps):
        vector = source.vectors[step]
        label = int(source.labels[step])
        concept = int(source.concepts[step])
        similarities = policy.vectors @ vector
        top = (-similarities).argsort()[:TOP_K].tolist()
        recalled = [position for position in top if similarities[position] >= THRESHOLD]
        if concept >= 0:
            hits[step] = any(policy.label(position) == label for position in top)
            if oracle is not None:
                answer = oracle.answer(concept)
                hits[step] = answer == label
            else:
                answer = policy.label(recalled[0]) if recalled else -1
            correct[step] = (int(source.guesses[step]) if answer < 0 else answer) == label
        if step % EXPECTED_EVERY == EXPECTED_EVERY - 1:
            expected.append(_expected(policy, source, step))
        policy.observe(Moment(step, vector, label, similarities, recalled))
    asked = source.concepts >= 0
    survival = float(correct[asked].mean())
    return Run(
        survival=survival,
        expected=float(np.mean(expected)),
        hit=float(hits[asked].mean()),
        density=survival * CONCEPTS / CAPACITY,
        expected_curve=tuple(expected),
    )


def _expected(policy: Policy, source: Stream, step: int) -> float:
    """Return the probability that a concept asked now would be answered correctly."""
    popularity: Floats = source.popularity[step]
    truth = source.truth[step]
    if isinstance(policy, Oracle):
        answers = np.array([[policy.answer(concept)] for concept in range(CONCEPTS)])
    else:
        answers = _answers(policy, source)
    right = np.where(answers < 0, 1.0 / LABELS, answers == truth[:, None])
    return float(popularity @ right.mean(axis=1))


def _answers(policy: Policy, source: Stream) -> Ints:
    """Return the label recalled for every probe [concepts, probes]; -1 where none is."""
    vectors = policy.vectors
    shape = source.probes.shape[:2]
    if not len(vectors):
        return np.full(shape, -1, dtype=np.int64)
    similarities = source.probes.reshape(-1, vectors.shape[1]) @ vectors.T
    nearest = similarities.argmax(axis=1)
    labels = np.array([policy.label(position) for position in range(len(vectors))])
    matched = similarities[np.arange(len(nearest)), nearest] >= THRESHOLD
    return np.where(matched, labels[nearest], -1).reshape(shape)
