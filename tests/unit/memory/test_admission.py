from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infinite_room.entropic import overflow
from ecs_plugins.memory.admission import (
    admit,
    record_hit,
)
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.database import MEMORY, Database
from ecs_plugins.memory.store.intake import evict_overflow
from ecs_plugins.memory.store.messages import item_of
from ecs_plugins.memory.store.tiers import TierRow
from tests.unit.memory.factories import DIMENSION, axis, cold, hot

CONFIG = MemoryConfig()


def admitted(observation, config=CONFIG, **nearest):
    return admit(observation, config=config, **nearest)


@pytest.mark.parametrize(
    ("cosine_hot", "cosine_cold", "config", "becomes"),
    [
        (0.0, 0.0, CONFIG, "m9"),
        (0.0, 0.95, CONFIG, "c"),
        (0.95, 0.92, CONFIG, "m1"),
        (1.0, 1.0, MemoryConfig.paper(), "m9"),
    ],
)
def test_a_message_supports_the_nearer_of_what_it_repeats(cosine_hot, cosine_cold, config, becomes):
    near_hot, near_cold = hot("m1", axis(0)), cold("c", axis(0))
    admission = admitted(
        item_of("m9", axis(0), 9, ""),
        config,
        nearest_hot=(near_hot, cosine_hot),
        nearest_cold=(near_cold, cosine_cold),
    )
    assert admission.id == becomes
    assert admission.evidence.support == (1 if becomes == "m9" else 2)


def test_a_near_duplicate_supports_the_hot_item():
    seen = item_of("m9", axis(0), 9, "said again")
    admission = admitted(seen, nearest_hot=(hot("m1", axis(0)), 1.0))
    assert admission.id == "m1"
    assert admission.members == ("m1", "m9")
    assert admission.evidence.support == 2
    assert admission.evidence.demand == pytest.approx(1.0)
    assert admission.text == "said again"


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20))
def test_the_running_centroid_is_the_centroid(seeds):
    observations = []
    for seed in seeds:
        vector = np.random.default_rng(seed).standard_normal(8) + 2.0
        observations.append((vector / np.linalg.norm(vector)).astype(np.float32))
    item = hot("m0", observations[0])
    for step, vector in enumerate(observations[1:], start=1):
        item = admitted(item_of(f"m{step}", vector, step, ""), nearest_hot=(item, 1.0))
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


def left_over(items, config):
    """The hot items that stay when the store has these in its hot tier."""
    with closing(Database(MEMORY)) as database, database.write() as connection:
        space = tiers.create_space(connection, ("default",), 0.0, 0)
        for item in items:
            tiers.insert(connection, space, TierRow(item, {}, 0.0, 0.0), item.members)
        evict_overflow(connection, space, config)
        assert space.count["hot"] == min(len(items), config.hot_capacity)
        return [row.item.id for row in tiers.tier_rows(connection, space.id, "hot", DIMENSION)]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=9), st.integers(1, 3), st.booleans())
def test_what_leaves_is_what_the_measured_simulations_let_go(counts, support, paper):
    items = [
        replace(hot(f"m{i}", axis(0), step=i, support=1 + n, hits=h, last_seen=i + s), judged=j)
        for i, (n, h, s, j) in enumerate(counts)
    ]
    config = MemoryConfig.paper if paper else MemoryConfig
    config = config(hot_capacity=4, min_support=support)
    gone = overflow(items, config)
    assert left_over(items, config) == [item.id for item in items if item.id not in gone]


def test_a_near_text_that_says_something_else_is_a_memory_of_its_own():
    told = item_of("m9", axis(0), 9, "the code is 4712")
    known = replace(cold("c", axis(0)), text="the code is 4711")
    admission = admitted(told, nearest_cold=(known, 1.0))
    assert (admission.id, admission.evidence.unlike) == ("m9", "number")


def test_the_other_tier_may_still_be_repeated():
    told = item_of("m9", axis(0), 9, "the code is 4712")
    known = replace(cold("c", axis(0)), text="the code is 4711")
    repeated = replace(hot("m1", axis(0)), text="so the code is 4712")
    admission = admitted(told, nearest_cold=(known, 1.0), nearest_hot=(repeated, 0.95))
    assert admission.id == "m1"


def test_what_is_far_is_not_unlike():
    told = item_of("m9", axis(0), 9, "the code is 4712")
    known = replace(cold("c", axis(1)), text="the code is 4711")
    assert admitted(told, nearest_cold=(known, 0.0)).evidence.unlike is None
