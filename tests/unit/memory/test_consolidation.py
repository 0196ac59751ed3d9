import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from benchmarks.infinite_room.entropic import apply_plan
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.consolidation import (
    consolidate,
    kmeans_labels,
    link_labels,
    replay,
)
from ecs_plugins.memory.store.sleeps import DECISION
from tests.unit.memory.factories import axis, cold, hot

SMALL = MemoryConfig(cold_capacity=2, min_support=2)


def sleep(hot_items, cold_items=(), config=SMALL, step=100, seed=0, **options):
    return consolidate(
        hot_items,
        cold_items,
        config=config,
        step=step,
        seed=seed,
        **options,
    )


def kinds(plan):
    return [decision.kind for decision in plan.decisions]


def full_store(**changes):
    strong = cold("a", axis(0), demand=50.0, **changes)
    weak = cold("b", axis(1), demand=0.1)
    return [strong, weak]


FILLING = SMALL.replace(hot_capacity=3, sleep_every=2)
WANTED = [hot("m1", axis(2), support=9, demand=90.0)]
SINGLE = [hot(f"m{i}", axis(i), step=90 + i) for i in range(3)]
PINNED = [cold(name, axis(i), pinned=True) for i, name in enumerate("ab")]


@pytest.mark.parametrize(
    ("items", "store", "config", "decided", "consumed", "removed"),
    [
        pytest.param(
            [hot("m1", axis(0)), hot("m2", axis(0))],
            [],
            SMALL,
            ["insert"],
            ["m1", "m2"],
            "",
            id="a repeated observation is inserted",
        ),
        pytest.param(SINGLE[:1], [], SMALL, [], [], "", id="a single one waits for support"),
        pytest.param(
            [hot("m1", axis(2), hits=1, demand=1.0)],
            [],
            SMALL,
            ["insert"],
            ["m1"],
            "",
            id="being asked for counts as support",
        ),
        pytest.param(
            SINGLE,
            [],
            FILLING,
            ["insert"] * 2,
            ["m0", "m1"],
            "",
            id="single ones that are about to leave fill a store with room",
        ),
        pytest.param(
            SINGLE,
            [cold("o", axis(6), step=0), cold("a", axis(7), step=0, support=2)],
            FILLING,
            ["replace"],
            ["m0"],
            "o",
            id="single ones compete only with older ones of their kind",
        ),
        pytest.param(
            [hot("m1", axis(2), support=2, step=50, demand=1.0)],
            [cold("n", axis(6), step=99), cold("w", axis(7), step=0, support=2)],
            FILLING,
            ["replace"],
            ["m1"],
            "n",
            id="a supported candidate displaces an unsupported memory first",
        ),
        pytest.param(
            WANTED,
            full_store(),
            SMALL,
            ["replace"],
            ["m1"],
            "b",
            id="the weakest memory is displaced by one in more demand",
        ),
        pytest.param(
            WANTED,
            [full_store()[0], cold("b", axis(1), demand=0.1, pinned=True)],
            SMALL,
            ["replace"],
            ["m1"],
            "a",
            id="a pinned memory is never a victim",
        ),
        pytest.param(
            WANTED,
            PINNED,
            SMALL,
            ["reject"],
            [],
            "",
            id="a store of pinned memories rejects everything",
        ),
        pytest.param(
            [],
            [*full_store(), cold("c", axis(2), demand=9.0), cold("d", axis(3), demand=0.5)],
            SMALL,
            ["evict"] * 2,
            [],
            "bd",
            id="a store above its capacity shrinks to it",
        ),
    ],
)
def test_a_sleep_phase_decides(items, store, config, decided, consumed, removed):
    plan = sleep(items, store, config)
    assert kinds(plan) == decided
    assert sleep(items, store, config) == plan  # the seed decides it
    for decision in plan.decisions:
        recorded = DECISION.dump_json(decision)
        assert replay(DECISION.validate_json(recorded)) == decision
    _, cold_after = apply_plan(plan, items, store)
    assert len(cold_after) <= config.cold_capacity
    assert plan.consumed == tuple(consumed)
    assert sorted(memory.id for memory in plan.removed) == sorted(removed)
    kept = sum(memory.evidence.support for memory in plan.inserted)
    assert kept == sum(item.evidence.support for item in items if item.id in consumed)


def test_a_proposal_reinforces_the_nearest_memory_that_says_the_same():
    contrary = cold("a", axis(0), support=3)
    contrary = replace(contrary, text="the code is 4711")
    memory = cold("b", axis(0, 1, 0.9), support=3)
    memory = replace(memory, text="the code is 4712")
    item = hot("m1", axis(0), support=2)
    item = replace(item, text="so the code is 4712")
    plan = sleep([item], [contrary, memory])
    assert kinds(plan) == ["reinforce"]
    (decision,) = plan.decisions
    assert decision.target_id == "b"
    assert decision.similarity == pytest.approx(0.9, abs=1e-6)
    (reinforced,) = plan.updated
    assert reinforced.evidence.support == 5
    assert plan.inserted == ()
    assert plan.removed == ()


def test_a_candidate_of_contradicting_outcomes_is_rejected():
    careful = SMALL.replace(temperature=0.0, entropy_weight=5.0)
    careless = careful.replace(entropy_weight=0.0)
    torn = hot(
        "m1",
        axis(2),
        support=4,
        demand=3.0,
        contradictions=3.0,
    )
    observed = {"demand": 1.0, "support": 4, "agreements": 3.0}
    steady = [
        cold("a", axis(0), **observed),
        cold("b", axis(1), **observed),
    ]
    plan = sleep([torn], steady, careful)
    assert kinds(plan) == ["reject"]
    plan = sleep([torn], steady, careless)
    assert kinds(plan) == ["replace"]


@pytest.mark.parametrize("pinned", [False, True])
def test_a_rejected_item_is_not_proposed_again_without_new_support(pinned):
    config = SMALL.replace(temperature=0.0)
    items = [hot("m1", axis(2), support=2, demand=0.0, step=0)]
    store = [
        cold("a", axis(0), demand=30.0, pinned=pinned),
        cold("b", axis(1), demand=30.0, pinned=pinned),
    ]
    plan = sleep(items, store, config)
    assert kinds(plan) == ["reject"]
    items, store = apply_plan(plan, items, store)
    plan = sleep(items, store, config)
    assert plan.decisions == ()
    (item,) = items
    supported = replace(item.evidence, support=3)
    grown = replace(item, evidence=supported)
    plan = sleep([grown], store, config)
    assert kinds(plan) == ["reject"]


def test_a_single_item_without_a_rival_of_its_kind_waits_and_is_not_judged():
    supported = [cold(name, axis(at), support=2) for at, name in enumerate("ab", start=6)]
    plan = sleep(SINGLE, supported, FILLING)
    assert plan.decisions == ()
    items, _ = apply_plan(plan, SINGLE, supported)
    assert [item.judged for item in items] == [0, 0, 0]


def test_the_paper_discards_clusters_below_three_and_inserts_the_medoid_as_it_is():
    config = MemoryConfig.paper(clusters=2)
    near = [
        hot("m0", axis(0, 1, 0.9)),
        hot("m1", axis(0, 1, 0.95)),
        hot("m2", axis(0, 1, 1.0)),
    ]
    medoid = near[1]
    plan = sleep([*near, hot("x", axis(5))], config=config)
    assert sorted(kinds(plan)) == ["discard", "insert"]
    assert plan.consumed == ()
    (inserted,) = plan.inserted
    assert inserted.text == medoid.text
    assert np.array_equal(inserted.vector, medoid.vector)


@pytest.mark.parametrize("values", [[], [1.0], [math.nan] * 3, [math.inf] * 3])
def test_a_utility_that_is_not_one_finite_number_each_is_refused(values):
    items = [hot("m1", axis(2), support=2)]
    with pytest.raises(InvalidInputError, match="3 finite numbers"):
        sleep(items, full_store(), utility=lambda *_: values)


# Clusters


def smallest_of_component(linked):
    """For each row the smallest one of its component, by SciPy."""
    _, labels = connected_components(linked, directed=False)
    return [labels.tolist().index(label) for label in labels]


@given(st.integers(0, 12), st.integers(0, 10_000), st.floats(-1, 1))
def test_link_clusters_are_the_connected_components(count, seed, threshold):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, 3))
    labels = link_labels(vectors, threshold, [""] * count)
    linked = vectors @ vectors.T >= threshold
    assert labels == smallest_of_component(linked)


def test_kmeans_separates_the_subjects_repeats_by_seed_and_leaves_no_cluster_empty():
    vectors = np.stack([axis(0), axis(1), axis(0), axis(1)])
    labels = kmeans_labels(vectors, 2, seed=3)
    first, second, third, fourth = labels
    assert first == third
    assert second == fourth
    assert first != second
    again = kmeans_labels(vectors, 2, seed=3)
    assert again == labels
    same = vectors[[0, 0, 2, 2]]
    labels = kmeans_labels(same, 3, seed=3)
    assert labels == [0, 0, 0, 0]


@given(st.integers(0, 10_000), st.floats(-1, 1), st.lists(st.integers(0, 2), max_size=12))
def test_texts_that_say_something_else_are_in_no_common_cluster(seed, threshold, numbers):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((len(numbers), 3))
    texts = [f"the code is {number}" for number in numbers]
    labels = link_labels(vectors, threshold, texts)
    free = link_labels(vectors, threshold, ["the code"] * len(numbers))
    for row in range(len(numbers)):
        for other in range(row):
            if labels[row] == labels[other]:
                assert numbers[row] == numbers[other]
                assert free[row] == free[other]
    if len(set(numbers)) == 1:
        assert labels == free


def test_the_nearest_rows_are_joined_first():
    vectors = np.stack(
        [
            axis(0, 1, 0.8),
            axis(0),
            axis(0, 1, 0.95),
        ]
    )
    texts = ["the code is 1", "the code is 2", "is that the code?"]
    labels = link_labels(vectors, 0.7, texts)
    assert labels == [0, 1, 1]
