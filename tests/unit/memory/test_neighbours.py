import numpy as np
import pytest

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.consolidation import consolidate
from ecs_plugins.memory.neighbours import Neighbours
from ecs_plugins.memory.types import Proposal
from tests.unit.memory.factories import cold, evidence, hot


def near_one_another(rng, count):
    """Unit vectors around a few directions, some of them nearly the same."""
    centres = np.random.default_rng(0).normal(size=(6, 8))
    vectors = centres[rng.integers(6, size=count)] + 0.25 * rng.normal(size=(count, 8))
    return np.float32(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def proposal(number, vector):
    name = f"p{number}"
    return Proposal(name, vector, "text", evidence(), (name,), (name,), 0.0)


@pytest.mark.parametrize("least", [-1.0, 0.3, 0.9])
def test_whoever_is_near_is_found(least):
    rng = np.random.default_rng(1)
    stored, own = near_one_another(rng, 40), near_one_another(rng, 15)
    proposals = [proposal(number, vector) for number, vector in enumerate(own)]
    neighbours = Neighbours(proposals, stored, least)
    for number in range(0, 15, 2):
        neighbours.became(proposals[number], 40 + number)
    for each in proposals:
        near = {at for at, vector in enumerate(stored) if vector @ each.vector >= least}
        near |= {40 + at for at in range(0, 15, 2) if own[at] @ each.vector >= least}
        assert near <= set(neighbours.of(each))


def test_nothing_is_near_in_an_empty_store_or_without_proposals():
    nothing = np.zeros((0, 8), dtype=np.float32)
    one = proposal(0, near_one_another(np.random.default_rng(2), 1)[0])
    assert Neighbours([one], nothing, 0.5).of(one) == []
    assert Neighbours([], nothing, 0.5).of(one) == []


@pytest.mark.parametrize("seed", range(5))
def test_looking_at_every_memory_decides_the_same(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    vectors = near_one_another(rng, 60)
    items = [hot(f"m{i}", vector, step=i) for i, vector in enumerate(vectors[:40])]
    store = [cold(f"c{i}", vector, demand=float(i % 3)) for i, vector in enumerate(vectors[40:])]
    config = MemoryConfig(merge_threshold=0.93, cold_capacity=22, min_support=1)

    def plan():
        return consolidate(items, store, config=config, step=100, seed=seed)

    with_hints = plan()
    monkeypatch.setattr(Neighbours, "of", lambda self, _: [*range(20), *self._positions.values()])
    assert plan() == with_hints
    assert {"reinforce", "replace"} <= {decision.kind for decision in with_hints.decisions}
