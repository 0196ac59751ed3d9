from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.memory.admission import (
    admit,
    overflow,
    record_hit,
)
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.types import Observation
from tests.unit.memory.factories import axis, cold, hot

CONFIG = MemoryConfig()


def admitted(observation, config=CONFIG, **nearest):
    return admit(observation, config=config, **nearest)


def test_something_new_becomes_a_hot_item():
    seen = Observation("m9", axis(0), 9, "text")
    admission = admitted(seen, nearest_hot=(hot("m1", axis(1)), 0.0))
    assert admission.kind == "append"
    assert admission.item.members == ("m9",)


def test_a_near_duplicate_supports_the_hot_item():
    seen = Observation("m9", axis(0), 9, "said again")
    admission = admitted(seen, nearest_hot=(hot("m1", axis(0)), 1.0))
    assert admission.kind == "reinforce_hot"
    assert admission.item.members == ("m1", "m9")
    assert admission.item.evidence.support == 2
    assert admission.item.evidence.demand == pytest.approx(1.0)
    assert admission.item.text == "said again"


def test_a_near_duplicate_supports_the_cold_memory():
    seen = Observation("m9", axis(0, 1, 0.8), 9)
    admission = admitted(seen, nearest_cold=(cold("c", axis(0), support=3), 0.95))
    assert admission.kind == "reinforce_cold"
    assert admission.similarity == 0.95
    assert admission.item.evidence.support == 4


def test_the_nearer_tier_is_reinforced():
    seen = Observation("m9", axis(0), 9)
    nearest = {
        "nearest_hot": (hot("m1", axis(0)), 0.95),
        "nearest_cold": (cold("c", axis(0)), 0.92),
    }
    assert admitted(seen, **nearest).kind == "reinforce_hot"


def test_the_paper_appends_everything():
    seen = Observation("m9", axis(0), 9)
    admission = admitted(seen, MemoryConfig.paper(), nearest_hot=(hot("m1", axis(0)), 1.0))
    assert admission.kind == "append"


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20))
def test_the_running_centroid_is_the_centroid(seeds):
    observations = []
    for seed in seeds:
        vector = np.random.default_rng(seed).standard_normal(8) + 2.0
        observations.append((vector / np.linalg.norm(vector)).astype(np.float32))
    item = hot("m0", observations[0])
    for step, vector in enumerate(observations[1:], start=1):
        item = admitted(Observation(f"m{step}", vector, step), nearest_hot=(item, 1.0)).item
    total = np.sum(observations, axis=0, dtype=np.float64)
    length = np.linalg.norm(total)
    assert np.allclose(item.vector, total / length, atol=1e-5)
    assert item.evidence.resultant == pytest.approx(length, rel=1e-5)
    cosines = [float(vector @ item.vector) for vector in observations]
    assert item.evidence.spread == pytest.approx(1 - np.mean(cosines), abs=1e-4)


def test_a_hit_is_as_much_demand_as_its_score_says():
    memory = record_hit(cold("c", axis(0)), step=9, score=0.3)
    assert (memory.evidence.hits, memory.evidence.demand) == (1, 0.3)
    assert memory.evidence.last_seen == 9


def test_fifo_drops_the_oldest():
    items = [hot(f"m{i}", axis(i), support=9 if i == 0 else 1) for i in range(4)]
    config = MemoryConfig.paper(hot_capacity=2)
    assert overflow(items, config) == ("m0", "m1")


def test_an_item_that_earned_a_proposal_outlives_the_others():
    items = [hot(f"m{i}", axis(i), step=i, support=2 if i == 0 else 1) for i in range(4)]
    config = CONFIG.replace(hot_capacity=2, min_support=2)
    assert overflow(items, config) == ("m1", "m2")
    items[0] = replace(items[0], judged=2)
    assert overflow(items, config) == ("m0", "m1")


def test_a_near_text_that_says_something_else_is_a_memory_of_its_own():
    told = Observation("m9", axis(0), 9, "the code is 4712")
    known = replace(cold("c", axis(0)), text="the code is 4711")
    admission = admitted(told, nearest_cold=(known, 1.0))
    assert (admission.kind, admission.item.evidence.unlike) == ("append", "number")


def test_the_other_tier_may_still_be_repeated():
    told = Observation("m9", axis(0), 9, "the code is 4712")
    known = replace(cold("c", axis(0)), text="the code is 4711")
    repeated = replace(hot("m1", axis(0)), text="so the code is 4712")
    admission = admitted(told, nearest_cold=(known, 1.0), nearest_hot=(repeated, 0.95))
    assert admission.kind == "reinforce_hot"


def test_what_is_far_is_not_unlike():
    told = Observation("m9", axis(0), 9, "the code is 4712")
    known = replace(cold("c", axis(1)), text="the code is 4711")
    assert admitted(told, nearest_cold=(known, 0.0)).item.evidence.unlike is None
